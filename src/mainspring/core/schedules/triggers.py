"""When a job is due: the five triggers, how they are written, and the next instant of each."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final, Literal, Protocol, get_args

import msgspec

from mainspring.core.instants import (
    DAY,
    EARLIEST,
    LATEST,
    MILLISECOND,
    SECOND,
    Duration,
    Instant,
    format_duration,
    format_instant,
    from_wall,
    load_zone,
    offset_at,
    parse_duration,
    parse_instant,
    to_datetime,
    transition_between,
)
from mainspring.core.schedules.cron import check_cron, parse_cron
from mainspring.errors import InvalidCron, InvalidDuration, InvalidInput

When = Literal["all_succeeded", "any_finished"]
OnFailure = Literal["skip", "fail", "run"]

# Every due instant is a row in the ledger: a hundred a second is the most that one job may ask of it.
SHORTEST_PERIOD: Final[Duration] = 10 * MILLISECOND
PAST_TOLERANCE: Final[Duration] = 5 * SECOND
"""An instant that has passed by no more than this counts as now: requests take a while to arrive, and the clock of
their sender may be behind the store's."""


class CronTrigger(msgspec.Struct, frozen=True, tag_field="kind", tag="cron"):
    """Due when the clocks of a zone match an expression."""

    expression: str
    tz: str = "UTC"
    dialect: str | None = None


class EveryTrigger(msgspec.Struct, frozen=True, tag_field="kind", tag="every"):
    """Due at `anchor + k * period` for k = 1, 2, ...: elapsed time, whatever the clocks do.

    Without its own anchor it counts from the job's creation.
    """

    period: Duration
    anchor: Instant | None = None


class AtTrigger(msgspec.Struct, frozen=True, tag_field="kind", tag="at"):
    """Due once."""

    at: Instant


class ManualTrigger(msgspec.Struct, frozen=True, tag_field="kind", tag="manual"):
    """Never due by itself: only a manual trigger fires it."""


class AfterTrigger(msgspec.Struct, frozen=True, tag_field="kind", tag="after"):
    """Due when other jobs have ended. `on_failure` says what a failed one means where all must succeed."""

    jobs: tuple[str, ...]
    when: When = "all_succeeded"
    on_failure: OnFailure = "skip"


Trigger = CronTrigger | EveryTrigger | AtTrigger | ManualTrigger | AfterTrigger


class _Named(Protocol):
    @property
    def name(self) -> str: ...


class _JobNamed(Protocol):
    @property
    def job_name(self) -> str: ...


def cron(expression: str, *, tz: str = "UTC", dialect: str | None = None) -> CronTrigger:
    """Due when the clocks of zone `tz` match the expression, e.g. `cron("0 2 * * *", tz="Europe/Berlin")`."""
    trigger = CronTrigger(expression, tz, dialect)
    check_trigger(trigger)
    return trigger


def every(period: str | float | timedelta, *, anchor: str | datetime | None = None) -> EveryTrigger:
    """Due each time a period (`"30s"`, a timedelta, seconds) has passed since the anchor, or since creation."""
    start = None if anchor is None else parse_instant(anchor, "anchor")
    trigger = EveryTrigger(parse_duration(period, "period"), start)
    check_trigger(trigger)
    return trigger


def at(instant: str | datetime) -> AtTrigger:
    """Due once, at an instant with its offset or zone, e.g. `at("2026-03-01T09:00:00+01:00")`."""
    return AtTrigger(parse_instant(instant))


def manual() -> ManualTrigger:
    """Due only when the job is triggered by hand."""
    return ManualTrigger()


def after(
    *jobs: str | _Named | _JobNamed, when: When = "all_succeeded", on_failure: OnFailure = "skip"
) -> AfterTrigger:
    """Due when other jobs, given by name or as what `@app.job` returned, have ended."""
    trigger = AfterTrigger(tuple(map(_name_of, jobs)), when, on_failure)
    check_trigger(trigger)
    return trigger


def _name_of(job: str | _Named | _JobNamed) -> str:
    name = job if isinstance(job, str) else getattr(job, "job_name", getattr(job, "name", None))
    if not isinstance(name, str):
        raise InvalidInput("jobs", job, "is not a job", "give its name, or what @app.job returned")
    return name


def next_fire(trigger: Trigger, after: Instant, anchor: Instant) -> Instant | None:
    """The first due instant strictly after `after`, or None if there is none. `anchor` is the job's creation."""
    match trigger:
        case CronTrigger(expression, tz, dialect):
            return parse_cron(expression, dialect).next_after(after, tz)
        case EveryTrigger(period, own_anchor):
            start = anchor if own_anchor is None else own_anchor
            # Counted from the anchor, never from the last firing: lateness does not add up.
            due = start + period * max(1, (after - start) // period + 1)
            return due if due <= LATEST else None
        case AtTrigger(instant):
            return instant if instant > after else None
        case ManualTrigger() | AfterTrigger():
            return None


def check_trigger(trigger: Trigger) -> None:
    """Refuse a trigger that could not be evaluated, wherever it comes from: a constructor, a file, a request."""
    match trigger:
        case CronTrigger(expression, tz, dialect):
            check_cron(expression, dialect)
            load_zone(tz)
        case EveryTrigger(period, anchor):
            _check_period(period)
            if anchor is not None:
                _check_range("anchor", anchor)
        case AtTrigger(instant):
            _check_range("at", instant)
        case AfterTrigger():
            _check_after(trigger)
        case ManualTrigger():
            pass


def _check_period(period: Duration) -> None:
    if period < SHORTEST_PERIOD:
        shortest = format_duration(SHORTEST_PERIOD)
        remedy = f"choose {shortest} or longer; work more frequent than that belongs in a loop inside one run"
        raise InvalidDuration("period", format_duration(period), f"is shorter than {shortest}", remedy)


def _check_range(field: str, instant: Instant) -> None:
    if not EARLIEST <= instant <= LATEST:
        raise InvalidInput(field, instant, "is out of range", "choose an instant in the years 2 to 9998")


def _check_after(trigger: AfterTrigger) -> None:
    if not trigger.jobs:
        raise InvalidInput("jobs", (), "names no job", "name at least one job to run after")
    for position, job in enumerate(trigger.jobs):
        if not job:
            raise InvalidInput(f"jobs[{position}]", job, "is empty", "give the name of a job")
        if job in trigger.jobs[:position]:
            raise InvalidInput(f"jobs[{position}]", job, "is named twice", "name each job once")
    if trigger.when not in get_args(When):
        raise InvalidInput("when", trigger.when, "is not known", f"choose one of {', '.join(get_args(When))}")
    if trigger.on_failure not in get_args(OnFailure):
        remedy = f"choose one of {', '.join(get_args(OnFailure))}"
        raise InvalidInput("on_failure", trigger.on_failure, "is not known", remedy)


def check_to_come(instant: Instant, now: Instant, field: str, remedy: str) -> None:
    """Refuse an instant that has passed. What was now a moment ago still is: see `PAST_TOLERANCE`."""
    if instant < now - PAST_TOLERANCE:
        problem = f"is not in the future: it is {format_instant(now)}"
        raise InvalidInput(field, format_instant(instant), problem, remedy)


def check_not_past(trigger: Trigger, now: Instant) -> None:
    """Refuse a trigger that is never due after `now`. For new jobs: one declared again may have had its time."""
    if isinstance(trigger, AtTrigger):
        check_to_come(trigger.at, now, "at", "choose a later instant, or submit the task now")
    if isinstance(trigger, CronTrigger) and next_fire(trigger, now, now) is None:
        problem = f"never fires after {format_instant(now)}"
        raise InvalidCron("cron", trigger.expression, problem, "choose a year that is still to come")


def describe(trigger: Trigger) -> str:
    """A short phrase for people, e.g. `every 30s` or `cron 0 2 * * * in Europe/Berlin`."""
    match trigger:
        case CronTrigger(expression, tz):
            return f"cron {expression} in {tz}"
        case EveryTrigger(period, anchor):
            start = "" if anchor is None else f" from {format_instant(anchor)}"
            return f"every {format_duration(period)}{start}"
        case AtTrigger(instant):
            return f"at {format_instant(instant)}"
        case ManualTrigger():
            return "manual"
        case AfterTrigger():
            return _describe_after(trigger)


def _describe_after(trigger: AfterTrigger) -> str:
    jobs = ", ".join(trigger.jobs)
    if trigger.when == "any_finished":
        return f"after any of {jobs}"
    ending = {"skip": "", "fail": " (fails if one fails)", "run": " (runs even if one fails)"}
    return f"after {jobs}{ending[trigger.on_failure]}"


def transition_note(instant: Instant, zone: str) -> str | None:
    """What the clocks of a zone did earlier that day or in the 24 hours before, and the offset that holds since.

    E.g. `clocks went forward 1h at 02:00, now UTC+02:00`; None if the offset did not change.
    """
    midnight = to_datetime(instant, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    since = min(from_wall(midnight, zone), instant - DAY)
    changed = transition_between(since, instant, zone)
    if changed is None:
        return None
    before, now = offset_at(since, zone), offset_at(instant, zone)
    direction = "forward" if now > before else "back"
    # By the offset before it: what people call "at two o'clock" is the reading that jumped.
    jumped = to_datetime(changed + before)
    day = "" if jumped.date() == midnight.date() else f" on {jumped:%Y-%m-%d}"
    offset = timezone(timedelta(microseconds=now))
    return f"clocks went {direction} {format_duration(abs(now - before))} at {jumped:%H:%M}{day}, now {offset}"
