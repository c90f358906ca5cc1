"""Claims, heartbeats and output: what workers ask of the store. What they report is in `reports`."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from itertools import product

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Event, LogLine, Progress, RunOptions, Worker
from mainspring.core.runs.outcome import is_suspect, too_late
from mainspring.core.runs.priority import PRIORITIES, Ordering, rank
from mainspring.core.text import clean
from mainspring.store import Audit, Outlook, Renewal, StandingClaim
from mainspring.stores.rows.worker_rows import worker_values
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import end_unstarted
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.history.trail import audited
from mainspring.stores.sqlite.submissions.inbox import count_accepted, is_waiting, start_accepted, take_in

_Q = load_queries("sqlite", "work")
_PAUSED = load_queries("sqlite", "insight")["paused"]
_encode = msgspec.json.Encoder().encode
_names = msgspec.json.Decoder(tuple[str, ...])
_options = msgspec.json.Decoder(RunOptions)
_ClaimRow = tuple[str, int, str, str, str, int, int, int, Instant, str, str | None, Instant | None, int, Instant]
"""A claim, field by field: with their names it would take twice as long."""
_read_claims = msgspec.json.Decoder(list[_ClaimRow]).decode
_read_names = msgspec.json.Decoder(list[str | None]).decode
_read_found = msgspec.json.Decoder(list[tuple[Instant, int, int]]).decode
_read_earliest = msgspec.json.Decoder(list[Instant | None]).decode
_ROUNDS = 50
_WINDOW = 500
"""After some candidates had to wait at gates, a claim reads further candidates: batch size, number of reads."""

_READ_AT_ONCE = 250
"""The most claims that are read as one text. That is faster than row by row; the text stays short."""

Place = tuple[str, str, str]
"""Namespace, queue, region."""
Candidate = tuple[int, int, int]
"""Rank (or what orders like it), seq, and whether it is special."""


class Claiming:
    """See `store.WorkStore`."""

    _db: Database

    async def register(self, worker: Worker, *, audit: Audit[None] | None = None) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(_Q["register"], worker_values(worker, tx))
            kind = {"active": "worker.started", "draining": "worker.draining"}.get(worker.state, "worker.stopped")
            tx.events.append(Event(kind, tx.now, worker.namespace, worker=worker.id))

        await self._db.write(audited(work, audit), promised=audit is not None, quick=True)

    async def claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        return await self._db.write(
            lambda tx: _claim(tx, worker, limit, ttl, ordering, ahead), promised=False, quick=True, takes_in=True
        )

    def leave_claim(self, standing: StandingClaim | None) -> None:
        if standing is None or standing.limit <= 0:
            self._db.standing = None
            return
        worker, limit, ttl, ordering, take = standing
        self._db.standing = (lambda tx: _start_if_alone(tx, without_paused(tx, worker), limit, ttl, ordering), take)

    async def next_due(self, worker: Worker) -> Instant | None:
        def work(tx: Transaction) -> Instant | None:
            places = _places(without_paused(tx, worker))
            found = [due_at for place in places for due_at in _find_earliest(tx, worker, place).values()]
            return min(found, default=None)

        return await self._db.read(work, quick=True)

    async def look(self, worker: Worker, *, idle: bool = False, fresh: bool = True) -> Outlook:
        return Outlook(await self.next_due(worker))

    async def renew(self, worker: Worker, claims: Collection[tuple[str, int]], ttl: Duration) -> Renewal:
        def work(tx: Transaction) -> Renewal:
            beats = tx.execute(_Q["heartbeat"], (tx.now, len(claims), worker.id)).fetchall()
            pairs = _encode(list(claims)).decode()
            rows = tx.execute(_Q["renew"], (tx.now + ttl, pairs, worker.id)).fetchall() if claims else []
            held = frozenset((run_id, token) for run_id, token, _, _ in rows)
            cancels = {run_id: reason for run_id, _, requested, reason in rows if requested is not None}
            return Renewal(held, cancels, drain=any(since is not None for (since,) in beats))

        return await self._db.write(work, promised=False, quick=True)

    async def cancels(self, run_ids: Collection[str]) -> dict[str, str]:
        ids = _encode(list(run_ids)).decode()
        return dict(await self._db.read(lambda tx: tx.execute(_Q["cancels"], (ids,)).fetchall(), quick=True))

    async def record(self, lines: Sequence[LogLine], progress: Sequence[Progress]) -> None:
        def work(tx: Transaction) -> None:
            tx.executemany(
                _Q["add_log"], [(line.run_id, line.attempt, line.at, line.stream, clean(line.text)) for line in lines]
            )
            tx.executemany(
                _Q["set_progress"], [(mark.fraction, clean(mark.note), mark.run_id, mark.token) for mark in progress]
            )

        await self._db.write(work, promised=False, quick=True)


def without_paused(tx: Transaction, worker: Worker) -> Worker:
    """The worker, with those of its queues that are not paused."""
    paused = {row[0] for row in tx.execute(_PAUSED, (worker.namespace,))}
    if not paused:
        return worker
    return msgspec.structs.replace(worker, queues=tuple(queue for queue in worker.queues if queue not in paused))


def _claim(
    tx: Transaction, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, ahead: Duration
) -> list[Claim]:
    """Rounds, because candidates may turn out to have to wait at a gate, and others behind them not."""
    claims: list[Claim] = []
    worker = without_paused(tx, worker)
    if is_waiting(tx.connection):
        if worker.priorities == PRIORITIES and (started := _start_if_alone(tx, worker, limit, ttl, ordering)):
            return started
        take_in(tx)
    for number in range(_ROUNDS):
        wanted = limit - len(claims)
        window = wanted if number == 0 else max(wanted, _WINDOW)
        found = _candidates(tx, worker, window, ordering, ahead)
        chosen, done = look_closer(tx, found, wanted, first=not claims)
        if chosen:
            claims += take(tx, worker, chosen, tx.now + ttl)
        if done or len(found) < window or len(claims) >= limit:
            break
    return claims


def _start_if_alone(tx: Transaction, worker: Worker, limit: int, ttl: Duration, ordering: Ordering) -> list[Claim]:
    """Claim what is in the inbox, if this worker could start all of it at once and nothing stands in the queue."""
    there, fitting, queued = count_accepted(tx, worker)
    if not there or not there == fitting <= limit or (queued and _candidates(tx, worker, 1, ordering)):
        return []
    claims = start_accepted(tx, worker, tx.now + ttl)
    return sorted(claims, key=lambda claim: rank(claim.priority, claim.due_at, ordering))


def _candidates(
    tx: Transaction, worker: Worker, limit: int, ordering: Ordering, ahead: Duration = 0
) -> list[Candidate]:
    """The best runs that this worker may take, at most `limit`: those that are due, and those that will be in a moment
    (`ahead`) unless they are special. Those of tasks that no worker here knows are passed over: another worker may know
    them."""
    places, tasks, until = _places(worker), _encode(worker.tasks).decode(), tx.now + ahead
    if len(places) == 1 and ordering == "strict" and not ahead:
        return _find(tx, _encode(worker.priorities).decode(), places[0], (until, tasks, limit))
    earliest = {place: _find_earliest(tx, worker, place) for place in places}
    found: list[Candidate] = []
    for priority in worker.priorities:
        for place in places:
            if earliest[place].get(priority, until + 1) <= until:
                rows = _find(tx, f"[{priority}]", place, (until, tasks, limit))
                found += [
                    (rank(priority, due_at, ordering), seq, special)
                    for due_at, seq, special in rows
                    if due_at <= tx.now or not special
                ]
        if len(found) >= limit and ordering == "strict":
            break
    found.sort()
    return found[:limit]


def _places(worker: Worker) -> list[Place]:
    return [(worker.namespace, queue, region) for queue, region in product(worker.queues, worker.regions)]


def _find_earliest(tx: Transaction, worker: Worker, place: Place) -> dict[int, Instant]:
    """When the earliest run of each priority is due. Mostly there are runs of a few, and to look for due ones of all
    the others too would cost several times as much."""
    priorities, tasks = _encode(worker.priorities).decode(), _encode(worker.tasks).decode()
    found = _read_earliest(tx.execute(_Q["earliest"], (priorities, *place, tasks)).fetchone()[0])
    pairs = zip(worker.priorities, found, strict=True)
    return {priority: due_at for priority, due_at in pairs if due_at is not None}


def _find(tx: Transaction, priorities: str, place: Place, asked: tuple[Instant, str, int]) -> list[Candidate]:
    return _read_found(tx.execute(_Q["candidates"], (priorities, *place, *asked)).fetchone()[0])


def look_closer(tx: Transaction, found: Sequence[Candidate], wanted: int, *, first: bool) -> tuple[list[int], bool]:
    """The candidates that may be claimed now; and whether the claim ends here, because a run that was lost before
    is given alone."""
    chosen: list[int] = []
    for _, seq, special in found:
        if len(chosen) >= wanted:
            break
        if not special:
            chosen.append(seq)
            continue
        run_id, namespace, gates, losses, options, expires_at = tx.execute(_Q["look_closer"], (seq,)).fetchone()
        if expires_at is not None and expires_at < tx.now:
            end_unstarted(tx, [(run_id, too_late(expires_at))])
            continue
        alone = losses > 0 and is_suspect(losses, _options.decode(options))
        if alone and (chosen or not first):
            return chosen, True
        if gates is None or _enter_gates(tx, namespace, _names.decode(gates), seq):
            chosen.append(seq)
            if alone:
                return chosen, True
    return chosen, False


def _enter_gates(tx: Transaction, namespace: str, names: Sequence[str], seq: int) -> bool:
    for name in names:
        if tx.execute(_Q["gate_free"], (namespace, name)).fetchone()[0] <= 0:
            tx.execute(_Q["block_at_gate"], (name, seq))
            return False
    for name in names:
        tx.execute(_Q["enter_gate"], (namespace, name))
    return True


def take(tx: Transaction, worker: Worker, chosen: Sequence[int], until: Instant) -> list[Claim]:
    """Claim runs that were chosen."""
    tx.execute(_Q["take"], (worker.id, until, tx.now, _encode(chosen).decode()))
    claims: list[Claim] = []
    for start in range(0, len(chosen), _READ_AT_ONCE):
        claims += _read_taken(tx, worker, chosen[start : start + _READ_AT_ONCE])
    return claims


def _read_taken(tx: Transaction, worker: Worker, seqs: Sequence[int]) -> list[Claim]:
    try:
        taken, jobs, queues = tx.execute(_Q["taken"], (_encode(seqs).decode(),)).fetchone()
    except sqlite3.DataError:  # Large arguments: together they are longer than a text may be.
        if len(seqs) == 1:
            raise
        half = len(seqs) // 2
        return _read_taken(tx, worker, seqs[:half]) + _read_taken(tx, worker, seqs[half:])
    claims = [Claim(*row) for row in _read_claims(taken)]
    tx.events += [
        Event("run.running", claim.due_at + late, claim.namespace, claim.run_id, job_id, claim.job, claim.task,
              worker.id, claim.fire_at, claim.attempt + 1, priority=claim.priority, late=late, queue=queue)
        for claim, job_id, queue in zip(claims, _read_names(jobs), _read_names(queues), strict=True)
        for late in (max(tx.now - claim.due_at, 0),)
    ]  # fmt: skip
    return claims
