"""`mainspring job next`: when a job will fire, before anything is saved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Unpack

import click

from mainspring.cli.jobs.triggers import TriggerWords, clock_options, read_trigger
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.output.screen import Cell, Screen, Value
from mainspring.cli.output.times import moment, relative
from mainspring.cli.session import Session
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND, Duration, Instant, format_instant, from_datetime, load_zone, parse_duration
from mainspring.core.model import Job, JobPolicy
from mainspring.core.planning.plans import jitter_of
from mainspring.core.runs.why import about
from mainspring.core.schedules.triggers import check_not_past, describe, manual
from mainspring.operations import records
from mainspring.operations.planning.forecast import forecast


class Ahead(NamedTuple):
    """What is known of a job's future."""

    name: str
    schedule: str
    times: Sequence[records.FireTime]
    now: Instant
    job: records.Job | None = None
    """None if nothing is saved yet."""


def draw_fire_times(screen: Screen, times: Sequence[records.FireTime], now: Instant) -> None:
    """Print fire times for people: in the job's zone, from now, in UTC, and changes of the clocks."""
    noted = any(time.note for time in times)
    columns = [f"FIRES ({times[0].zone})", "FROM NOW", "UTC", *(["CLOCKS"] if noted else [])]
    rows = [_row(time, now)[: len(columns)] for time in times]
    if times[0].zone == "UTC" and not any(from_datetime(time.fire_at) % SECOND for time in times):
        columns, rows = columns[:2], [row[:2] for row in rows]  # It would say the same again.
    screen.table(columns, rows, fold=("CLOCKS",), spare=("UTC",))


def _row(time: records.FireTime, now: Instant) -> list[Value]:
    instant = from_datetime(time.fire_at)
    return [moment(instant, time.zone), relative(instant, now), format_instant(instant), Cell(time.note, "yellow")]


@click.command("next", cls=RemoteVerb)
@click.argument("name", required=False, shell_complete=complete_job)
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@clock_options
@click.pass_obj
def next_fires(session: Session, name: str | None, count: int, **words: Unpack[TriggerWords]) -> None:
    """Preview when job NAME will fire; or, with --cron, --every or --at, when a job would that you have not added yet.

    Fire times are shown in the job's zone (in another with --tz), and changes of daylight saving are marked.
    """
    ahead = _of_words(words, count) if name is None else _of_job(session, name, words, count)
    screen = Screen(session)
    screen.answer(ahead.times, lambda: _draw(screen, ahead))


def _of_words(words: TriggerWords, count: int) -> Ahead:
    trigger = read_trigger(words)
    if trigger is None:
        raise click.UsageError("Name a job, or say when with --cron, --every or --at.")
    now = SystemClock().now()
    check_not_past(trigger, now)
    seen = forecast(Job("", "a job", "", trigger, created_at=now), {}, now, count, words.get("tz"))
    return Ahead("a job", describe(trigger), seen, now)


def _of_job(session: Session, name: str, words: TriggerWords, count: int) -> Ahead:
    if words.get("cron") or words.get("every") or words.get("at"):
        raise click.UsageError(f"Name a job or say when, not both: leave out '{name}' to preview a new trigger.")
    zone = words.get("tz")
    if zone is not None:
        load_zone(zone)

    async def look(scheduler: Backend) -> Ahead:
        job = await scheduler.jobs.get(name)
        times = await scheduler.jobs.next(job.job_id, count, zone)
        return Ahead(job.name, job.schedule, times, scheduler.now(), job)

    return with_scheduler(session, look)


def _draw(screen: Screen, ahead: Ahead) -> None:
    if not ahead.times:
        screen.hint(f"{ahead.name} ({ahead.schedule}) fires at no instant that is known in advance.")
        return
    first = ahead.times[0]
    due = moment(first.fire_at, first.zone)
    screen.line(f"{ahead.name}: {ahead.schedule}. It fires next on {due}, {relative(first.fire_at, ahead.now)}.")
    if ahead.job is not None and (delay := _jitter(ahead.job)):
        screen.line(f"Its runs start {about(delay)} after each instant (jitter).", "dim")
    if ahead.job is not None and ahead.job.paused_at is not None:
        resume = screen.session.complete(f"`mainspring job resume {ahead.name}`")
        screen.line(f"It is paused: none of these fires before {resume}.", "yellow")
    screen.line()
    draw_fire_times(screen, ahead.times, ahead.now)


def _jitter(job: records.Job) -> Duration:
    policy = JobPolicy(jitter=parse_duration(job.policy["jitter"], "jitter"))
    return jitter_of(Job(job.job_id, job.name, job.task, manual(), policy=policy))
