"""Backfill: the instants of a past interval that a job never ran for are fired now.

What is in the ledger as run stays as it is; what was missed or skipped, or was before the job existed, is made up for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from mainspring.core.instants import Duration, Instant, format_instant
from mainspring.core.model import Firing, Job, NewRun
from mainspring.core.planning.plans import PlannedFiring, due, make_runs, next_fire_at
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import AfterTrigger, ManualTrigger
from mainspring.errors import Conflict, InvalidInput


class Backfill(msgspec.Struct, frozen=True):
    """The planned firings of an interval."""

    firings: tuple[PlannedFiring, ...]
    following: Instant | None
    """The first instant that is not included, if the interval has more than `limit`."""


def check_interval(job: Job, since: Instant, until: Instant, now: Instant, remembered: Duration) -> None:
    """Refuse an interval that is not past, or that the ledger may have forgotten: there an instant could run twice."""
    if isinstance(job.trigger, AfterTrigger | ManualTrigger):
        raise Conflict(
            f"job {job.name} is due at no times of its own: trigger it, or backfill the jobs that it follows"
        )
    if until < since:
        raise InvalidInput("to", format_instant(until), "is before `from`", "let the interval end after it begins")
    if until > now:
        raise InvalidInput("to", format_instant(until), "is not past", "what is still to come fires by itself")
    if since <= now - remembered and until >= job.created_at:
        problem = f"is before {format_instant(now - remembered)}: what ran then is no longer in the ledger"
        raise InvalidInput("from", format_instant(since), problem, "begin later, or end before the job was created")


def plan_backfill(
    job: Job, since: Instant, until: Instant, limit: int, now: Instant, calendars: Mapping[str, Calendar]
) -> Backfill:
    """The first `limit` instants in [since, until] at which the job was due, by trigger, start, end and calendars.

    Their runs are due now, behind what was waiting already, and have no deadline: that of their instant has passed. A
    limit of firings (`max_firings`) is for those that come by themselves.
    """
    unlimited = msgspec.structs.replace(job, policy=msgspec.structs.replace(job.policy, max_firings=None))
    firings: list[PlannedFiring] = []
    for instant in _instants(unlimited, since, until, calendars):
        if len(firings) == limit:
            return Backfill(tuple(firings), instant)
        runs = [msgspec.structs.replace(due(run, now), expires_at=None) for run in make_runs(job, instant, now)]
        firings.append(PlannedFiring(instant, "fired", runs=tuple(runs)))
    return Backfill(tuple(firings), None)


def _instants(job: Job, since: Instant, until: Instant, calendars: Mapping[str, Calendar]) -> Iterator[Instant]:
    instant = next_fire_at(job, since - 1, calendars)
    while instant is not None and instant <= until:
        yield instant
        instant = next_fire_at(job, instant, calendars)


def has_run(row: Firing) -> bool:
    """Whether a row of the ledger stands for a run, or was asked for by hand: then it stays as it is."""
    return row.run_id is not None or row.request_id is not None or row.outcome not in ("missed", "skipped")


def in_turn(job: Job, runs: Sequence[NewRun], unfinished: Mapping[str, Sequence[str]]) -> list[NewRun]:
    """Runs, in order of their instants, as the overlap policy lets them be: where runs of a job must not overlap, each
    instant waits for the one before it, and the first for what has not ended in its region."""
    if job.policy.overlap in ("allow", "queue"):
        return list(runs)
    before = {region: tuple(ids) for region, ids in unfinished.items()}
    waiting: list[NewRun] = []
    for _, firing in groupby(runs, attrgetter("fire_at")):
        group = list(firing)
        waiting += [
            msgspec.structs.replace(run, after=before.get(run.region, ()), on_failure="run")
            if before.get(run.region)
            else run
            for run in group
        ]
        before |= {region: tuple(run.id for run in group if run.region == region) for region in _regions(group)}
    return waiting


def _regions(runs: Sequence[NewRun]) -> list[str]:
    return list(dict.fromkeys(run.region for run in runs))
