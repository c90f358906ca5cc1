"""Recovery of lost runs, by whichever node finds them first."""

from __future__ import annotations

from mainspring.core.instants import Duration
from mainspring.core.runs.outcome import after_expiry, out_of_time, too_late
from mainspring.core.states import FINAL, State
from mainspring.store import Reaped
from mainspring.stores.postgres.claims.gates import leave_gates
from mainspring.stores.postgres.claims.lines import lock_lines_of
from mainspring.stores.postgres.ends.endings import end_unstarted, follow_postponed
from mainspring.stores.postgres.ends.reports import Endings, load_claimed
from mainspring.stores.postgres.history.cleaning import clean
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.rows.recovery import bury, find_moves, note_moved
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
        dead = await self._db.write(lambda tx: bury(tx, dead_after), patient=True)
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


async def _fail_over(tx: Transaction, dead_after: Duration, limit: int) -> int:
    moves = await find_moves(tx, dead_after, limit)
    return note_moved(tx, await tx.fetch(_Q["move"], *zip(*moves, strict=True))) if moves else 0


async def _open_gates(tx: Transaction) -> None:
    """Admit a waiting run at each gate with a free slot: the run admitted before may have no worker."""
    waiting = await tx.fetch(_Q["waiting_gates"])
    await leave_gates(tx, [(namespace, [name], False) for namespace, name in waiting])
