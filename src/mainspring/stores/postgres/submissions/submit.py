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
from mainspring.stores.postgres.history.trail import audited, note
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.postgres.submissions.intake import insert_runs, is_plain
from mainspring.stores.rows.run_rows import IDEMPOTENCY_KEPT, fingerprint, noted, other_request, submitted
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "runs")
_encode = msgspec.json.Encoder().encode

SOME = 64
"""More runs than this are worth statements that share what runs have in common."""
MOST_HANDED = 7_500
"""Characters of arguments and options: more surely do not fit into one message of the server's."""
_key_of = attrgetter("idempotency_key")
Key = tuple[str, str]
"""Namespace and idempotency key."""


async def accept(db: Database, runs: Sequence[NewRun], audit: Audit[list[str]] | None = None) -> list[str]:
    """Accept runs in a transaction of their own; the answer as `RunStore.submit` gives it."""
    if not runs:
        return []
    short = len(runs) <= SOME and audit is None
    if short and all(run.idempotency_key is None and is_plain(run) for run in runs):
        return await (_accept_one(db, runs[0]) if len(runs) == 1 else _accept_some(db, runs))
    work = audited(lambda tx: submit(tx, runs), audit)
    ids = await db.write(work, patient=True)  # Its deadline is the caller's.
    if db.herald is not None:
        db.herald(runs)
    return ids


async def submit(tx: Transaction, runs: Sequence[NewRun]) -> list[str]:
    """Accept runs in a transaction, whoever's it is."""
    if not any(map(_key_of, runs)):
        await insert_runs(tx, runs)
        await note(tx, noted(runs, tx.events))
        return [run.id for run in runs]
    requests: dict[Key, NewRun] = {}
    for run in runs:
        if run.idempotency_key is not None:
            first = requests.setdefault((run.namespace, run.idempotency_key), run)
            if first is not run and fingerprint(first) != fingerprint(run):
                raise other_request(run.idempotency_key, first.id)
    answers = await _recall(tx, requests)
    await insert_runs(tx, [run for run in runs if _answer(run, answers) == run.id])
    await note(tx, noted(runs, tx.events))
    return [_answer(run, answers) for run in runs]


def _answer(run: NewRun, answers: dict[Key, str]) -> str:
    return run.id if run.idempotency_key is None else answers[run.namespace, run.idempotency_key]


async def _recall(tx: Transaction, requests: dict[Key, NewRun]) -> dict[Key, str]:
    """What each key is answered with: as before, or with the run that it now stands for.

    Kept first, then looked up: of two who bring a key at once, the second waits at the index for the first, and sees
    its answer.
    """
    keys = sorted(requests)
    namespaces, names = zip(*keys, strict=True)
    prints = [fingerprint(requests[key]) for key in keys]
    ids = [requests[key].id for key in keys]
    kept = await tx.fetch(_Q["remember"], namespaces, names, prints, ids, tx.now, tx.now + IDEMPOTENCY_KEPT)
    answers = {(row[0], row[1]): requests[row[0], row[1]].id for row in kept}
    old = [key for key in keys if key not in answers]
    if old:
        namespaces, names = zip(*old, strict=True)
        for namespace, name, known, answer in await tx.fetch(_Q["recall"], namespaces, names):
            if known != fingerprint(requests[namespace, name]):
                raise other_request(name, answer)
            answers[namespace, name] = answer
    return answers


async def _accept_some(db: Database, runs: Sequence[NewRun]) -> list[str]:
    """Submissions that came at the same time: still one statement, one journey."""
    now, fresh = db.clock.now(), list({run.id: run for run in reversed(runs)}.values())[::-1]
    events = _encode([submitted(run) for run in fresh]).decode()
    rows = _encode(fresh).decode()
    if await db.alone(_Q["accept_some"], rows, not_before([run.id for run in fresh], now), events, len(fresh), now):
        _tell(db, runs)
    return [run.id for run in runs]


async def _accept_one(db: Database, run: NewRun) -> list[str]:
    """The most frequent submission: one statement, one journey. Those that come thick and fast are not told one by one,
    and take the way that costs least."""
    now = db.clock.now()
    values = _values(run, now)
    if not db.server.pooled and _may_be_handed(run, now) and db.handing.is_worth_it():
        await _hand_over(db, run, values)
        return [run.id]
    heard = partial(db.herald, [run]) if db.herald is not None and not db.server.pooled else None
    teller = db.may_tell() if db.herald is None else None
    if heard is None and teller is None:
        if await db.alone(_Q["accept_one"], *values):
            _tell(db, [run])
    else:
        await db.alone(_Q["accept_and_tell"], *values, *(teller or (None, None)), heard=heard)
    return [run.id]


async def _hand_over(db: Database, run: NewRun, values: tuple[object, ...]) -> None:
    """To a worker that has offered to take it; if none has, others are told of it as of any other."""
    handed = True

    def heard() -> None:
        nonlocal handed
        handed = False
        db.handing.missed()
        _tell(db, [run])

    await db.alone(_Q["accept_and_hand"], *values, None, None, db.clock.given(), heard=heard)
    if handed:
        db.handing.done()


def _may_be_handed(run: NewRun, now: Instant) -> bool:
    """Whether a worker could begin with it at once."""
    return (
        run.due_at <= now
        and run.expires_at is None
        and run.job_id is None
        and len(run.args) + len(run.options) <= MOST_HANDED
    )


def _tell(db: Database, runs: Sequence[NewRun]) -> None:
    db.announce() if db.herald is None else db.herald(runs)


def _values(run: NewRun, now: Instant) -> tuple[object, ...]:
    return (
        run.id,
        run.namespace,
        run.queue,
        run.region,
        run.task,
        run.args,
        run.options,
        run.priority,
        run.due_at,
        run.expires_at,
        run.job_id,
        run.job,
        run.fire_at,
        run.idx,
        run.key,
        run.retry_of,
        run.created_at,
        not_before([run.id], now),
        _encode([submitted(run)]).decode(),
        now,
        run.noted_for,
        run.request_id,
    )
