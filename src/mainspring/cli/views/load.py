"""`mainspring load`."""

from __future__ import annotations

from datetime import timedelta

import click

from mainspring.cli.lazy import Errand
from mainspring.cli.opening import Scheduler, with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import moment
from mainspring.cli.session import Session
from mainspring.core.instants import parse_duration, to_datetime
from mainspring.operations.views import records

WIDEST = 40
"""Characters of the longest bar."""


@click.command(cls=Errand)
@click.option("--for", "length", default="24h", show_default=True, metavar="DURATION", help="How far to look ahead.")
@click.option("--bucket", default="1h", show_default=True, metavar="DURATION", help="How long each period is.")
@click.option("--queue", metavar="QUEUE", help="Only jobs of this queue.")
@click.option("--tag", metavar="TAG", help="Only jobs with this tag.")
@click.pass_obj
def load(session: Session, length: str, bucket: str, queue: str | None, tag: str | None) -> None:
    """Show what is planned to start in the time ahead, by period, and how many slots it keeps busy."""
    ahead = timedelta(microseconds=parse_duration(length, "for"))

    async def look(scheduler: Scheduler) -> records.Load:
        since = to_datetime(scheduler.now())
        return await scheduler.insight.load(since=since, until=since + ahead, bucket=bucket, queue=queue, tag=tag)

    found = with_scheduler(session, look)
    screen = Screen(session)
    screen.answer(found, lambda: _draw(screen, found))


def _draw(screen: Screen, found: records.Load) -> None:
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
