"""Submissions, and looking at runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from mainspring.core.answers import DELAYS
from mainspring.core.ids import TAIL
from mainspring.core.instants import DAY
from mainspring.core.model import DEFAULT, Attempt, NewRun, Run
from mainspring.core.states import FINAL, RUNNING, State
from mainspring.store import Audit, RunFilter
from mainspring.stores.postgres.ends.endings import cancel_run
from mainspring.stores.postgres.history.days import day_of, not_before
from mainspring.stores.postgres.server.database import Database, Record, Transaction
from mainspring.stores.postgres.submissions.group_commit import GroupCommit
from mainspring.stores.postgres.submissions.in_transaction import join
from mainspring.stores.postgres.submissions.submit import accept, submit
from mainspring.stores.rows.run_rows import (
    FEW_RUNNING,
    FEW_RUNS,
    LAST_NAME,
    counts_only,
    delay_steps,
    ended_already,
    run_in,
    run_of,
    unfinished_states,
)
from mainspring.stores.rows.trail import audited
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "runs")
_COUNTS = counts_only(_Q)
SOME_CLASSES, NEWEST = 8, 500
MANY_CLASSES = 200
"""A filter that fits more classes than this is not answered class by class: each class is searched in every day."""
TAGGED_CLASSES = 50
"""The same with a tag: beyond this many classes, what has the tag is looked at one by one."""
RECENT = 10 * DAY
"""Each first day is another statement, which a session plans and keeps, so only this many have one of their own."""


class Runs:
    """See `store.RunStore`."""

    _db: Database

    @cached_property
    def _group_commit(self) -> GroupCommit:
        return GroupCommit(self._db)

    async def submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        if audit is not None:  # Submissions of others are not part of its transaction.
            return await self._db.schedule(lambda: accept(self._db, runs, audit), size=len(runs), again=True)
        return await self._db.schedule(lambda: self._group_commit.submit(runs), size=len(runs), again=True)

    async def submit_within(self, connection: object, runs: Sequence[NewRun]) -> list[str]:
        """Accept runs in the caller's own transaction, on an asyncpg or psycopg connection to the same database: they
        are accepted when it commits, or not at all."""
        return await join(self._db, connection, lambda tx: submit(tx, runs))

    async def get_run(self, namespace: str, run_id: str) -> Run:
        return run_in(namespace, run_id, await self._db.read(lambda tx: _find(tx, run_id)))

    async def find_runs(self, namespace: str, prefix: str, limit: int = 2) -> list[str]:
        async def work(tx: Transaction) -> list[str]:
            asked = (namespace, prefix, limit)
            rows = await tx.fetch(_Q["find_prefix"], *asked)
            rows = rows or await tx.fetch(_Q["find_tail"], *asked, day_of(tx.now))
            if not rows and len(prefix) != TAIL:  # A whole tail is the end of an id: this would find no others.
                rows = await tx.fetch(_Q["find_suffix"], *asked)
            return [row[0] for row in rows]

        return await self._db.read(work) if prefix else []

    async def list_runs(self, where: RunFilter) -> list[Run]:
        return await self._db.read(lambda tx: _list_runs(tx, where), consistent=True)

    async def count_matching(self, where: RunFilter) -> int:
        return await self._db.read(lambda tx: _count_matching(tx, where), consistent=True)

    async def count_each(self, filters: Sequence[RunFilter]) -> list[int]:
        async def work(tx: Transaction) -> list[int]:
            return [await _count_matching(tx, where) for where in filters]

        return await self._db.read(work, consistent=True)

    async def list_attempts(self, run_id: str) -> list[Attempt]:
        rows = await self._db.read(lambda tx: tx.fetch(_Q["attempts"], run_id, not_before([run_id], tx.now)))
        return [Attempt(*row) for row in rows]

    async def have_written(self, after: Mapping[str, int]) -> list[str]:
        values = (list(after), list(after.values()))
        return [row[0] for row in await self._db.read(lambda tx: tx.fetch(_Q["have_written"], *values))]

    async def request_cancel(
        self, namespace: str, run_id: str, reason: str, *, audit: Audit[State] | None = None
    ) -> State:
        async def work(tx: Transaction) -> State:
            run_in(namespace, run_id, await _find(tx, run_id))
            state = await cancel_run(tx, run_id, reason)
            if state is None:  # It may have ended since it was read.
                raise ended_already(run_in(namespace, run_id, await _find(tx, run_id)))
            return state

        return await self._db.schedule(lambda: self._db.write(audited(work, audit)))

    async def finished(self, run_ids: Collection[str]) -> list[Run]:
        ids = list(run_ids)
        return [
            run_of(row)
            for row in await self._db.read(lambda tx: tx.fetch(_Q["finished"], ids, not_before(ids, tx.now)))
        ]


async def _find(tx: Transaction, run_id: str) -> Record | None:
    return await tx.fetchrow(_Q["get"], run_id, not_before([run_id], tx.now))


async def _list_runs(tx: Transaction, where: RunFilter) -> list[Run]:
    rows = await _list_rows(tx, where, _Q)
    rows.sort(key=lambda row: str(row[0]), reverse=True)
    return [run_of(row) for row in rows[: where.limit]]


async def _count_matching(tx: Transaction, where: RunFilter) -> int:
    rows = await _list_rows(tx, where, _COUNTS)
    return min(sum(int(row[0]) for row in rows), where.limit)


async def _list_rows(tx: Transaction, where: RunFilter, queries: Mapping[str, str]) -> list[Record]:
    """Up to the limit of unfinished runs, and of finished ones; whole, or counted, as the queries have them."""
    page = (where.namespace, where.since, where.before, where.limit)
    rows: list[Record] = []
    if not where.states or not FINAL.issuperset(where.states):
        rows += await _list_active(tx, where, page, queries)
    if where.worker is None and (not where.states or not FINAL.isdisjoint(where.states)):
        is_special = any(each is not None for each in (where.key, where.late, where.took, where.submitted_by))
        counted = await _count_finished(tx, where, page) if queries is _COUNTS and not is_special else []
        rows += counted or await (_list_special if is_special else _list_finished)(tx, where, page, queries)
    return rows


async def _list_active(
    tx: Transaction, where: RunFilter, page: tuple[object, ...], queries: Mapping[str, str]
) -> list[Record]:
    """The candidates themselves if they are few; otherwise by the index of a filter, or by id if there is none."""
    if where.took is not None:
        return []  # A run that has not ended has taken no time yet.
    states, few = unfinished_states(where)
    narrow = (where.job, where.task, where.queue, where.tag, where.worker, where.region, where.submitted_by)
    asked = (*page, states, *narrow)
    if where.key is not None or where.late is not None:
        return await tx.fetch(queries["list_active_of"], *asked, await _find_special(tx, where))
    ids = await _some_active(tx, where, states, few + 1)
    if len(ids) > few:
        found = await _find_active(tx, where, states, asked)
        if found is None:
            return await tx.fetch(queries["list_active"], *asked)
        ids = found
    return await tx.fetch(queries["list_active_of"], *asked, ids) if ids else []


async def _find_special(tx: Transaction, where: RunFilter) -> list[str]:
    """The unfinished runs of a key, and those that began late: where both are asked for, those that are both."""
    keyed = {row[0] for row in await tx.fetch(_Q["keyed"], where.namespace, where.key)} if where.key else None
    if where.late is None:
        return list(keyed or ())
    late = await tx.fetch(_Q["running_late"], where.namespace, DELAYS[where.late], FEW_RUNNING)
    return [row[0] for row in late if keyed is None or row[0] in keyed]


async def _list_special(
    tx: Transaction, where: RunFilter, page: tuple[object, ...], queries: Mapping[str, str]
) -> list[Record]:
    """Finished runs of a key, or that began late, or took long, or of a submitter."""
    states = sorted(FINAL.intersection(where.states) or FINAL)
    narrow = (where.job, where.task, where.queue, where.tag, where.region)
    if where.key is not None:
        late, took = (None if each is None else DELAYS[each] for each in (where.late, where.took))
        return await tx.fetch(queries["list_of_key"], *page, states, where.key, *narrow, late, took, where.submitted_by)
    if where.late is not None:
        lengths = range(len(DELAYS) + 1) if where.took is None else [step + 1 for step in delay_steps(where.took)]
        pairs = [(step + 1, length) for step in delay_steps(where.late) for length in lengths]
        late_steps, long_steps = (list(column) for column in zip(*pairs, strict=True))
        asked = (states, late_steps, *narrow, long_steps, where.submitted_by)
        return await tx.fetch(queries["list_late"], *page, *asked)
    if where.took is not None:
        steps = [step + 1 for step in delay_steps(where.took)]
        return await tx.fetch(queries["list_long"], *page, states, steps, *narrow, where.submitted_by)
    return await tx.fetch(queries["list_of_submitter"], *page, states, where.submitted_by, *narrow)


async def _some_active(tx: Transaction, where: RunFilter, states: Sequence[State], bound: int) -> list[str]:
    """The runs in some states, up to a bound."""
    queues = ("", LAST_NAME) if where.queue is None else (where.queue, where.queue)
    return [row[0] for row in await tx.fetch(_Q["active"], where.namespace, *queues, states, bound)]


async def _find_active(
    tx: Transaction, where: RunFilter, states: Sequence[State], asked: tuple[object, ...]
) -> list[str] | None:
    """The newest that a job, task, tag or submitter fits, and running runs besides, which not every index has; None if
    the filter names none of the four."""
    of_task, of_submitter = _Q["ids_of_task"], _Q["ids_of_submitter"]
    filters = {
        _Q["ids_of_job"]: where.job,
        of_task: where.task,
        _Q["ids_of_tag"]: where.tag,
        of_submitter: where.submitted_by,
    }
    named = [query for query, value in filters.items() if value is not None]
    if not named:
        return None
    if len(named) > 1:
        (sizes,) = await tx.fetch(_Q["sizes"], where.namespace, *filters.values(), FEW_RUNS)
        named.sort(key=dict(zip(filters, sizes, strict=True)).__getitem__)
    found = [row[0] for row in await tx.fetch(named[0], *asked)]
    if named[0] in (of_task, of_submitter) and RUNNING in states:
        running = await _some_active(tx, where, [RUNNING], FEW_RUNNING + 1)
        if len(running) > FEW_RUNNING:
            return None
        found += running
    return found


async def _list_finished(
    tx: Transaction, where: RunFilter, page: tuple[object, ...], queries: Mapping[str, str]
) -> list[Record]:
    """By the index that leads to the fewest rows that do not fit."""
    states = sorted(FINAL.intersection(where.states) or FINAL)
    if where.job is not None:
        of_job = (where.job, where.task, where.queue, where.tag, where.region)
        return await tx.fetch(queries["list_of_job"], *page, states, *of_job)
    classes = await tx.fetch(_Q["classes"], where.namespace, where.queue, where.task, states)
    if not classes:
        return []
    if where.region not in (None, DEFAULT):
        return await _list_region(tx, where, page, queries, classes)
    if where.tag is not None and sum(row["runs"] for row in classes) > FEW_RUNS:
        return await _list_tagged(tx, where, page, queries, classes)
    if len(classes) > SOME_CLASSES and where.task is None:
        # A filter that fits this many classes mostly fits most runs: they are among the newest of all.
        looked_at = max(NEWEST, 4 * where.limit) if len(classes) <= MANY_CLASSES else None
        asked = (*page, states, where.queue, where.tag, looked_at, where.region)
        rows = await tx.fetch(_for_days(queries["list_finished"], tx, where), *asked)
        found = rows[0][0] if queries is _COUNTS else len(rows)
        if looked_at is None or found == where.limit:
            return rows
    first_day = max(_first_day(classes), not_before([where.since], tx.now) if where.since else 0)
    asked = (*page, *_columns(classes), first_day, where.tag, where.region)
    return await tx.fetch(_for_days(queries["list_classes"], tx, where), *asked)


def _for_days(query: str, tx: Transaction, where: RunFilter) -> str:
    """A query of runs of the last days names the first day as a literal. The others are then left out of its plan: for
    a month of days, the first plan of a session takes 40 ms, for six 12 ms."""
    first = not_before([where.since], tx.now) if where.since else 0
    return query.replace(":since", str(first if first > tx.now - RECENT else 0))


async def _list_region(
    tx: Transaction, where: RunFilter, page: tuple[object, ...], queries: Mapping[str, str], classes: Sequence[Record]
) -> list[Record]:
    """By region and class if a state, a task or a queue is asked for: a region may have no run of them."""
    if len(classes) <= MANY_CLASSES and (where.states or where.task is not None or where.queue is not None):
        asked = (*_columns(classes), _first_day(classes), where.tag, where.region)
        return await tx.fetch(queries["list_region_classes"], *page, *asked)
    states = sorted(FINAL.intersection(where.states) or FINAL)
    return await tx.fetch(queries["list_of_region"], *page, states, where.region, where.task, where.queue, where.tag)


def _columns(classes: Sequence[Record]) -> tuple[list[str], ...]:
    """The queues, tasks and states of classes."""
    return tuple([row[name] for row in classes] for name in ("queue", "task", "state"))


def _first_day(classes: Sequence[Record]) -> int:
    """From which day on there are runs of these classes."""
    return min(int(row["first_day"]) for row in classes)


async def _list_tagged(
    tx: Transaction, where: RunFilter, page: tuple[object, ...], queries: Mapping[str, str], classes: Sequence[Record]
) -> list[Record]:
    """By tag and class if a task or a queue is asked for, and all runs that fit have ended since tags have classes."""
    queues, tasks, states = _columns(classes)
    named = where.region is None and (where.task is not None or where.queue is not None)
    if named and len(classes) <= TAGGED_CLASSES:
        since = await tx.fetchval(_Q["classes_of_tags_since"])
        if since is not None and since <= _first_day(classes):
            return await tx.fetch(queries["list_tagged_classes"], *page, where.tag, queues, tasks, states)
    since = await tx.fetchval(_Q["states_of_tags_since"])
    tagged = (where.tag, sorted(set(states)), where.task, where.queue, since, where.region)
    return await tx.fetch(queries["list_tagged"], *page, *tagged)


async def _count_finished(tx: Transaction, where: RunFilter, page: tuple[object, ...]) -> list[Record]:
    """How many finished runs a filter fits, where that is known without a look at the runs; otherwise nothing."""
    states = sorted(FINAL.intersection(where.states) or FINAL)
    if where.job is not None:
        return []
    if where.region is not None:
        alone = not where.states and where.task is None and where.queue is None and where.tag is None
        return await tx.fetch(_Q["count_region"], *page, where.region) if alone and where.region != DEFAULT else []
    of_class = (where.namespace, where.queue, where.task, states)
    if where.tag is None and where.since is None and where.before is None:
        return await tx.fetch(_Q["count_classes"], *of_class)
    if where.tag is None:
        classes = await tx.fetch(_Q["classes"], *of_class)
        if len(classes) <= MANY_CLASSES:
            return await tx.fetch(_Q["count_classes_between"], *page, *_columns(classes))
    if where.tag is not None and where.task is None and where.queue is None:
        since = await tx.fetchval(_Q["states_of_tags_since"])
        return await tx.fetch(_Q["count_tagged"], *page, where.tag, states, since)
    return []
