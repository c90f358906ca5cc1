"""`mainspring service-levels`."""

from __future__ import annotations

from datetime import datetime

import click

from mainspring.cli.filters import read_since
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.session import Session
from mainspring.operations.views import records


@click.command(cls=RemoteVerb)
@click.option(
    "--since", metavar="WHEN", callback=read_since, help="From an instant on, or from 2h ago; by default 24h."
)
@click.pass_obj
def service_levels(session: Session, since: datetime | None) -> None:
    """Show how many runs of each priority started within its service level.

    The setting service_levels names the levels: how long after it is due a run starts at the latest.
    """
    screen = Screen(session)
    found = with_scheduler(session, lambda scheduler: scheduler.insight.service_levels(since=since))
    screen.answer(found.items, lambda: _draw(screen, found))


def _draw(screen: Screen, found: records.ServiceLevels) -> None:
    if not found.items:
        screen.hint("No priority has a service level, and no start has been counted.")
        return
    rows = [
        [
            str(each.priority),
            each.within or "",
            str(each.starts),
            str(each.late) if each.within is not None else "",
            "" if each.met is None else f"{100 * each.met:.2f} %",
            _seconds(each.late_p50),
            _seconds(each.late_p99),
        ]
        for each in found.items
    ]
    screen.table(("PRIORITY", "WITHIN", "STARTS", "LATE", "MET", "P50", "P99"), rows)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"
