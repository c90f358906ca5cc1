"""Submissions, and looking at runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, product

import msgspec

from mainspring.core.answers import DELAYS
from mainspring.core.ids import TAIL
from mainspring.core.model import DEFAULT, Attempt, NewRun, Run
from mainspring.core.states import FINAL, State
from mainspring.store import Audit, RunFilter, SubmissionListener
from mainspring.stores.rows.run_rows import (
    AFTER_ALL,
    FEW_RUNNING,
    FEW_RUNS,
    IDEMPOTENCY_KEPT,
    LAST_NAME,
    delay_steps,
    ended_already,
    fingerprint,
    ids_only,
    noted,
    other_request,
    run_in,
    run_of,
    unfinished_states,
)
from mainspring.stores.rows.trail import note
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import cancel_run
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction, at_once
from mainspring.stores.sqlite.history.trail import audited
from mainspring.stores.sqlite.submissions.inbox import ACCEPT, accepted, fits
from mainspring.stores.sqlite.submissions.intake import insert_runs

_Q = load_queries("sqlite", "runs")
_IDS = ids_only(_Q)
_FOUND_BY = {
    "job": _Q["found_by_job"],
    "tag": _Q["found_by_tag"],
    "task": _Q["found_by_task"],
    "region": _Q["found_by_region"],
    "submitter": _Q["found_by_submitter"],
}
"""Unfinished runs, by the index of each filter that has one."""
MANY_CLASSES = 1_000
"""A filter that fits more classes than this is not answered class by class."""
_encode = msgspec.json.Encoder().encode

_WHOLE: Sequence[Mapping[str, object]] = [{}]
"""One range, which the filter itself names."""


class Runs:
    """See `store.RunStore`."""

    _db: Database
    _listener: SubmissionListener | None = None

    async def submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        if len(runs) == 1 and audit is None and fits(runs[0]):
            await self._db.accept(ACCEPT, accepted(runs[0]))
            ids = [runs[0].id]
        else:
            work = audited(lambda tx: _submit(tx, runs), audit)
            ids = await self._db.in_time(self._db.write(work, quick=len(runs) == 1), len(runs))
        if self._listener is not None:
            self._listener.accepted(runs)
        return ids

    async def get_run(self, namespace: str, run_id: str) -> Run:
        row = await self._db.read(lambda tx: tx.execute(_Q["get"], (run_id,)).fetchone())
        return run_in(namespace, run_id, row)

    async def find_runs(self, namespace: str, prefix: str, limit: int = 2) -> list[str]:
        def work(tx: Transaction) -> list[str]:
            if not prefix:
                return []
            values = {"namespace": namespace, "prefix": prefix, "limit": limit}
            # A whole tail is the end of an id: the third would find no others.
            for query in (_Q["find_prefix"], _Q["find_tail"], *([_Q["find_suffix"]] if len(prefix) != TAIL else [])):
                if rows := tx.execute(query, values).fetchall():
                    return [row[0] for row in rows]
            return []

        return await self._db.look_back(work)

    async def list_runs(self, where: RunFilter) -> list[Run]:
        return await self._db.look_back(lambda tx: _list_runs(tx, where))

    async def count_matching(self, where: RunFilter) -> int:
        return await self._db.look_back(lambda tx: _count_matching(tx, where))

    async def count_each(self, filters: Sequence[RunFilter]) -> list[int]:
        return await self._db.look_back(lambda tx: [_count_matching(tx, where) for where in filters])

    async def list_attempts(self, run_id: str) -> list[Attempt]:
        rows = await self._db.look_back(lambda tx: tx.execute(_Q["attempts"], (run_id,)).fetchall())
        return [Attempt(*row) for row in rows]

    async def have_written(self, after: Mapping[str, int]) -> list[str]:
        asked = _encode(list(after.items())).decode()
        rows = await self._db.look_back(lambda tx: tx.execute(_Q["have_written"], (asked,)).fetchall())
        return [row[0] for row in rows]

    async def request_cancel(
        self, namespace: str, run_id: str, reason: str, *, audit: Audit[State] | None = None
    ) -> State:
        def work(tx: Transaction) -> State:
            run = run_in(namespace, run_id, tx.execute(_Q["get"], (run_id,)).fetchone())
            state = cancel_run(tx, run_id, reason)
            if state is None:
                raise ended_already(run)
            return state

        return await self._db.write(audited(work, audit))

    async def finished(self, run_ids: Collection[str]) -> list[Run]:
        ids = _encode(list(run_ids)).decode()
        return [run_of(row) for row in await self._db.read(lambda tx: tx.execute(_Q["finished"], (ids,)).fetchall())]


def _submit(tx: Transaction, runs: Sequence[NewRun]) -> list[str]:
    noted_before = len(tx.events)  # What came out of the inbox is noted already.
    if not any(run.idempotency_key for run in runs):
        insert_runs(tx, runs)
        at_once(note(tx, noted(runs, tx.events[noted_before:])))
        return [run.id for run in runs]
    answers: list[str] = []
    fresh: list[NewRun] = []
    for run in runs:
        answer = _join_waiting(tx, run, fresh) if run.unique else _recall(tx, run)
        if answer is None:
            answer = run.id
            fresh.append(run)
            _remember(tx, run)
        answers.append(answer)
    insert_runs(tx, fresh)
    at_once(note(tx, noted(fresh, tx.events[noted_before:])))
    return answers


def _recall(tx: Transaction, run: NewRun) -> str | None:
    """The id that this idempotency key was answered with before."""
    if run.idempotency_key is None:
        return None
    row = tx.execute(_Q["recall"], (run.namespace, run.idempotency_key, tx.now)).fetchone()
    if row is None:
        return None
    known, answer = row
    if known != fingerprint(run):
        raise other_request(run, answer)
    return str(answer)


def _join_waiting(tx: Transaction, run: NewRun, fresh: Sequence[NewRun]) -> str | None:
    """The id of the run that waits under this unique key: in the store, or about to be stored."""
    row = tx.execute(_Q["recall_waiting"], (run.namespace, run.idempotency_key)).fetchone()
    if row is None:
        return None
    known, answer, waits = row
    if answer == run.id:
        return None
    if not waits and all(answer != each.id for each in fresh):
        return None
    if known != fingerprint(run):
        raise other_request(run, answer)
    return str(answer)


def _remember(tx: Transaction, run: NewRun) -> None:
    if run.idempotency_key is not None:
        expires_at = (max(run.due_at, tx.now) if run.unique else tx.now) + IDEMPOTENCY_KEPT
        row = (run.namespace, run.idempotency_key, fingerprint(run), run.id, expires_at)
        tx.execute(_Q["remember"], row)


def _list_runs(tx: Transaction, where: RunFilter) -> list[Run]:
    values = _values(where)
    rows = []
    if not where.states or not FINAL.issuperset(where.states):
        rows += _list_active(tx, where, values, _Q)
    newest = _finished_ids(tx, where, values)
    rows += tx.execute(_Q["finished"], (_encode(newest).decode(),)).fetchall() if newest else []
    rows.sort(key=lambda row: str(row[0]), reverse=True)
    return [run_of(row) for row in rows[: where.limit]]


def _count_matching(tx: Transaction, where: RunFilter) -> int:
    values, unfinished = _values(where), 0
    if not where.states or not FINAL.issuperset(where.states):
        unfinished = len(_list_active(tx, where, values, _IDS))
    return min(unfinished + _count_finished(tx, where, values), where.limit)


def _values(where: RunFilter) -> dict[str, object]:
    return {
        "namespace": where.namespace,
        "since": where.since or "",
        "before": where.before or AFTER_ALL,
        "job": where.job,
        "task": where.task,
        "queue": where.queue,
        "tag": where.tag,
        "worker": where.worker,
        "region": where.region,
        "key": where.key,
        "late": None if where.late is None else DELAYS[where.late],
        "took": None if where.took is None else DELAYS[where.took],
        "submitter": where.submitted_by,
        "states": ",".join(where.states),
        "limit": where.limit,
    }


def _finished_ids(tx: Transaction, where: RunFilter, values: dict[str, object]) -> list[str]:
    """The newest finished runs that a filter fits."""
    return sorted(chain.from_iterable(_newest_finished(tx, where, values)), reverse=True)[: where.limit]


def _count_finished(tx: Transaction, where: RunFilter, values: dict[str, object]) -> int:
    """How many finished runs a filter fits. Ends at the limit: what is left is not read."""
    count = 0
    for newest in _newest_finished(tx, where, values):
        count += len(newest)
        if count >= where.limit:
            break
    return count


def _list_active(
    tx: Transaction, where: RunFilter, values: dict[str, object], queries: Mapping[str, str]
) -> list[tuple[object, ...]]:
    """The candidates themselves if they are few; otherwise by the index of a filter, or by id, since most candidates
    fit. A run that has not ended has taken no time yet."""
    if where.took is not None:
        return []
    if where.key is not None or where.late is not None:
        found = [row[0] for row in _find_special(tx, where, values)]
        return tx.execute(queries["list_active_of"], {**values, "among": _encode(found).decode()}).fetchall()
    states, few = unfinished_states(where)
    first, last = ("", LAST_NAME) if where.queue is None else (where.queue, where.queue)
    bounds = {"first_queue": first, "last_queue": last, "states": ",".join(states), "bound": few + 1}
    some: list[int] | None = [row[0] for row in tx.execute(_Q["active"], {**values, **bounds})]
    if some is not None and len(some) > few:
        some = _find_active(tx, where, values)
    if some is None:
        return tx.execute(queries["list_active"], values).fetchall()
    among = {**values, "among": _encode(some).decode()}
    return tx.execute(queries["list_active_of"], among).fetchall() if some else []


def _find_special(tx: Transaction, where: RunFilter, values: dict[str, object]) -> set[tuple[int]]:
    """The unfinished runs of a key, and those that began late: where both are asked for, those that are both."""
    keyed = set(tx.execute(_Q["keyed"], values)) if where.key is not None else None
    if where.late is None:
        return keyed or set()
    late = set(tx.execute(_Q["running_late"], {**values, "bound": FEW_RUNNING}))
    return late if keyed is None else late & keyed


def _find_active(tx: Transaction, where: RunFilter, values: dict[str, object]) -> list[int] | None:
    """The runs that a filter fits, newest first, by the index that leads to the fewest rows; None if there is no such
    index."""
    region = None if where.region == DEFAULT else where.region
    given = {"job": where.job, "tag": where.tag, "task": where.task, "region": region, "submitter": where.submitted_by}
    names = [name for name, value in given.items() if value is not None]
    if not names:
        return None
    if len(names) > 1:
        sizes = dict(zip(given, tx.execute(_Q["sizes"], {**values, "bound": FEW_RUNS}).fetchone(), strict=True))
        names.sort(key=sizes.__getitem__)
    return [row[0] for row in tx.execute(_FOUND_BY[names[0]], values)]


def _newest_finished(tx: Transaction, where: RunFilter, values: dict[str, object]) -> Iterator[list[str]]:
    """The newest of each range of an index, of the one that leads to the fewest rows that do not fit. A finished run
    has no worker."""
    if where.worker is not None or (where.states and FINAL.isdisjoint(where.states)):
        return
    states = sorted(FINAL.intersection(where.states) or FINAL)
    query, ranges = _ranges(tx, where, {**values, "states": ",".join(states)}, states)
    for each in ranges:
        yield [row[0] for row in tx.execute(query, {**values, "states": ",".join(states), **each})]


def _ranges(
    tx: Transaction, where: RunFilter, values: dict[str, object], states: Sequence[str]
) -> tuple[str, Sequence[Mapping[str, object]]]:
    """A query, and its values for each range of its index."""
    by_state = [{"state": state} for state in states]
    if where.key is not None:
        query, ranges = _Q["newest_of_key"], _WHOLE
    elif where.late is not None:
        lengths = range(len(DELAYS) + 1) if where.took is None else [step + 1 for step in delay_steps(where.took)]
        pairs = product(delay_steps(where.late), lengths)
        query, ranges = _Q["newest_late"], [{"step": step, "length": length} for step, length in pairs]
    elif where.took is not None:
        query, ranges = _Q["newest_long"], [{"step": step} for step in delay_steps(where.took)]
    elif where.submitted_by is not None:
        query, ranges = _Q["newest_of_submitter"], by_state
    elif where.job is not None:
        query, ranges = _Q["newest_of_job"], by_state
    else:
        query, ranges = _class_ranges(tx, where, values)
    return query, ranges


def _class_ranges(
    tx: Transaction, where: RunFilter, values: dict[str, object]
) -> tuple[str, Sequence[Mapping[str, object]]]:
    """The same, for what no other filter narrows: by region, tag and class."""
    in_region = where.region not in (None, DEFAULT)
    if in_region and not (where.states or where.task is not None or where.queue is not None):
        return _Q["newest_of_region"], _WHOLE
    rows = tx.execute(_Q["classes"], {**values, "classes": MANY_CLASSES + 1}).fetchall()
    classes = [{"queue": row[0], "task": row[1], "state": row[2]} for row in rows]
    if in_region:
        few = len(classes) <= MANY_CLASSES
        return (_Q["newest_of_region_class"], classes) if few else (_Q["newest_of_region"], _WHOLE)
    if where.tag is not None and not _are_few(tx, where.namespace, classes):
        return _Q["newest_tagged"], _WHOLE
    return (_Q["newest"], _WHOLE) if len(classes) > MANY_CLASSES else (_Q["newest_of_class"], classes)


def _are_few(tx: Transaction, namespace: str, classes: Sequence[dict[str, str]]) -> bool:
    left = FEW_RUNS
    for each in classes:
        values = {"namespace": namespace, **each, "bound": left + 1}
        left -= tx.execute(_Q["class_size"], values).fetchone()[0]
        if left < 0:
            return False
    return True
