"""`mainspring forecast`: what fires in the next day, where it does not fit, and which jobs to move."""

from __future__ import annotations

from collections.abc import Sequence

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, show_answer
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import moment
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, from_datetime, parse_duration
from mainspring.operations import records
from mainspring.ops.forecast import Forecast, Plan, forecast_load

MOST_FIRES = 1_000
"""Fire times that are computed for a job; beyond them it goes on at the same pace."""
MEASURED_RUNS = 20
SHOWN_JOBS, SHOWN_MOVES = 5, 20


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

    show_answer(session, look, _draw)


async def _plan(scheduler: Backend, job: records.Job, end: Instant, unknown_s: float) -> Plan:
    times = [from_datetime(each.fire_at) for each in await scheduler.jobs.next(job.job_id, MOST_FIRES)]
    found = scheduler.runs.list(job=job.name, states=("succeeded", "failed"), limit=MEASURED_RUNS)
    took = [_took_s(run) async for run in found]
    run_s = sum(took) / len(took) if took else unknown_s
    return Plan(job.name, tuple(at for at in continued(times, end) if at < end), run_s, job.priority)


def _took_s(run: records.Run) -> float:
    if run.started_at is None or run.finished_at is None:
        return 0.0
    return (run.finished_at - run.started_at).total_seconds()


def continued(times: Sequence[Instant], end: Instant) -> list[Instant]:
    """Fire times up to the end: where they were cut off, at the pace of those that are known."""
    if len(times) < MOST_FIRES or times[-1] >= end:
        return list(times)
    pace = max((times[-1] - times[0]) // (len(times) - 1), 1)
    return [*times, *range(times[-1] + pace, end, pace)]


def _draw(screen: Screen, seen: Forecast, _: Instant) -> None:
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
