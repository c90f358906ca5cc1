"""`mainspring load` and `mainspring forecast`: what is to come, what does not fit, what would flatten the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, show_answer, with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import moment, seconds_of
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, from_datetime, parse_duration, to_datetime
from mainspring.core.schedules.triggers import Trigger, cron, every
from mainspring.errors import Conflict, NotFound
from mainspring.operations import records
from mainspring.operations.planning.records import Spread
from mainspring.operations.views.records import Load
from mainspring.ops.forecast import Forecast, Plan, forecast_load

WIDEST = 40
"""Characters of the longest bar."""
MOST_FIRES = 1_000
"""Fire times that are computed for a job; beyond them it goes on at the same pace."""
MEASURED_RUNS = 20
SHOWN_JOBS, SHOWN_MOVES = 5, 20


@click.command(cls=RemoteVerb)
@click.option("--for", "length", default="24h", show_default=True, metavar="DURATION", help="How far to look ahead.")
@click.option("--bucket", default="1h", show_default=True, metavar="DURATION", help="How long each period is.")
@click.option("--queue", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("--tag", metavar="TAG", help="Only jobs with this tag.")
@click.option("--spread", is_flag=True, help="Propose which jobs to move so that the fullest minute has fewer starts.")
@click.option("--within", default="15m", show_default=True, metavar="DURATION", help="With --spread: how far.")
@click.option("--apply", is_flag=True, help="With --spread: move them. A job that has changed meanwhile is left alone.")
@click.pass_obj
def load(session: Session, /, length: str, bucket: str, queue: str | None, tag: str | None, **words: Any) -> None:
    """Show what is planned to start in the time ahead, by period, and how many slots it keeps busy."""
    ahead = timedelta(microseconds=parse_duration(length, "for"))
    if words["spread"]:
        _spread(session, ahead, queue, tag, words["within"], is_applied=words["apply"])
        return

    async def look(scheduler: Backend) -> Load:
        since = to_datetime(scheduler.now())
        return await scheduler.insight.load(since=since, until=since + ahead, bucket=bucket, queue=queue, tag=tag)

    show_answer(session, look, _draw_load)


def _draw_load(screen: Screen, found: Load, _: Instant) -> None:
    if found.peak is None:
        screen.hint("No job is planned to start in this time.")
        return
    rows = [
        [
            moment(each.at, "UTC"),
            f"{each.starts:,}",
            f"{each.busy:,.1f}",
            "█" * round(WIDEST * each.starts / found.peak.starts),
        ]
        for each in found.items
        if each.starts
    ]
    screen.table(("FROM", "STARTS", "BUSY", ""), rows)
    more = " It was cut short: there are too many instants." if found.partial else ""
    screen.line(f"{found.jobs:,} jobs; the live workers have {found.capacity:,} slots.{more}")


def _spread(
    session: Session, ahead: timedelta, queue: str | None, tag: str | None, within: str, *, is_applied: bool
) -> None:
    async def look(scheduler: Backend) -> tuple[Spread, dict[str, str]]:
        since = to_datetime(scheduler.now())
        found = await scheduler.insight.spread(since=since, until=since + ahead, within=within, queue=queue, tag=tag)
        refused: dict[str, str] = {}
        for edit in found.edits if is_applied else ():
            try:
                await scheduler.jobs.edit(edit.job, trigger=_trigger_of(edit.change), version=edit.version)
            except (Conflict, NotFound) as error:
                refused[edit.job] = str(error)
        return found, refused

    found, refused = with_scheduler(session, look)
    screen = Screen(session)
    screen.answer(found, lambda: _draw_spread(screen, found, refused, is_applied=is_applied))


def _trigger_of(change: Mapping[str, Any]) -> Trigger:
    if "schedule" in change:
        return cron(change["schedule"], tz=change.get("timezone", "UTC"), dialect=change.get("dialect"))
    return every(change["every"], anchor=change.get("anchor"))


def _draw_spread(screen: Screen, found: Spread, refused: Mapping[str, str], *, is_applied: bool) -> None:
    if found.before is None or found.after is None:
        screen.hint("No job is planned to start in this time.")
        return
    rows = [[each.job, each.schedule, each.to, refused.get(each.job, each.reason)] for each in found.edits]
    if rows:
        screen.table(("JOB", "NOW", "THEN", "REFUSED OR BECAUSE" if refused else "BECAUSE"), rows, fold=("NOW", "THEN"))
    peaks = [f"{each.starts:,} starts at {moment(each.at, 'UTC')}" for each in (found.before, found.after)]
    screen.line(f"{len(rows):,} jobs can move: the fullest minute goes from {peaks[0]} to {peaks[1]}.")
    if is_applied:
        screen.line(f"{len(rows) - len(refused):,} were moved, {len(refused):,} were refused.")
    elif rows:
        screen.hint("Nothing was changed: --apply moves them.")


@click.command("forecast", cls=RemoteVerb)
@click.option("--for", "length", default="24h", show_default=True, metavar="DURATION", help="How far to look ahead.")
@click.option("--places", type=click.IntRange(1), metavar="N", help="Runs at once.  [default: those of living workers]")
@click.option("--run-time", default="1s", show_default=True, metavar="DURATION", help="Of jobs that never ran.")
@click.pass_obj
def forecast_command(session: Session, length: str, places: int | None, run_time: str) -> None:
    """Show the load of the next day: how many runs, the busiest minute, and when more is due than the workers can
    execute. It also names the jobs that would fit elsewhere.

    A job's runs are taken to last as long as its newest ones did. Retries and submissions are not foreseen.
    """
    ahead, unknown_s = parse_duration(length, "for"), parse_duration(run_time, "run-time") / 1_000_000

    async def look(scheduler: Backend) -> Forecast:
        now = scheduler.now()
        jobs = [job async for job in scheduler.jobs.list() if job.next_fire_at is not None and job.paused_at is None]
        plans = [await _plan(scheduler, job, now + ahead, unknown_s) for job in jobs]
        living = [each for each in await scheduler.workers.list() if each.state == "active"]
        chosen = places or sum(each.concurrency for each in living)
        return forecast_load(plans, chosen, now, now + ahead)

    show_answer(session, look, _draw_forecast)


async def _plan(scheduler: Backend, job: records.Job, end: Instant, unknown_s: float) -> Plan:
    times = [from_datetime(each.fire_at) for each in await scheduler.jobs.next(job.job_id, MOST_FIRES)]
    found = scheduler.runs.list(job=job.name, states=("succeeded", "failed"), limit=MEASURED_RUNS)
    took = [seconds_of(run) async for run in found]
    run_s = sum(took) / len(took) if took else unknown_s
    return Plan(job.name, tuple(at for at in continued(times, end) if at < end), run_s, job.priority)


def continued(times: Sequence[Instant], end: Instant) -> list[Instant]:
    """Fire times up to the end: where they were cut off, at the pace of those that are known."""
    if len(times) < MOST_FIRES or times[-1] >= end:
        return list(times)
    pace = max((times[-1] - times[0]) // (len(times) - 1), 1)
    return [*times, *range(times[-1] + pace, end, pace)]


def _draw_forecast(screen: Screen, seen: Forecast, _: Instant) -> None:
    if seen.busiest is None or not seen.runs:
        screen.hint("No job fires in this time.")
        return
    screen.line(f"{seen.runs:,} runs. The busiest minute is {moment(seen.busiest.at, 'UTC')}: "
                f"{seen.busiest.runs:,} runs, {seen.busiest.busy:,.1f} places.")  # fmt: skip
    if not seen.places:
        screen.line("No worker is running: nothing of it is executed. --places N says how many places there will be.")
        return
    if not seen.jams:
        screen.line(f"All of it fits into {seen.places:,} places.")
        return
    screen.title("Where it does not fit")
    rows = [
        [moment(jam.begin, "UTC"), moment(jam.end, "UTC"), f"{jam.late_s:,.0f} s", ", ".join(jam.jobs[:SHOWN_JOBS])]
        for jam in seen.jams
    ]
    screen.table(("FROM", "UNTIL", "LATE", "JOBS"), rows, fold=("JOBS",))
    moves = [f"{move.job}: from {moment(move.at, 'UTC')} to {moment(move.to, 'UTC')}" for move in seen.moves]
    screen.items("What would fit elsewhere", moves[:SHOWN_MOVES])
    if len(moves) > SHOWN_MOVES:
        screen.hint(f"And {len(moves) - SHOWN_MOVES} more: --json has all.")
