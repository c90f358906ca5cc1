"""`mainspring run logs` and `run wait`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import click

from mainspring.app import Mainspring
from mainspring.cli.lazy import Verb
from mainspring.cli.naming import complete_run
from mainspring.cli.opening import with_app
from mainspring.cli.run_tables import describe_run
from mainspring.cli.screen import Screen
from mainspring.cli.session import Session
from mainspring.cli.times import clock_time, length
from mainspring.cli.trouble import RUN_FAILED
from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.model import LogLine, Run
from mainspring.core.states import FINAL, SUCCEEDED
from mainspring.errors import WaitTimeout
from mainspring.lookup import find_run
from mainspring.views import log_view, run_view

LOOK_S = 0.2
"""How often to look at a run that is being watched."""
PAGE = 1000

Tell = Callable[[Run], None]


@click.command(cls=Verb)
@click.argument("run_id", metavar="RUN", shell_complete=complete_run)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.pass_obj
def logs(session: Session, run_id: str, follow: bool) -> None:
    """Print what RUN wrote, all attempts together."""
    screen = Screen(session)
    stream = follow or not session.as_json

    async def copy(app: Mainspring) -> list[LogLine]:
        run = await find_run(app, run_id)
        lines = []
        async for line in _lines(app, run, follow=follow):
            if stream:
                _print_line(screen, line)
            lines.append(line)
        return lines if not follow else lines[:1]

    found = with_app(session, copy)
    if not stream:
        screen.json([log_view(line) for line in found])
    elif not found:
        screen.hint("It wrote nothing.")


async def _lines(app: Mainspring, run: Run, *, follow: bool) -> AsyncIterator[LogLine]:
    store = await app.open()
    position = 0
    while True:
        # Before the lines: what a run wrote is stored by the time that its end is.
        ended = not follow or (await store.get_run(run.namespace, run.id)).state in FINAL
        page = await store.list_logs(run.id, after=position, limit=PAGE)
        for _, line in page:
            yield line
        position = page[-1][0] if page else position
        if len(page) < PAGE:
            if ended:
                return
            await asyncio.sleep(LOOK_S)


def _print_line(screen: Screen, line: LogLine) -> None:
    if screen.session.as_json:
        click.echo(screen.encode(log_view(line)))
        return
    colored = screen.session.colored()
    time = f"{clock_time(line.at)} "
    text = click.style(line.text, fg="yellow") if line.stream == "stderr" else line.text
    click.echo(f"{click.style(time, dim=True)}{text}", color=colored)


@click.command(cls=Verb)
@click.argument("run_id", metavar="RUN", shell_complete=complete_run)
@click.option("--timeout", metavar="DURATION", help="Give up after this long; the run goes on.")
@click.pass_obj
def wait(session: Session, run_id: str, timeout: str | None) -> int:
    """Wait for RUN to end.

    Exits 0 if it succeeded, 3 if it failed, was cancelled or was skipped, and 1 if it has not ended in time.
    """
    seconds = None if timeout is None else parse_duration(timeout, "timeout") / SECOND
    screen = Screen(session)

    async def watch(app: Mainspring) -> Run:
        run = await find_run(app, run_id)
        with _bar(session, run) as tell:
            return await _until_ended(app, run, seconds, tell)

    run = with_app(session, watch)
    screen.answer(run_view(run), lambda: _tell_end(screen, run))
    return 0 if run.state == SUCCEEDED else RUN_FAILED


async def _until_ended(app: Mainspring, run: Run, seconds: float | None, tell: Tell) -> Run:
    store = await app.open()
    try:
        async with asyncio.timeout(seconds):
            while run.state not in FINAL:
                tell(run)
                await asyncio.sleep(LOOK_S)
                run = await store.get_run(run.namespace, run.id)
    except TimeoutError:
        raise WaitTimeout(
            f"run {run.id} is still {run.state} after {seconds:g} s, and goes on. "
            f"`mainspring run show {run.id}` says why"
        ) from None
    return run


@contextmanager
def _bar(session: Session, run: Run) -> Iterator[Tell]:
    """A progress bar on stderr, if somebody watches."""
    if session.as_json or not sys.stderr.isatty():
        yield lambda run: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    note = TextColumn("{task.fields[note]}", markup=False)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(30), note, TimeElapsedColumn()
    console = Console(stderr=True, no_color=not session.colored(sys.stderr))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(describe_run(run), total=None, note="")

        def tell(run: Run) -> None:
            done = run.progress is not None
            note = f"{run.progress:.0%} {run.progress_note}" if done else run.state
            progress.update(task, total=1.0 if done else None, completed=run.progress or 0.0, note=note)

        yield tell


def _tell_end(screen: Screen, run: Run) -> None:
    took = (
        "" if run.started_at is None or run.finished_at is None else f" in {length(run.finished_at - run.started_at)}"
    )
    screen.hint(f"{describe_run(run)} {run.state}{took}{f': {run.reason}' if run.reason else ''}")
    if run.result not in (None, "null"):
        click.echo(run.result)
