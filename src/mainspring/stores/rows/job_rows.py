"""Jobs, firings and calendars as rows, and back; and the errors that every store raises for jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from mainspring.core.instants import LATEST, Instant
from mainspring.core.model import Event, Firing, FiringOutcome, Job, JobPolicy, RunOptions, Term
from mainspring.core.planning.declaring import upstream_names
from mainspring.core.schedules.calendars import Calendar, calendars_over
from mainspring.core.schedules.triggers import Trigger
from mainspring.errors import Conflict, InvalidInput, NotFound, TermPassed
from mainspring.store import JobOrder

_encode = msgspec.json.Encoder().encode
_triggers: msgspec.json.Decoder[Trigger] = msgspec.json.Decoder(Trigger)
_policies = msgspec.json.Decoder(JobPolicy)
_options = msgspec.json.Decoder(RunOptions)
_calendars = msgspec.json.Decoder(Calendar)
_names = msgspec.json.Decoder(list[str]).decode

MOST_NAMED = 20
"""Jobs and calendars that a refusal names."""
Row = Sequence[Any]
_TRIGGER, _POLICY, _OPTIONS = map(Job.__struct_fields__.index, ("trigger", "policy", "options"))


# Thousands of jobs share a handful of policies: decoding each text once makes a planner's load several times faster.
@lru_cache(maxsize=4096)
def _policy(text: str) -> JobPolicy:
    return _policies.decode(text)


@lru_cache(maxsize=4096)
def _run_options(text: str) -> RunOptions:
    return _options.decode(text)


def to_json(value: object) -> str:
    """Text for a JSON column."""
    return _encode(value).decode()


def read_job(row: Row) -> Job:
    """A row as the queries of `jobs.sql` select it: in the order of Job's fields."""
    values = list(row)
    values[_TRIGGER] = _triggers.decode(row[_TRIGGER])
    values[_POLICY] = _policy(row[_POLICY])
    values[_OPTIONS] = _run_options(row[_OPTIONS])
    return Job(*values)


def read_jobs(rows: Iterable[Row]) -> list[Job]:
    """Rows of jobs, in their order."""
    return [read_job(row) for row in rows]


def job_values(job: Job) -> dict[str, object]:
    """What is stored of a job, by column."""
    values = msgspec.structs.asdict(job)
    values["trigger"] = to_json(job.trigger)
    values["policy"] = to_json(job.policy)
    values["options"] = to_json(job.options)
    return values


def read_firing(row: Row) -> Firing:
    """A row of the ledger, in the order of Firing's fields."""
    return Firing(**dict(zip(Firing.__struct_fields__, row, strict=True)))


def read_calendars(rows: Iterable[Row]) -> dict[str, Calendar]:
    """Calendars by name."""
    return {name: _calendars.decode(text) for name, text in rows}


def obeying(rows: Iterable[Row], saved: Calendar, calendars: Mapping[str, Calendar]) -> list[str]:
    """Which of some jobs (id, names of calendars as JSON) obey a calendar that was saved: by its name, or by that of
    one that refers to it. Others are not touched: their plans still hold."""
    changed = calendars_over(saved.name, {**calendars, saved.name: saved})
    return sorted(job_id for job_id, names, _ in rows if not changed.isdisjoint(_names(names)))


def check_unused(rows: Iterable[Row], name: str, calendars: Mapping[str, Calendar]) -> None:
    """Refuse to forget a calendar that jobs (id, names of calendars as JSON, name) or other calendars refer to."""
    if name not in calendars:
        raise NotFound(f"there is no calendar {name!r}: `mainspring calendar list` shows those that exist")
    jobs = sorted(job for _, names, job in rows if name in _names(names))
    others = sorted(calendars_over(name, calendars) - {name})
    using = [*(f"job {job}" for job in jobs), *(f"calendar {other}" for other in others)]
    if using:
        more = f" and {len(using) - MOST_NAMED} more" if len(using) > MOST_NAMED else ""
        raise Conflict(
            f"calendar {name} is used by {', '.join(using[:MOST_NAMED])}{more}: take it out of them, then remove it"
        )


def job_event(kind: str, job: Job, now: Instant, reason: str = "") -> Event:
    """An event of a job."""
    return Event(kind, now, job.namespace, None, job.id, job.name, job.task, reason=reason)


def queue_event(namespace: str, queue: str, reason: str, now: Instant, *, paused: bool) -> Event:
    """The event of a queue that is paused or resumed."""
    text = f"{queue}: {reason}" if reason else queue
    return Event("queue.paused" if paused else "queue.resumed", now, namespace, reason=text)


def firing_event(now: Instant, outcome: FiringOutcome, job: Job, fire_at: Instant, reason: str, count: int) -> Event:
    """The event of a firing's outcome."""
    kind = f"firing.{outcome}"
    return Event(kind, now, job.namespace, None, job.id, job.name, job.task, None, fire_at, reason=reason, count=count)


def declare(app: str, namespace: str, jobs: Sequence[Job], source: str) -> dict[str, Job]:
    """The jobs that the code of an app declares, by name: each once."""
    declared: dict[str, Job] = {}
    for job in jobs:
        if job.name in declared:
            raise InvalidInput("jobs", job.name, f"is declared twice by app {app!r}", "give each job its own name")
        declared[job.name] = msgspec.structs.replace(job, app=app, namespace=namespace, origin="code", source=source)
    return declared


def read_page(rows: Iterable[Row]) -> tuple[list[str], str | None]:
    """Those of a page that matter, and the last that was looked at: rows are names or ids, and whether each matters."""
    chosen, last = [], None
    for name, matters in rows:
        if matters:
            chosen.append(name)
        else:
            last = name
    return chosen, last


def check_owned(app: str, stored: Iterable[Job]) -> None:
    """None of the stored jobs that an app would replace may belong to another."""
    foreign = sorted((job.name, job.app) for job in stored if job.app != app)
    if foreign:
        owned = ", ".join(f"{name!r} (of app {owner!r})" for name, owner in foreign[:MOST_NAMED])
        more = f" and {len(foreign) - MOST_NAMED} more" if len(foreign) > MOST_NAMED else ""
        name, owner = foreign[0]
        raise Conflict(
            f"app {app!r} declares jobs of another app: {owned}{more}. If that is this program's former name, keep it "
            f'(Mainspring(name="{owner}")), or remove the jobs first (`mainspring job remove {name}`). '
            "Otherwise choose other names, or another namespace"
        )


def check_editable(stored: Job | None, job: Job, expected_version: int) -> Job:
    """The stored job, if it is the one that is to be replaced, in the version that the editor saw."""
    if stored is None or stored.namespace != job.namespace:
        raise unknown_jobs(job.namespace, [job.name])
    if job.name != stored.name:
        remedy = f"create a job of that name, and remove {stored.name!r}"
        raise InvalidInput("name", job.name, "is not the name of this job, which cannot change", remedy)
    if stored.version != expected_version:
        raise Conflict(
            f"job {stored.name!r} has changed meanwhile: it has version {stored.version}, not {expected_version}. "
            "Read it again, and repeat the edit"
        )
    return stored


def check_calendars_known(namespace: str, named: Iterable[str], calendars: Collection[str]) -> None:
    """All calendars that jobs name must exist."""
    for name in named:
        if name not in calendars:
            remedy = f"save it first: `mainspring calendar save {name} …`, or `app.calendar`"
            raise InvalidInput("calendars", name, f"is not a calendar of namespace {namespace!r}", remedy)


def check_upstreams_known(namespace: str, jobs: Sequence[Job], known: Collection[str]) -> None:
    """All jobs that others fire after must exist."""
    for job in jobs:
        for name in upstream_names(job):
            if name not in known:
                problem = f"is not a job of namespace {namespace!r}, but {job.name!r} should fire after it"
                raise InvalidInput("jobs", name, problem, "create it first, or correct the name")


def check_no_downstream(job: Job, downstream: Iterable[str]) -> None:
    """A job that others fire after stays."""
    names = ", ".join(map(repr, downstream))
    if names:
        raise Conflict(f"job {job.name!r} cannot be removed, for others fire after it: {names}. Change those first")


def check_term(term: Term, newest: int | None) -> None:
    """Only the newest term may fire."""
    if newest != term.number:
        shown = "none" if newest is None else newest
        raise TermPassed(f"term {term.number} of {term.owner} for {term.name} has passed; the newest is {shown}")


def name_taken(job: Job) -> Conflict:
    """The error for a second job of one name."""
    return Conflict(
        f"there is a job {job.name!r} in namespace {job.namespace!r} already: choose another name, or edit that one"
    )


def unknown_jobs(namespace: str, names: Collection[str]) -> NotFound:
    """The error that names all jobs that do not exist."""
    shown = ", ".join(repr(name) for name in sorted(names))
    what = "is no job" if len(names) == 1 else "are no jobs"
    return NotFound(f"there {what} {shown} in namespace {namespace!r}: `mainspring job list` shows those that exist")


def first_place(order: JobOrder) -> tuple[Instant, str]:
    """The place before the first job in an order."""
    return (0, "") if order == "next" else (LATEST + 1, "")
