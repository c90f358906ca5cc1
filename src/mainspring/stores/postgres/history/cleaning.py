"""Retention, in steps: each kind of row in its own transaction, so that none delays the others."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.instants import DAY, Duration
from mainspring.core.states import FAILED, SUCCEEDED
from mainspring.store import MOST_ENDED_WORKERS
from mainspring.stores.postgres.history.days import day_of
from mainspring.stores.postgres.history.partitions import (
    day_of_partition,
    drop_partitions,
    index_tails,
    make_partitions,
)
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.rows.writes import forget, forget_tallies
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "maintenance")
_WORKERS_KEPT: Duration = DAY
_ANY_LEFT = "SELECT EXISTS (SELECT FROM mainspring.history_rest WHERE finished_at < $1)"


async def clean(db: Database, keep_runs: Duration, keep_firings: Duration, keep_events: Duration, limit: int) -> int:
    """See `MaintenanceStore.clean`. Partitions are made ahead and dropped whole; rows outside of them are deleted."""
    await make_partitions(db)
    gone = await drop_partitions(db, db.clock.now() - keep_runs)
    await index_tails(db)
    gone += await db.write(lambda tx: _forget_old(tx, keep_runs, limit), patient=True)
    await db.write(lambda tx: _tidy_tallies(tx, keep_runs, limit), patient=True)
    for namespace, job, keep_succeeded, keep_failed in await db.read(lambda tx: tx.fetch(_Q["limited_jobs"])):
        for state, keep in ((SUCCEEDED, keep_succeeded), (FAILED, keep_failed)):
            if keep is not None:
                gone += await _limit(db, (namespace, job, state), keep, limit)
    gone += await db.write(lambda tx: tx.run(_Q["forget_firings"], tx.now - keep_firings, limit), patient=True)
    gone += await db.write(lambda tx: tx.run(_Q["forget_submissions"], tx.now, limit), patient=True)
    gone += await db.write(
        lambda tx: tx.run(_Q["forget_workers"], tx.now - _WORKERS_KEPT, MOST_ENDED_WORKERS), patient=True
    )
    gone += await db.write(lambda tx: forget(tx, keep_firings, keep_runs, keep_events, limit), patient=True)
    gone += await db.write(lambda tx: forget_tallies(tx, keep_firings, keep_runs, limit), patient=True)
    return gone + await db.write(lambda tx: _forget_gates(tx, limit), patient=True)


async def _forget_old(tx: Transaction, keep_runs: Duration, limit: int) -> int:
    before = tx.now - keep_runs
    runs = [row[0] for row in await tx.fetch(_Q["old_history"], before, limit)]
    await _forget_rest(tx, runs)
    await tx.run(_Q["old_tags"], before, limit)
    await tx.run(_Q["old_attempts"], before, limit)
    await tx.run(_Q["old_logs"], before, limit)
    return len(runs)


async def _tidy_tallies(tx: Transaction, keep_runs: Duration, limit: int) -> None:
    await tx.run(_Q["add_up_tallies"], day_of(tx.now) - DAY, limit)
    before = day_of(tx.now - keep_runs)
    if not await tx.fetchval(_ANY_LEFT, before):
        days = [day_of_partition(row[1]) for row in await tx.fetch(_Q["partitions"]) if row[0] == "history"]
        await tx.run(_Q["forget_tallies"], before, [day for day in days if day is not None], limit)


async def _limit(db: Database, which: tuple[str, str, str], keep: int, limit: int) -> int:
    async def work(tx: Transaction) -> int:
        runs = [row[0] for row in await tx.fetch(_Q["beyond_limit"], *which, limit, keep)]
        await _forget_rest(tx, runs)
        return len(runs)

    return await db.write(work, patient=True)


async def _forget_rest(tx: Transaction, run_ids: Sequence[str]) -> None:
    if run_ids:
        await tx.run(_Q["forget_attempts"], run_ids)
        await tx.run(_Q["forget_logs"], run_ids)


async def _forget_gates(tx: Transaction, limit: int) -> int:
    """Gates are locked first, then read again. A gate that a submission is about to use cannot be locked."""
    idle = await tx.fetch(_Q["idle_gates"], limit)
    if not idle:
        return 0
    return await tx.run(_Q["forget_gates"], [row[0] for row in idle], [row[1] for row in idle])
