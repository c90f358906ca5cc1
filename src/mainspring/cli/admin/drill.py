"""`mainspring drill run` and `list`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import click

from mainspring.cli.lazy import Verb, stack
from mainspring.cli.output.errors import FAILED
from mainspring.cli.output.screen import Cell, Screen
from mainspring.cli.session import Session
from mainspring.clock import SystemClock
from mainspring.core.instants import format_instant, parse_duration
from mainspring.errors import InvalidInput
from mainspring.ops.drill.archive import due, keep, kept
from mainspring.ops.drill.checklist import Check, Report
from mainspring.ops.drill.drill import Drill, Options
from mainspring.ops.drill.site import CommandSite, Site

_STYLES = {"pass": "green", "fail": "red", "skipped": "dim"}
_FOLDER = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("drills"),
    envvar="MAINSPRING_DRILLS",
    show_default=True,
    help="The folder with the reports (MAINSPRING_DRILLS).",
)
_COMMANDS = stack(
    click.option("--fail-with", metavar="COMMAND", help="Stops the primary. Without it, the drill waits until it is."),
    click.option("--promote-with", metavar="COMMAND", help="Promotes the standby. Without it, by SQL."),
    click.option("--redirect-with", metavar="COMMAND", help="Redirects clients, such as by DNS."),
    click.option("--restore-with", metavar="COMMAND", help="Makes the first primary follow the new one."),
    click.option("--fail-back-with", metavar="COMMAND", help="Makes the first primary the primary again."),
)


@click.command(cls=Verb)
@click.option("--local", is_flag=True, help="Build two sites on this machine, and drill them.")
@click.option("--primary", metavar="URL", help="The database of the primary.")
@click.option("--standby", metavar="URL", help="The database that follows it.")
@click.option("--server", "servers", metavar="URL", multiple=True, help="A server that survives; may be repeated.")
@click.option("--broker", metavar="URL", envvar="MAINSPRING_BROKER", help="The broker of the fleet.")
@click.option("--cache", metavar="URL", envvar="MAINSPRING_CACHE", help="The status cache of the fleet.")
@click.option("--prometheus", metavar="URL", help="Where the alerts have to be configured.")
@click.option("--on-call", metavar="NAME", help="The engineer who was notified.")
@click.option(
    "--runs", type=click.IntRange(1), default=1_000, show_default=True, help="Runs that validate the standby."
)
@click.option("--quiet", default="5m", show_default=True, help="How long to watch after the fail-back.")
@_COMMANDS
@_FOLDER
@click.pass_obj
def run(
    session: Session,
    /,
    local: bool,
    primary: str | None,
    standby: str | None,
    servers: tuple[str, ...],
    broker: str | None,
    cache: str | None,
    prometheus: str | None,
    on_call: str | None,
    runs: int,
    quiet: str,
    folder: Path,
    **commands: str | None,
) -> int:
    """Fail the primary, let the standby take over, prove that nothing is lost, and fail back.

    Each line of the checklist passes or fails. The report is kept as Markdown and JSON. Exits 1 if a line failed.
    """
    screen, watch = Screen(session), parse_duration(quiet, "quiet")
    folder.mkdir(parents=True, exist_ok=True)  # A drill whose report cannot be kept is not begun.
    with ExitStack() as started:
        site: Site
        if local:
            from mainspring.ops.drill.local import LocalSite

            _refuse_others(primary, standby, servers, commands)
            screen.hint("Building two sites on this machine ...")
            site = built = started.enter_context(LocalSite())
            broker = cache = built.broker
        elif primary is None or standby is None:
            missing = "primary" if primary is None else "standby"
            raise InvalidInput(missing, None, "is missing", "name both databases, or drill this machine with --local")
        else:
            given = {name.removesuffix("_with"): text for name, text in commands.items() if text is not None}
            site = CommandSite(primary, standby, given, servers)
        options = Options(
            runs=runs,
            quiet=watch,
            on_call=on_call,
            prometheus=prometheus,
            broker=broker,
            cache=cache,
        )
        drill = Drill(site, options, lambda line: _draw_line(screen, line))
        report = asyncio.run(drill.play(SystemClock().now()))
    markdown, _ = keep(report, folder)
    screen.answer(report, lambda: _draw(screen, report, markdown))
    return 0 if report.passed else FAILED


def _refuse_others(
    primary: str | None, standby: str | None, servers: tuple[str, ...], commands: Mapping[str, str | None]
) -> None:
    """InvalidInput if a drill of this machine is also to be one of another site."""
    given = {"primary": primary, "standby": standby, "server": ", ".join(servers), **commands}
    for name, value in given.items():
        if value:
            remedy = "leave it out, or leave --local out"
            raise InvalidInput(name.replace("_", "-"), value, "is of another site than the one of --local", remedy)


@click.command("list", cls=Verb)
@_FOLDER
@click.pass_obj
def list_all(session: Session, folder: Path) -> int:
    """List the drills of a folder, newest first, and say when the next is due. Exits 1 if it is overdue."""
    screen, reports = Screen(session), kept(folder)
    next_at = due(reports)
    overdue = next_at is None or next_at < SystemClock().now()

    def draw() -> None:
        for each in reports:
            result = Cell("PASS" if each.passed else "FAIL", "green" if each.passed else "red")
            screen.facts([(format_instant(each.began_at)[:19], result)], width=19)
        when = "now: none has passed" if next_at is None else f"by {format_instant(next_at)[:10]}"
        screen.line(f"The next drill is due {when}.")

    found = [{"began_at": format_instant(each.began_at), "passed": each.passed} for each in reports]
    screen.answer({"drills": found, "next": None if next_at is None else format_instant(next_at)}, draw)
    return FAILED if overdue else 0


def _draw_line(screen: Screen, line: Check) -> None:
    if not screen.session.as_json:
        said = f"{line.state.upper():8}{line.took_s:7.2f} s  {line.name}{f': {line.detail}' if line.detail else ''}"
        screen.line(said, _STYLES[line.state])


def _draw(screen: Screen, report: Report, kept_in: Path) -> None:
    counted = {state: sum(line.state == state for line in report.lines) for state in _STYLES}
    screen.title(f"{'PASS' if report.passed else 'FAIL'}: {', '.join(f'{n} {state}' for state, n in counted.items())}")
    screen.facts(
        [
            ("recovery", "never" if report.recovery_s is None else f"{report.recovery_s:.1f} s (below 15 min)"),
            ("lost", "not known" if report.lost_s is None else f"{report.lost} submissions, {report.lost_s:.1f} s"),
            ("report", str(kept_in)),
            ("next drill", report.next_drill),
        ]
    )
