"""`mainspring run logs` and `run wait`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import complete_run, find_run
from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.output.errors import RUN_FAILED
from mainspring.cli.output.harmless import harmless, harmless_line
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import clock_time, instant_of, length
from mainspring.cli.runs.tables import describe_run
from mainspring.cli.session import Session
from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.states import FINAL, SUCCEEDED
from mainspring.operations import records
from mainspring.operations.runs import still_running

LOOK_S = 1.0
"""How often a followed run's progress is read; its end is known at once."""
UNWATCHED_S = 20.0

Show = Callable[[records.Run], None]


@click.command(cls=RemoteVerb)
@click.argument("run_id", metavar="RUN", shell_complete=complete_run)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("--raw", is_flag=True, help="Exactly what it wrote: no times, and nothing escaped.")
@click.pass_obj
def logs(session: Session, run_id: str, follow: bool, raw: bool) -> None:
    """Print what RUN wrote, all attempts together.

    Escape sequences and characters that reorder text are shown in a visible form, and have no effect. Colours are
    left out. --raw prints everything unchanged.
    """
    if raw and session.as_json:
        raise click.UsageError("--raw and --json exclude each other: JSON has the text exactly, escaped.")
    screen = Screen(session)
    stream = follow or not session.as_json

    async def copy(scheduler: Backend) -> list[records.Line]:
        run = await find_run(scheduler, run_id)
        lines: list[records.Line] = []
        async for line in scheduler.runs.logs(run.run_id, follow=follow):
            if stream:
                _print_line(screen, line, raw=raw)
            if not (follow and lines):
                lines.append(line)
        return lines

    found = with_scheduler(session, copy)
    if not stream:
        screen.json([_view(line) for line in found])
    elif not found:
        screen.hint("It wrote nothing.")


def _view(line: records.Line) -> dict[str, object]:
    return {"at": line.at, "attempt": line.attempt, "stream": line.stream, "text": line.text}


def _print_line(screen: Screen, line: records.Line, *, raw: bool) -> None:
    if screen.session.as_json:
        click.echo(screen.encode(_view(line)))
        return
    if raw:
        click.echo(line.text, color=True)  # Otherwise click would take the colours out.
        return
    colored = screen.session.colored()
    time, text = f"{clock_time(line.at)} ", harmless_line(line.text)
    text = click.style(text, fg="yellow") if line.stream == "stderr" else text
    click.echo(f"{click.style(time, dim=True)}{text}", color=colored)


@click.command(cls=RemoteVerb)
@click.argument("run_id", metavar="RUN", shell_complete=complete_run)
@click.option("--timeout", metavar="DURATION", help="Give up after this long; the run goes on.")
@click.pass_obj
def wait(session: Session, run_id: str, timeout: str | None) -> int:
    """Wait for RUN to end.

    Exits 0 if it succeeded, 3 if it failed, was cancelled or was skipped, and 1 if it has not ended in time.
    """
    seconds = None if timeout is None else parse_duration(timeout, "timeout") / SECOND
    screen = Screen(session)

    async def watch(scheduler: Backend) -> records.Run:
        run = await find_run(scheduler, run_id)
        with _bar(session, run) as show:
            look_s = LOOK_S if _is_watched(session) else UNWATCHED_S
            return await _until_ended(scheduler, run, seconds, look_s, show)

    run = with_scheduler(session, watch)
    screen.answer(run, lambda: _tell_end(screen, run))
    return 0 if run.state == SUCCEEDED else RUN_FAILED


async def _until_ended(
    scheduler: Backend, run: records.Run, seconds: float | None, look_s: float, show: Show
) -> records.Run:
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    while run.state not in FINAL:
        show(run)
        left = UNWATCHED_S if deadline is None else deadline - loop.time()
        if left <= 0:
            raise still_running(run, f"{seconds:g} s")
        run = await scheduler.runs.poll(run.run_id, min(left, look_s))
    return run


def _is_watched(session: Session) -> bool:
    return not session.as_json and sys.stderr.isatty()


@contextmanager
def _bar(session: Session, run: records.Run) -> Iterator[Show]:
    """A progress bar on stderr, if it is a terminal."""
    if not _is_watched(session):
        yield lambda run: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    note = TextColumn("{task.fields[note]}", markup=False)
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(30), note, TimeElapsedColumn()
    console = Console(stderr=True, no_color=not session.colored(sys.stderr))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(harmless(describe_run(run)), total=None, note="")

        def show(run: records.Run) -> None:
            done = run.progress is not None
            note = f"{run.progress:.0%} {run.progress_note}" if done else run.state
            progress.update(task, total=1.0 if done else None, completed=run.progress or 0.0, note=harmless(note))

        yield show


def _tell_end(screen: Screen, run: records.Run) -> None:
    took = ""
    if run.started_at is not None and run.finished_at is not None:
        took = f" in {length(instant_of(run.finished_at) - instant_of(run.started_at))}"
    screen.hint(f"{describe_run(run)} {run.state}{took}{f': {run.reason}' if run.reason else ''}")
    if run.result is not None:
        click.echo(screen.encode(run.result))
