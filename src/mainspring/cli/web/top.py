"""`mainspring top`: the overview in a terminal, as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, show_answer, with_scheduler
from mainspring.cli.output.harmless import harmless
from mainspring.cli.output.screen import STATE_STYLES
from mainspring.cli.output.times import relative
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, from_datetime
from mainspring.errors import ServerUnavailable, StoreUnavailable
from mainspring.operations.records import ListedJob, ListedRun
from mainspring.operations.views.overview_records import Attention, Overview

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MOST_COUNTED = 10_000
METER_WIDTH = 20
LONGEST_NAME = 32
HIGH = 40
"""A terminal with this many lines has room for remedies."""
GLYPHS = {"failed": "✕", "missed": "!", "held": "◇", "paused": "‖"}
STYLES = {**STATE_STYLES, "held": "magenta", "paused": "magenta"}


@click.command(cls=RemoteVerb)
@click.option(
    "--every", "every_s", type=click.FloatRange(0.5, 60), default=1.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Print one look and end; so does output that is no terminal.")
@click.option("-n", "--rows", type=click.IntRange(1, 100), default=8, show_default=True, help="Rows of each list.")
@click.pass_obj
def top(session: Session, every_s: float, once: bool, rows: int) -> None:
    """Watch the overview: the leader, the workers, what waits, what needs attention, what runs, and what is next.

    Ctrl-C ends it.
    """
    if once or session.as_json or not session.colored():
        show_answer(
            session, lambda scheduler: scheduler.overview(), lambda screen, found, _: screen.draw(draw(found, rows))
        )
        return
    try:
        with_scheduler(session, lambda scheduler: _watch(scheduler, every_s, rows))
    except KeyboardInterrupt:
        return


async def _watch(scheduler: Backend, every_s: float, rows: int) -> None:
    from rich.console import Group
    from rich.live import Live

    found = await scheduler.overview()
    with Live(draw(found, rows), auto_refresh=False, screen=True) as live:
        while True:
            await asyncio.sleep(every_s)
            try:
                found = await scheduler.overview()
            except (ServerUnavailable, StoreUnavailable):
                live.update(Group(_text(f"no answer since {found.at.astimezone():%H:%M:%S}", "red"), draw(found, rows)))
            else:
                live.update(draw(found, rows))
            live.refresh()


def draw(found: Overview, rows: int) -> RenderableType:
    """The overview as it is drawn in a terminal."""
    from rich.console import Group

    now = from_datetime(found.at)
    parts: list[RenderableType] = [_facts(found, now)]
    parts += _titled("Needs attention", _attention(found.attention[:rows], now), len(found.attention) - rows)
    parts += _titled("Running now", _running(found.running[:rows], now), 0)
    parts += _titled("Next due", _next(found.next[:rows], now), 0)
    return Group(*parts)


def _facts(found: Overview, now: Instant) -> Table:
    counts, workers = found.counts, found.workers
    leader = found.leader
    leads = "none: no node plans firings" if leader is None else (
        f"{leader.owner}, term {leader.term}, since {relative(leader.since, now)}"
    )  # fmt: skip
    oldest = "" if found.oldest_due is None else f", oldest {relative(found.oldest_due, now)}"
    table = _grid()
    table.add_row("leader", _text(leads, "red" if leader is None else ""))
    table.add_row(
        "workers", _text(f"{workers.active} of {workers.known}  {_meter(workers.running, workers.slots)}", "")
    )
    waiting = (
        f"{_bounded(counts.due)} due{oldest} · {_bounded(counts.blocked)} blocked · {_bounded(counts.later)} later"
    )
    table.add_row("waiting", _text(waiting, ""))
    table.add_row("24 hours", _text(
        f"✓ {_bounded(counts.succeeded)}  ✕ {_bounded(counts.failed)}  ! {_bounded(counts.missed)}",
        "red" if counts.failed else "yellow" if counts.missed else "green",
    ))  # fmt: skip
    if found.degradation != "normal":
        table.add_row("pressure", _text(f"{found.degradation} ({found.pressure}): {found.given_up}", "yellow"))
    return table


def _attention(causes: Sequence[Attention], now: Instant) -> Table:
    table = _grid(1, wraps=True)
    with_remedies = get_terminal_size().lines >= HIGH
    for cause in causes:
        since = "" if cause.since is None else f" · {relative(cause.since, now)}"
        mark = _text(GLYPHS[cause.state], STYLES[cause.state])
        table.add_row(mark, _text(f"{_short(cause.name)} {cause.text}{since}", ""))
        if cause.remedy and with_remedies:
            table.add_row("", _text(cause.remedy.replace("`", ""), "dim"))
    if not causes:
        table.add_row(_text("✓", "green"), _text("Nothing needs attention.", ""))
    return table


def _running(runs: Sequence[ListedRun], now: Instant) -> Table:
    table = _grid(30)
    for run in runs:
        done = "" if run.progress is None else f"{run.progress:.0%}  "
        since = "" if run.started_at is None else relative(run.started_at, now)
        table.add_row(_text(_short(run.job or run.task), ""), _text(f"{done}{since}  {run.worker or ''}", "dim"))
    return table


def _next(jobs: Sequence[ListedJob], now: Instant) -> Table:
    table = _grid(30)
    for job in jobs:
        at = "" if job.next_fire_at is None else relative(job.next_fire_at, now)
        table.add_row(_text(_short(job.name), ""), _text(at, "dim"))
    return table


def _titled(title: str, table: Table, hidden: int) -> Iterable[RenderableType]:
    more = [_text(f"and {hidden} more", "dim")] if hidden > 0 else []
    content = [table] if table.row_count else [_text("none", "dim")]
    return [_text(f"\n{title}", "bold"), *content, *more]


def _grid(first_width: int = 10, *, wraps: bool = False) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=first_width, no_wrap=True)
    table.add_column(overflow="fold" if wraps else "ellipsis", no_wrap=not wraps)
    return table


def _text(text: str, style: str) -> RenderableType:
    from rich.text import Text

    return Text(harmless(text), style=style)


def _short(name: str) -> str:
    """A name that leaves room for what is wrong with its job."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _bounded(count: int) -> str:
    return f"{count:,}+" if count >= MOST_COUNTED else f"{count:,}"


def _meter(used: int, capacity: int) -> str:
    filled = round(METER_WIDTH * min(used / capacity, 1)) if capacity else 0
    return f"{'█' * filled}{'░' * (METER_WIDTH - filled)} {used} of {capacity} slots"
