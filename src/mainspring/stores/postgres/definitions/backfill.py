"""Fires past instants that had no run when they were due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mainspring.core.model import Job, NewRun
from mainspring.core.planning.backfill import in_turn
from mainspring.core.planning.plans import PlannedFiring
from mainspring.stores.postgres.definitions.job_rows import hold_jobs
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.postgres.submissions.intake import insert_runs
from mainspring.stores.rows.job_rows import check_editable, firing_event
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "firings")


async def backfill(tx: Transaction, job: Job, firings: Sequence[PlannedFiring]) -> list[str]:
    """See `store.JobStore.backfill`. While the job is locked, no other transaction records or judges its firings."""
    held = await hold_jobs(tx, [job.id])
    check_editable(held[0] if held else None, job, job.version)
    instants = [firing.fire_at for firing in firings]
    await tx.run(_Q["recede"], job.id, instants)
    await tx.run(_Q["make_room"], job.id, instants)
    fresh = await _record(tx, [run for firing in firings for run in firing.runs])
    counts: dict[int, int] = defaultdict(int)
    unfinished: dict[str, list[str]] = defaultdict(list)
    for run in fresh:
        counts[run.fire_at or 0] += 1
    for _, region, run_id in await tx.fetch(_Q["unfinished"], [job.id]):
        unfinished[region].append(run_id)
    tx.events += [firing_event(tx.now, "fired", job, instant, "", count) for instant, count in counts.items()]
    if fresh:
        await insert_runs(tx, in_turn(job, fresh, unfinished))
    return [run.id for run in fresh]


async def _record(tx: Transaction, runs: Sequence[NewRun]) -> list[NewRun]:
    """Insert rows of the ledger; returns the runs whose instant had none."""
    if not runs:
        return []
    rows = [
        (run.job_id, run.fire_at, run.region, run.idx, "backfill", "fired", "", run.id, None, None, 1, tx.now, None)
        for run in runs
    ]
    written = {
        tuple(row) for row in await tx.fetch(_Q["record"], *[list(column) for column in zip(*rows, strict=True)])
    }
    return [run for run in runs if (run.job_id, run.fire_at, run.region, run.idx) in written]
