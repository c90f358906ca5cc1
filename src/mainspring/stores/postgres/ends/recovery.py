"""Recovery of lost runs, by whichever node finds them first."""

from __future__ import annotations

from mainspring.core.instants import Duration
from mainspring.core.model import Event, Worker
from mainspring.core.runs.outcome import after_expiry, out_of_time, too_late
from mainspring.core.runs.regions import MOST_PAGES, WaitingRun, fail_over
from mainspring.core.states import FINAL, State
from mainspring.store import Reaped
from mainspring.stores.postgres.claims.gates import leave_gates
from mainspring.stores.postgres.claims.lines import lock_lines_of
from mainspring.stores.postgres.ends.endings import end_unstarted, follow_postponed
from mainspring.stores.postgres.ends.reports import Endings, load_claimed
from mainspring.stores.postgres.history.cleaning import clean
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "maintenance")


class Maintenance:
    """See `store.MaintenanceStore`."""

    _db: Database

    async def recover(self, dead_after: Duration, limit: int) -> Reaped:
        # A read first: most passes find nothing, and must not cost a commit.
        looked = await self._db.read(lambda tx: tx.fetchrow(_Q["anything"], tx.given, tx.now, dead_after))
        if looked is None or not looked[0]:
            return Reaped(0, 0, (), idle=looked is not None and looked[1])
        await self._db.end_suspended()
        lost = await self._db.write(lambda tx: _recover_lost(tx, limit), patient=True)
        expired = await self._db.write(lambda tx: _end_late(tx, limit), patient=True)
        dead = await self._db.write(lambda tx: _bury(tx, dead_after), patient=True)
        await self._db.write(_open_gates, patient=True)
        moved = await self._db.write(lambda tx: _fail_over(tx, dead_after, limit), patient=True)
        postponed = await self._db.write(follow_postponed, patient=True)
        ended = tuple(state for state in lost if state in FINAL)
        return Reaped(len(lost), expired, dead, moved=moved, ended=ended, postponed=postponed)

    async def clean(self, keep_runs: Duration, keep_firings: Duration, keep_events: Duration, limit: int) -> int:
        return await clean(self._db, keep_runs, keep_firings, keep_events, limit)


async def _recover_lost(tx: Transaction, limit: int) -> list[State]:
    """End or requeue runs whose claims expired; returns the states they go to. Takes locks in the order of reports.
    Runs that another node recovers at this moment are left to that node."""
    found = [row[0] for row in await tx.fetch(_Q["expired"], tx.given, limit)]
    if not found:
        return []
    await lock_lines_of(tx, found)
    ours = [row[0] for row in await tx.fetch(_Q["lock_expired"], found, tx.given)]
    claimed = await load_claimed(tx, ours)
    endings, states = Endings(tx), []
    for run in claimed.values():
        verdict, report = after_expiry(run, tx.now)
        endings.add(run, verdict, report, losses=1)
        states.append(verdict.state)
    await endings.apply()
    return states


async def _end_late(tx: Transaction, limit: int) -> int:
    """End runs that wait although their time is over; how many."""
    over = await tx.fetch(_Q["out_of_time"], tx.now, limit)
    ended = await end_unstarted(tx, [(run_id, out_of_time(*row)) for run_id, *row in over])
    overdue = await tx.fetch(_Q["too_late"], tx.now, limit)
    return ended + await end_unstarted(tx, [(run_id, too_late(expires_at)) for run_id, expires_at in overdue])


async def _bury(tx: Transaction, dead_after: Duration) -> tuple[str, ...]:
    rows = await tx.fetch(_Q["silent"], tx.given, dead_after)
    tx.events += [Event("worker.dead", tx.now, namespace, worker=worker) for worker, namespace in rows]
    return tuple(worker for worker, _ in rows)


async def _fail_over(tx: Transaction, dead_after: Duration, limit: int) -> int:
    """Move runs that their region does not execute to another region."""
    moves, place = [], (0, "")
    rows = await tx.fetch(_Q["live_workers"], tx.given, dead_after)
    workers = [
        Worker(id=worker, namespace=namespace, queues=tuple(queues), regions=tuple(regions), tasks=tuple(tasks),
               concurrency=concurrency, running=running)
        for worker, namespace, queues, regions, tasks, concurrency, running in rows
    ]  # fmt: skip
    for _ in range(MOST_PAGES):
        found = [WaitingRun(*row) for row in await tx.fetch(_Q["stranded"], tx.now, *place, limit)]
        moves += [move for run in found if (move := fail_over(run, workers, tx.now)) is not None]
        if len(found) < limit or len(moves) >= limit:
            break
        place = (found[-1].due_at, found[-1].id)
    if not moves:
        return 0
    moved = await tx.fetch(_Q["move"], *zip(*moves, strict=True))
    for run_id, namespace, job_id, job, task, fire_at, reason in moved:
        tx.events.append(Event("run.moved", tx.now, namespace, run_id, job_id, job, task, None, fire_at, reason=reason))
    tx.changed = bool(moved) or tx.changed
    return len(moved)


async def _open_gates(tx: Transaction) -> None:
    """Admit a waiting run at each gate with a free slot: the run admitted before may have no worker."""
    waiting = await tx.fetch(_Q["waiting_gates"])
    await leave_gates(tx, [(namespace, [name], False) for namespace, name in waiting])
