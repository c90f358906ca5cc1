"""The days that a calendar excludes, the jobs that use it, and the firings that an edit of it would change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Final

from mainspring.core.instants import DAY, Instant, to_datetime
from mainspring.core.model import Job
from mainspring.core.planning.calendar_changes import FiringChange, compare_firings
from mainspring.core.planning.plans import LONGEST_STRETCH, is_moved_to_next_day
from mainspring.core.planning.revision import reconsider
from mainspring.core.schedules.calendars import Calendar, calendars_over, excluded_day
from mainspring.errors import InvalidInput
from mainspring.operations.context import Context, fitting_jobs, time_limit
from mainspring.operations.planning.load import LONGEST_S, MOST_JOBS, plan_load
from mainspring.operations.planning.records import CalendarChange, CalendarDays, CalendarPreview, ExcludedDay
from mainspring.operations.values.from_rows import moment, moment_or_none
from mainspring.store import Store

Calendars = Mapping[str, Calendar]
MOST_CHANGES: Final = 1_000
MOST_DAYS: Final = 366
MOST_NAMED: Final = 200


async def calendar_days(
    context: Context, name: str, calendars: Calendars, since: date | None, until: date | None
) -> CalendarDays:
    """The days from `since` (today) to `until` (a year later), both included, that a calendar excludes."""
    store = await context.open()
    first = since or to_datetime(store.now(), calendars[name].tz).date()
    last = until or first + timedelta(days=MOST_DAYS - 1)
    if not 0 <= (last - first).days < MOST_DAYS:
        raise InvalidInput("to", str(last), "is before `from`, or more than a year later", "give up to 366 days")
    days, partial = await asyncio.to_thread(_excluded_days, name, calendars, first, last, time_limit(LONGEST_S))
    over = calendars_over(name, calendars)
    using = sorted(job.name for job in await _jobs_obeying(store, context.namespace, over))
    return CalendarDays(
        items=days,
        used_by=using[:MOST_NAMED],
        jobs=len(using),
        calendars=sorted(over - {name}),
        partial=partial,
    )


def _excluded_days(
    name: str, calendars: Calendars, first: date, last: date, enough: Callable[[], bool]
) -> tuple[list[ExcludedDay], bool]:
    found = list[ExcludedDay]()
    for number in range((last - first).days + 1):
        if enough():
            return found, True
        day = excluded_day(name, first + timedelta(days=number), calendars)
        if day is not None:
            found.append(ExcludedDay(day.day.isoformat(), day.whole, day.reason))
    return found, False


async def _jobs_obeying(store: Store, namespace: str, names: frozenset[str]) -> list[Job]:
    return await fitting_jobs(store, namespace, lambda job: not names.isdisjoint(job.policy.calendars), MOST_JOBS)


async def preview_calendar(context: Context, calendar: Calendar, known: Calendars, days: int) -> CalendarPreview:
    """The firings of the next days that move, disappear or appear if a calendar is saved. Paused jobs do not fire and
    are left out."""
    store = await context.open()
    now, new = store.now(), {**known, calendar.name: calendar}
    using = await _jobs_obeying(store, context.namespace, calendars_over(calendar.name, new))
    active = [job for job in using if job.paused_at is None]
    last = now + days * DAY
    changes, partial = await asyncio.to_thread(_changes, active, known, new, now, last, time_limit(LONGEST_S))
    counts = Counter(change.effect for _, change in changes)
    return CalendarPreview(
        items=[_record(job, change) for job, change in changes[:MOST_CHANGES]],
        moved=counts["moved"],
        dropped=counts["dropped"],
        added=counts["added"],
        jobs=len(active),
        until=moment(last),
        partial=partial,
    )


def _record(job: Job, change: FiringChange) -> CalendarChange:
    return CalendarChange(job.name, change.effect, moment_or_none(change.at), moment_or_none(change.to), change.reason)


def _changes(
    jobs: Sequence[Job], old: Calendars, new: Calendars, now: Instant, last: Instant, enough: Callable[[], bool]
) -> tuple[list[tuple[Job, FiringChange]], bool]:
    """The changes that begin before `last`, in order of time and job; and whether they are all."""
    found, partial = list[tuple[Job, FiringChange]](), False
    # A firing of the last day may move beyond it: those days are compared, too.
    moving = [job for job in jobs if is_moved_to_next_day(job)]
    staying = [job for job in jobs if not is_moved_to_next_day(job)]
    for group, end in ((staying, last), (moving, last + LONGEST_STRETCH)):
        planned, cut = _instants(group, old, now, end, enough)
        wanted, cut_too = _instants([reconsider(job, now, new) for job in group], new, now, end, enough)
        partial = partial or cut or cut_too
        for job in group:
            if job.id in planned and job.id in wanted:
                changes = compare_firings(job, planned[job.id], wanted[job.id], old, new)
                found += [(job, change) for change in changes if change.first < last]
    return sorted(found, key=lambda each: (each[1].first, each[0].name)), partial


def _instants(
    jobs: Sequence[Job], calendars: Calendars, first: Instant, last: Instant, enough: Callable[[], bool]
) -> tuple[dict[str, Sequence[Instant]], bool]:
    """The instants of each job by its id, without those jobs whose instants were cut short; and whether any were."""
    due = [job for job in jobs if job.next_fire_at is not None]
    plans, partial = plan_load(due, calendars, first, last, enough)
    whole = plans[:-1] if partial else plans
    never: dict[str, Sequence[Instant]] = {job.id: () for job in jobs if job.next_fire_at is None}
    return never | {job.id: plan.instants for plan in whole for job in plan.jobs}, partial
