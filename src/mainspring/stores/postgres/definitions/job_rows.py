"""Looking up jobs and calendars, and the order of locks for changes of jobs.

First the counter of changes (`lock_changes`), then rows of jobs in order of id. So all editors of jobs take turns; one
that fires meets them only at the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from mainspring.core.model import Job
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.rows.job_rows import read_jobs
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "jobs")


async def lock_changes(tx: Transaction) -> None:
    """No other transaction changes jobs, or makes an `after` job due, until this one has ended."""
    await tx.fetchval(_Q["lock_changes"])


async def mark_changed(tx: Transaction, ids: Iterable[str]) -> None:
    """Let planners know of a change of these jobs."""
    await tx.run(_Q["mark_changed"], list(ids))
    tx.changed = True


async def hold_jobs(tx: Transaction, ids: Collection[str]) -> list[Job]:
    """These jobs as they are now, locked: no other transaction fires or changes them until this one has ended."""
    return read_jobs(await tx.fetch(_Q["hold"], list(ids))) if ids else []
