"""Fires past instants that had no run when they were due."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.model import Job, NewRun
from mainspring.core.planning.backfill import in_turn
from mainspring.core.planning.plans import PlannedFiring
from mainspring.stores.rows.job_rows import check_editable, firing_event, read_jobs, to_json
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.submissions.intake import insert_runs

_Q = load_queries("sqlite", "firings")
_JOBS = load_queries("sqlite", "jobs")


def backfill(tx: Transaction, job: Job, firings: Sequence[PlannedFiring]) -> list[str]:
    """See `store.JobStore.backfill`."""
    found = next(iter(read_jobs(tx.execute(_JOBS["by_id"], (to_json([job.id]),)))), None)
    check_editable(found, job, job.version)
    instants = [(job.id, firing.fire_at) for firing in firings]
    tx.executemany(_Q["recede"], instants)
    tx.executemany(_Q["make_room"], instants)
    fresh: list[NewRun] = []
    for firing in firings:
        written = [run for run in firing.runs if _record(tx, run)]
        if written:
            tx.events.append(firing_event(tx.now, "fired", job, firing.fire_at, "", len(written)))
        fresh += written
    unfinished = {
        region: [row[0] for row in tx.execute(_Q["unfinished"], (job.id, region))] for region in job.policy.regions
    }
    if fresh:
        insert_runs(tx, in_turn(job, fresh, unfinished))
    return [run.id for run in fresh]


def _record(tx: Transaction, run: NewRun) -> bool:
    row = (run.job_id, run.fire_at, run.region, run.idx, "backfill", "fired", "", run.id, None, None, 1, tx.now, None)
    return bool(tx.execute(_Q["record"], row).rowcount)
