"""Submissions: the same request under the same key is answered alike; what is new is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import NewRun
from mainspring.store import Audit
from mainspring.stores.postgres.history.days import not_before
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.postgres.server.listener import CHANNEL
from mainspring.stores.postgres.submissions.intake import insert_runs
from mainspring.stores.postgres.submissions.paths import Path, choose_path
from mainspring.stores.rows.run_rows import IDEMPOTENCY_KEPT, fingerprint, noted, other_request, submitted
from mainspring.stores.rows.trail import audited, note
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "runs")
_encode = msgspec.json.Encoder().encode

_key_of = attrgetter("idempotency_key")
_of_run = attrgetter(
    "id", "namespace", "queue", "region", "task", "args", "options", "priority", "due_at", "expires_at", "job_id",
    "job", "fire_at", "idx", "key", "retry_of", "created_at",
)  # fmt: skip
"""What `accept_run` is given of a run."""
Key = tuple[str, str]
"""Namespace and idempotency key."""


async def accept(db: Database, runs: Sequence[NewRun], audit: Audit[list[str]] | None = None) -> list[str]:
    """Accept runs in a transaction of their own; the answer as `RunStore.submit` gives it."""
    if not runs:
        return []
    match path := choose_path(runs, db, db.clock.now(), audited=audit is not None):
        case Path.TRANSACTION:
            ids = await db.write(
                audited(partial(submit, runs=runs), audit), patient=True
            )  # Its deadline is the caller's.
            if db.on_accepted is not None:
                db.on_accepted(runs)
            return ids
        case Path.STATEMENT:
            await _accept_by_statement(db, runs)
        case Path.HAND_OVER:
            await _hand_over(db, runs[0])
        case _:
            await _accept_and_notify(db, runs[0], path)
    return [run.id for run in runs]


async def submit(tx: Transaction, runs: Sequence[NewRun]) -> list[str]:
    """Accept runs in a transaction, ours or the caller's."""
    if not any(map(_key_of, runs)):
        await insert_runs(tx, runs)
        await note(tx, noted(runs, tx.events))
        return [run.id for run in runs]
    requests: dict[Key, NewRun] = {}
    for run in runs:
        if run.idempotency_key is not None:
            first = requests.setdefault((run.namespace, run.idempotency_key), run)
            if first is not run and fingerprint(first) != fingerprint(run):
                raise other_request(run, first.id)
    answers = await _recall(tx, {key: run for key, run in requests.items() if not run.unique})
    answers |= await _join_waiting(tx, {key: run for key, run in requests.items() if run.unique})
    await insert_runs(tx, [run for run in runs if _answer(run, answers) == run.id])
    await note(tx, noted(runs, tx.events))
    return [_answer(run, answers) for run in runs]


def _answer(run: NewRun, answers: dict[Key, str]) -> str:
    return run.id if run.idempotency_key is None else answers[run.namespace, run.idempotency_key]


async def _recall(tx: Transaction, requests: dict[Key, NewRun]) -> dict[Key, str]:
    """The answer for each key: the earlier one, or the new run. The key is stored first, then looked up: of two
    submitters of a key at once, the second waits at the index for the first, and sees its answer.
    """
    answers, old = await _remember(tx, requests, tx.now, tx.now + IDEMPOTENCY_KEPT)
    for key, (known, answer) in old.items():
        if known != fingerprint(requests[key]):
            raise other_request(requests[key], answer)
        answers[key] = answer
    return answers


async def _remember(
    tx: Transaction, requests: dict[Key, NewRun], now: Instant, expires_at: Instant
) -> tuple[dict[Key, str], dict[Key, tuple[str, str]]]:
    """The keys that now stand for their requests; and of the others, which have not expired by `now`, the fingerprints
    and answers of before. The rows of all of them are locked."""
    if not requests:
        return {}, {}
    keys = sorted(requests)
    values = _columns({key: requests[key] for key in keys})
    kept = await tx.fetch(_Q["remember"], *values, now, expires_at)
    answers = {(row[0], row[1]): requests[row[0], row[1]].id for row in kept}
    old = [key for key in keys if key not in answers]
    if not old:
        return answers, {}
    rows = await tx.fetch(_Q["recall"], *zip(*old, strict=True))
    return answers, {(namespace, name): (known, answer) for namespace, name, known, answer in rows}


def _columns(requests: dict[Key, NewRun]) -> list[Sequence[str]]:
    """Namespaces, keys, fingerprints and ids, as statements take them."""
    rows = [(*key, fingerprint(run), run.id) for key, run in requests.items()]
    return list(zip(*rows, strict=True))


async def _join_waiting(tx: Transaction, requests: dict[Key, NewRun]) -> dict[Key, str]:
    """What each unique key is answered with: the run that waits under it, or the new one. A run that is joined is not
    claimed before the commit."""
    expires_at = max([tx.now, *(run.due_at for run in requests.values())]) + IDEMPOTENCY_KEPT
    answers, old = await _remember(tx, requests, 0, expires_at)  # A run may wait longer than answers are kept.
    if not old:
        return answers
    ids = [answer for _, answer in old.values()]
    waiting = {row[0] for row in await tx.fetch(_Q["lock_waiting"], ids)}
    for key, (known, answer) in old.items():
        if answer in waiting and known != fingerprint(requests[key]):
            raise other_request(requests[key], answer)
        answers[key] = answer if answer in waiting else requests[key].id
    if replaced := {key: requests[key] for key in old if answers[key] == requests[key].id}:
        await tx.run(_Q["replace_answers"], *_columns(replaced), expires_at)
    return answers


async def _accept_by_statement(db: Database, runs: Sequence[NewRun]) -> None:
    now, fresh = db.clock.now(), list({run.id: run for run in reversed(runs)}.values())[::-1]
    events = _encode([submitted(run) for run in fresh]).decode()
    since = not_before([run.id for run in fresh], now)
    if await db.alone(_Q["insert"], _encode(fresh).decode(), since, events, len(fresh), now):
        _tell(db, runs)


async def _accept_and_notify(db: Database, run: NewRun, path: Path) -> None:
    """Workers are woken before the commit is durable: by the server or, if the store has a listener, by this process. A
    quiet submission wakes them after it."""
    heard = partial(db.on_accepted, [run]) if path is Path.CALL_BACK and db.on_accepted is not None else None
    channel = {Path.NOTIFY: CHANNEL, Path.QUIET: ""}.get(path)
    await db.alone(_Q["accept_run"], *_values(run, db.clock.now()), channel, "", None, False, heard=heard)
    if path is Path.QUIET:
        db.announce()


async def _hand_over(db: Database, run: NewRun) -> None:
    """To a worker that has offered to take it; if there is none, others are notified as of any other run."""
    handed = True

    def heard() -> None:
        nonlocal handed
        handed = False
        db.handover.missed()
        _tell(db, [run])

    values = _values(run, db.clock.now())
    await db.alone(_Q["accept_run"], *values, None, None, db.clock.given(), True, heard=heard)
    if handed:
        db.handover.done()


def _tell(db: Database, runs: Sequence[NewRun]) -> None:
    db.announce() if db.on_accepted is None else db.on_accepted(runs)


def _values(run: NewRun, now: Instant) -> tuple[object, ...]:
    event = _encode([submitted(run)]).decode()
    return (*_of_run(run), not_before([run.id], now), event, now, run.noted_for, run.request_id)
