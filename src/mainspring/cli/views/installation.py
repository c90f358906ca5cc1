"""`mainspring versions` and `mainspring settings`."""

from __future__ import annotations

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, show_answer
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import relative
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.operations.installation import ShownSettings, Versions


@click.command(cls=RemoteVerb)
@click.pass_obj
def versions(session: Session) -> None:
    """Show which version each process runs, and that of the database's schema."""
    show_answer(session, lambda scheduler: scheduler.versions(), _draw_versions)


def _draw_versions(screen: Screen, found: Versions, now: Instant) -> None:
    since = [None if each.started_at is None else relative(each.started_at, now) for each in found.processes]
    rows = [
        [each.process, each.kind, each.version or "unknown", started or ""]
        for each, started in zip(found.processes, since, strict=True)
    ]
    screen.table(("PROCESS", "KIND", "VERSION", "STARTED"), rows)
    behind = "" if found.schema == found.newest_schema else f", the newest is {found.newest_schema}"
    screen.line(f"The schema of the database has version {found.schema}{behind}.")


@click.command("settings", cls=RemoteVerb)
@click.option("--changed", is_flag=True, help="Only those that are not at their default.")
@click.pass_obj
def show_settings(session: Session, *, changed: bool) -> None:
    """Show the settings that are in effect: of the server, or of this program. Secrets are masked."""

    async def look(scheduler: Backend) -> ShownSettings:
        found = (await scheduler.settings()).items
        return ShownSettings([each for each in found if not (changed and each.is_default)])

    show_answer(session, look, _draw_settings)


def _draw_settings(screen: Screen, shown: ShownSettings, _: Instant) -> None:
    rows = [[each.name, each.value, each.default, each.variable] for each in shown.items]
    screen.table(("SETTING", "VALUE", "DEFAULT", "VARIABLE"), rows)
