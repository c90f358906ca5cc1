"""The schedule of Celery beat as jobs. Celery itself computes its fire times: it is installed where its app is."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from mainspring.core.instants import SECOND, Instant, from_datetime, load_zone, parse_duration, to_datetime
from mainspring.core.model import DEFAULT, Job, JobPolicy, RunOptions
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger, Trigger, check_trigger
from mainspring.errors import InvalidInput
from mainspring.ops.migrate.found import FireTimes, Found, blank_job, left_out
from mainspring.ops.migrate.functions import encode_call, task_name, unknown_task
from mainspring.sdk.app import Mainspring

_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")


def read_beat(celery: Any, now: Instant, *, namespace: str, app: Mainspring | None) -> list[Found]:
    """The jobs of `beat_schedule` of a Celery app. `app` has the tasks that take over, if it is known already."""
    found, blank = [], blank_job(namespace, now)
    for name, entry in celery.conf.beat_schedule.items():
        source = f"beat_schedule[{name!r}]"
        try:
            found.append(_read_entry(source, str(name), dict(entry), celery, blank, app))
        except InvalidInput as error:
            found.append(left_out(source, str(name), error))
    return found


def _read_entry(
    source: str, name: str, entry: dict[str, Any], celery: Any, blank: Job, app: Mainspring | None
) -> Found:
    lost: list[str] = []
    trigger, theirs = _read_schedule(entry["schedule"], celery, blank.created_at, lost)
    options = dict(entry.get("options") or {})
    queue, expires = options.pop("queue", None), options.pop("expires", None)
    if isinstance(expires, datetime):
        lost.append("options.expires: a fixed instant has no counterpart; end_at ends a job")
        expires = None
    if (priority := options.pop("priority", None)) is not None:
        lost.append(
            f"options.priority: {priority} means another order with each broker; set `priority`, 1 is the highest"
        )
    lost += [f"options.{option}: a job has nothing like it" for option in options]
    task = task_name(entry["task"], app)
    lost += unknown_task(task, app)
    retry, note = _read_retries(celery.tasks.get(entry["task"]))
    if note:
        lost.append(note)
    job = msgspec.structs.replace(
        blank,
        name=name,
        task=task,
        trigger=trigger,
        args=encode_call(task, entry.get("args") or (), entry.get("kwargs") or {}, app),
        queue=str(getattr(queue, "name", queue) or DEFAULT),
        policy=JobPolicy(start_deadline=None if expires is None else parse_duration(expires, "expires")),
        options=RunOptions(retry=retry),
    )
    return Found(source, name, job, "", tuple(lost), theirs)


def _read_schedule(schedule: Any, celery: Any, now: Instant, lost: list[str]) -> tuple[Trigger, FireTimes]:
    from celery import schedules  # installed where the app is that is imported

    if isinstance(schedule, int | float | timedelta):
        schedule = schedules.maybe_schedule(schedule, app=celery)
    schedule.app = celery
    trigger: Trigger
    if isinstance(schedule, schedules.crontab):
        trigger = _read_crontab(schedule, str(schedule.tz))
    elif type(schedule) is schedules.schedule:
        if schedule.relative:
            lost.append("relative: an interval counts from the creation of the job, not from a round time")
        seconds = schedule.run_every.total_seconds()
        trigger = EveryTrigger(round(seconds * SECOND), now)
    else:
        kind = type(schedule).__name__
        raise InvalidInput("schedule", kind, "has no counterpart", "submit it from a job that fires often enough")
    check_trigger(trigger)
    return trigger, partial(_fires, schedule)


def _read_crontab(schedule: Any, zone: str) -> CronTrigger:
    """The expression as it was written where we can read it, and its numbers otherwise (`50-10` of the minutes)."""
    if schedule._orig_day_of_month != "*" and schedule._orig_day_of_week != "*":
        problem = "restricts day_of_month and day_of_week: both must match there, either does here"
        raise InvalidInput("crontab", str(schedule), problem, "restrict one, and check the other in the task")
    written = [str(getattr(schedule, f"_orig_{field}")).replace(" ", "") for field in _FIELDS]
    trigger = CronTrigger(" ".join(written), zone)
    try:
        check_trigger(trigger)
    except InvalidInput:
        numbers = [",".join(map(str, sorted(getattr(schedule, field)))) for field in _FIELDS]
        stars = ["*" if text == "*" else number for text, number in zip(written, numbers, strict=True)]
        return CronTrigger(" ".join(stars), zone)
    return trigger


def _fires(schedule: Any, after: Instant) -> Iterator[Instant]:
    """The fire times that Celery computes: from each instant, the time that it says remains. Where it stops moving, so
    does beat."""
    schedule, app = copy(schedule), schedule.app
    schedule.app = app  # A copy of a schedule forgets it.
    zone = load_zone(str(schedule.tz))
    moment = to_datetime(after)
    while True:
        local = moment.astimezone(zone)
        schedule.nowfun = partial(_same, local)
        remaining: timedelta = schedule.remaining_estimate(local)
        if remaining <= timedelta(0):
            return
        moment += remaining
        yield from_datetime(moment)


def _same(moment: datetime) -> datetime:
    return moment


def _read_retries(task: Any) -> tuple[Retry, str]:
    """How often Celery retries by itself, which is never unless the task names exceptions."""
    autoretry: tuple[type[Exception], ...] = tuple(getattr(task, "autoretry_for", ()) or ())
    if not autoretry:
        return Retry(0), ""
    count = getattr(task, "max_retries", 3)
    kinds = ", ".join(kind.__name__ for kind in autoretry)
    note = f"autoretry_for: every exception is retried here, not only {kinds}; give the task a Retry with `on`"
    return Retry(100 if count is None else int(count)), note
