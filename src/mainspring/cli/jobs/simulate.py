"""`mainspring job simulate`: what a changed job would have done, or will do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from mainspring.cli.jobs.define import read_edit
from mainspring.cli.jobs.triggers import read_trigger, trigger_of, trigger_options
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.option_flags import flags_of
from mainspring.cli.output.screen import Screen, Value
from mainspring.cli.output.times import moment
from mainspring.cli.session import Session
from mainspring.core.instants import format_duration, parse_duration, parse_instant, to_datetime
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import CronTrigger
from mainspring.errors import InvalidInput
from mainspring.operations.jobs.options import JOB
from mainspring.operations.planning.records import Simulation

MOST_DRAWN = 200


@click.command(cls=RemoteVerb)
@click.argument("name", shell_complete=complete_job)
@click.option("--past", metavar="DURATION", help="Over this much of the past; 7d unless --ahead is given.")
@click.option("--ahead", metavar="DURATION", help="Over this much of the time to come.")
@click.option("--outage", "outages", multiple=True, metavar="FROM/TO", help="The scheduler is down then; repeatable.")
@click.option("--took", metavar="DURATION", help="How long each run takes; as its runs did, unless given.")
@trigger_options
@flags_of(JOB)
@click.pass_obj
def simulate(
    session: Session,
    /,
    name: str,
    *,
    past: str | None,
    ahead: str | None,
    outages: Sequence[str],
    took: str | None,
    **words: Any,
) -> None:
    """Show what job NAME would have done, or will do, if it were changed like this. Nothing is saved.

    Each due instant is shown with its outcome and the reason: missed by an outage, skipped since a run before had not
    ended, run. Runs take as long as those of the job did.

    \b
    mainspring job simulate etl --overlap forbid --took 26h
    mainspring job simulate etl --cron '0 * * * *' --ahead 1d --outage 2030-03-01T02:00Z/2030-03-01T05:00Z
    """
    if past is not None and ahead is not None:
        raise click.UsageError("Choose --past or --ahead, not both.")
    edit = read_edit(words)
    if "retries" in edit.kept or "retry_policy" in edit.kept:
        edit.kept["retry"] = Retry(edit.kept.pop("retries", None), policy=edit.kept.pop("retry_policy", None))
    down = [_read_outage(each) for each in outages]

    async def look(scheduler: Backend) -> tuple[Simulation, str]:
        job = await scheduler.jobs.get(name)
        current = trigger_of(job.trigger)
        trigger = read_trigger(edit.about, current) or current
        other: dict[str, Any] = {} if trigger == current else {"trigger": trigger}
        now = to_datetime(scheduler.now())
        length = timedelta(microseconds=parse_duration(ahead or past or "7d", "ahead" if ahead else "past"))
        since, until = (now, now + length) if ahead else (now - length, now)
        found = await scheduler.jobs.simulate(
            job.job_id, clear=edit.cleared, since=since, until=until, outages=down, took=took, **other, **edit.kept
        )
        return found, trigger.tz if isinstance(trigger, CronTrigger) else "UTC"

    found, zone = with_scheduler(session, look)
    screen = Screen(session)
    screen.answer(found, lambda: _draw(screen, found, zone))


def _read_outage(text: str) -> tuple[datetime, datetime]:
    begin, slash, end = text.partition("/")
    if not slash:
        raise InvalidInput("outage", text, "has no end", "write it like 2030-03-01T02:00Z/2030-03-01T05:00Z")
    return to_datetime(parse_instant(begin, "outage")), to_datetime(parse_instant(end, "outage"))


def _draw(screen: Screen, found: Simulation, zone: str) -> None:
    if not found.items:
        screen.hint(f"It ({found.schedule}) fires at no instant of this span that is known in advance.")
        return
    rows: list[list[Value]] = [
        [
            moment(each.fire_at, zone),
            each.outcome if each.count == 1 else f"{each.outcome} ({each.count or 'many'})",
            "" if each.late_s is None else _seconds(each.late_s),
            "" if each.took_s is None else _seconds(each.took_s),
            each.reason,
        ]
        for each in found.items[:MOST_DRAWN]
    ]
    screen.table((f"INSTANT ({zone})", "OUTCOME", "LATE", "TOOK", "BECAUSE"), rows, fold=("BECAUSE",))
    if len(found.items) > MOST_DRAWN:
        screen.line(f"{len(found.items) - MOST_DRAWN:,} more rows are left out: --json has them all.", "dim")
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in found.counts.items())
    screen.line(f"{found.schedule}: {counts}. At most {found.most_at_once:,} at once.")
    if found.took == "unknown":
        screen.hint("How long its runs take is not known: here they take no time. Say it with --took.")
    if found.load is not None:
        at = moment(found.load.at, zone)
        rise = (
            f"{found.load.others:,} to {found.load.starts:,} starts; {found.load.busy:,.1f} of {found.load.capacity:,}"
        )
        screen.line(f"The load at {at} rises from {rise} slots are busy.")
    if found.partial:
        screen.hint("It was cut short: choose a shorter span.")


def _seconds(length: float) -> str:
    return format_duration(round(length) * 1_000_000 if length >= 10 else round(length * 1_000_000))
