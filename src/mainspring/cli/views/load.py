"""`mainspring load`, and what would flatten its peak."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, show_answer, with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import moment
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, parse_duration, to_datetime
from mainspring.core.schedules.triggers import Trigger, cron, every
from mainspring.errors import Conflict, NotFound
from mainspring.operations.planning.records import Spread
from mainspring.operations.views import records

WIDEST = 40
"""Characters of the longest bar."""


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

    async def look(scheduler: Backend) -> records.Load:
        since = to_datetime(scheduler.now())
        return await scheduler.insight.load(since=since, until=since + ahead, bucket=bucket, queue=queue, tag=tag)

    show_answer(session, look, _draw)


def _draw(screen: Screen, found: records.Load, _: Instant) -> None:
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
