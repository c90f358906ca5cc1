"""Jobs, firings and calendars as rows of the database, there and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from mainspring.core.calendars import Calendar
from mainspring.core.model import Event, Firing, Job, JobPolicy, RunOptions
from mainspring.core.triggers import Trigger
from mainspring.errors import InvalidInput, NotFound
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.database import Transaction

_Q = load_queries("sqlite", "jobs")
_encode = msgspec.json.Encoder().encode
_triggers: msgspec.json.Decoder[Trigger] = msgspec.json.Decoder(Trigger)
_policies = msgspec.json.Decoder(JobPolicy)
_options = msgspec.json.Decoder(RunOptions)
_calendars = msgspec.json.Decoder(Calendar)

Row = tuple[Any, ...]


# Thousands of jobs share a handful of policies: decoding each text once makes a planner's load several times faster.
@lru_cache(maxsize=4096)
def _policy(text: str) -> JobPolicy:
    return _policies.decode(text)


@lru_cache(maxsize=4096)
def _run_options(text: str) -> RunOptions:
    return _options.decode(text)


def to_json(value: object) -> str:
    """Text for a JSON column or for `json_each`."""
    return _encode(value).decode()


def read_job(row: Row) -> Job:
    """A row as the queries of `jobs.sql` select it: in the order of Job's fields."""
    values = list(row)
    values[3] = _triggers.decode(row[3])
    values[11] = _policy(row[11])
    values[12] = _run_options(row[12])
    return Job(*values)


def read_jobs(rows: Iterable[Row]) -> list[Job]:
    """Rows of jobs, in their order."""
    return [read_job(row) for row in rows]


def job_values(job: Job, change: int) -> dict[str, object]:
    """What is stored of a job, by column."""
    values = msgspec.structs.asdict(job)
    values["trigger"] = to_json(job.trigger)
    values["policy"] = to_json(job.policy)
    values["options"] = to_json(job.options)
    values["changed"] = change
    return values


def read_firing(row: Row) -> Firing:
    """A row of the ledger, in the order of Firing's fields."""
    return Firing(**dict(zip(Firing.__struct_fields__, row, strict=True)))


def job_event(kind: str, job: Job, tx: Transaction, reason: str = "") -> Event:
    """Something that happened to a job."""
    return Event(kind, tx.now, job.namespace, None, job.id, job.name, job.task, reason=reason)


def find_job(tx: Transaction, namespace: str, name: str) -> Job:
    """By name or id; NotFound otherwise."""
    row = tx.execute(_Q["find"], (namespace, name)).fetchone()
    if row is None:
        raise unknown_jobs(namespace, [name])
    return read_job(row)


def unknown_jobs(namespace: str, names: Collection[str]) -> NotFound:
    """The error that names all jobs that do not exist."""
    shown = ", ".join(repr(name) for name in sorted(names))
    what = "is no job" if len(names) == 1 else "are no jobs"
    return NotFound(f"there {what} {shown} in namespace {namespace!r}: `mainspring job list` shows those that exist")


def load_calendars(tx: Transaction, namespace: str) -> dict[str, Calendar]:
    """All calendars of a namespace by name."""
    return {name: _calendars.decode(text) for name, text in tx.execute(_Q["calendars"], (namespace,))}


def calendars_for(tx: Transaction, namespace: str, jobs: Iterable[Job]) -> dict[str, Calendar]:
    """The calendars of a namespace, if any of the jobs obeys one; all that they name must exist."""
    named = dict.fromkeys(name for job in jobs for name in job.policy.calendars)
    if not named:
        return {}
    calendars = load_calendars(tx, namespace)
    for name in named:
        if name not in calendars:
            raise InvalidInput("calendars", name, f"is not a calendar of namespace {namespace!r}", "save it first")
    return calendars
