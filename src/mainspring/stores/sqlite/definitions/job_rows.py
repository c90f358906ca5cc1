"""Looking up jobs and calendars."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.core.model import Job
from mainspring.core.schedules.calendars import Calendar
from mainspring.stores.rows.job_rows import check_calendars_known, read_calendars, read_job, unknown_jobs
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "jobs")


def find_job(tx: Transaction, namespace: str, name: str) -> Job:
    """By name or id; NotFound otherwise."""
    row = tx.execute(_Q["find"], (namespace, name)).fetchone()
    if row is None:
        raise unknown_jobs(namespace, [name])
    return read_job(row)


def load_calendars(tx: Transaction, namespace: str) -> dict[str, Calendar]:
    """All calendars of a namespace by name."""
    return read_calendars(tx.execute(_Q["calendars"], (namespace,)))


def calendars_for(tx: Transaction, namespace: str, jobs: Iterable[Job]) -> dict[str, Calendar]:
    """The calendars of a namespace, if any of the jobs obeys one; all that they name must exist."""
    named = dict.fromkeys(name for job in jobs for name in job.policy.calendars)
    if not named:
        return {}
    calendars = load_calendars(tx, namespace)
    check_calendars_known(namespace, named, calendars)
    return calendars
