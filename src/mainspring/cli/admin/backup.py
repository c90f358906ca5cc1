"""`mainspring backup create`, `list`, `verify`, `restore`, `prune` and `doctor`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from mainspring.cli.lazy import Verb, stack
from mainspring.cli.opening import open_app
from mainspring.cli.output.errors import FAILED
from mainspring.cli.output.screen import Cell, Screen, size_text
from mainspring.cli.session import Session
from mainspring.clock import SystemClock
from mainspring.core.instants import format_instant
from mainspring.errors import InvalidInput
from mainspring.ops.backup import backups
from mainspring.ops.backup.archive import Progress, no_progress
from mainspring.ops.backup.manifest import Manifest
from mainspring.ops.backup.recovery import examine_recovery
from mainspring.ops.backup.settling import Settled
from mainspring.wiring import describe_store

_FOLDER = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("backups"),
    envvar="MAINSPRING_BACKUPS",
    show_default=True,
    help="The folder with the backups (MAINSPRING_BACKUPS).",
)
_RETENTION = stack(
    click.option("--hourly", type=click.IntRange(0), default=24, show_default=True, help="Hours to keep a backup of."),
    click.option("--daily", type=click.IntRange(0), default=7, show_default=True, help="Days to keep a backup of."),
)


@click.command(cls=Verb)
@_FOLDER
@click.option("--prune", "prunes", is_flag=True, help="Then remove backups that --hourly and --daily do not keep.")
@_RETENTION
@click.pass_obj
def create(session: Session, folder: Path, prunes: bool, hourly: int, daily: int) -> None:
    """Back the database up while it is in use: one consistent snapshot, compressed, with digests.

    The folder may be one that another tool copies elsewhere: a backup gets its name when it is complete.
    """
    app, screen = open_app(session), Screen(session)
    began = time.monotonic()
    with _progress(session) as progress:
        made = backups.create(app.settings, folder, app.clock, progress)
    took_s = time.monotonic() - began
    removed = backups.prune(folder, hourly, daily, app.clock.now()) if prunes else []

    def draw() -> None:
        rows = sum(made.rows.values())
        screen.line(f"Created {folder / made.name}: {rows:,} rows, {size_text(made.size)}, {took_s:.1f} s.")
        if removed:
            screen.line(f"Removed {len(removed)} older backups.")

    screen.answer({**_view(made), "took_s": round(took_s, 3), "removed": removed}, draw)


@click.command("list", cls=Verb)
@_FOLDER
@click.pass_obj
def list_all(session: Session, folder: Path) -> None:
    """List the backups of a folder, newest first."""
    screen = Screen(session)
    found, broken = backups.list_backups(folder)

    def draw() -> None:
        if not found:
            screen.hint(f"There is no backup in {folder}: `mainspring backup create` makes one.")
            return
        rows = [
            (each.name, format_instant(each.taken_at), each.store, f"{sum(each.rows.values()):,}", size_text(each.size))
            for each in found
        ]
        screen.table(("name", "taken at", "store", "rows", "size"), rows, cut=("store",), spare=("store",))

    screen.answer([_view(each) for each in found], draw)
    for each in broken:
        screen.warn(f"{each.name}: {each.problem}")


@click.command(cls=Verb)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@_FOLDER
@click.pass_obj
def verify(session: Session, names: tuple[str, ...], folder: Path) -> int:
    """Prove that backups can be restored: digests, structure, numbers of rows. Without NAME, of the newest one."""
    screen, failed, view = Screen(session), False, []
    for name in names or (None,):
        backup = backups.find(folder, name)
        problem = ""
        try:
            with _progress(session) as progress:
                backups.verify(backup, progress)
        except InvalidInput as error:
            problem, failed = str(error), True
        view.append({"name": backup.name, "good": not problem, "problem": problem})

    def draw() -> None:
        for each in view:
            good = Cell("good", "green") if each["good"] else Cell(f"{each['problem']}", "red")
            screen.facts([(f"{each['name']}", good)], width=24)

    screen.answer(view, draw)
    return FAILED if failed else 0


@click.command(cls=Verb)
@click.argument("name", required=False)
@_FOLDER
@click.option(
    "--moved",
    is_flag=True,
    help="Nothing ran since the backup: unfinished runs go on, and misfire policies decide about instants.",
)
@click.pass_obj
def restore(session: Session, name: str | None, folder: Path, moved: bool) -> None:
    """Restore a backup (the newest, or NAME) to the database of --store, which must not exist or must be empty.

    Stop all schedulers and workers first. Instants that were due since the backup are recorded as skipped, and runs
    that had not ended are cancelled. Either may have happened after the backup. `job backfill` and `run retry` bring
    back those that are known not to have.
    """
    app, screen = open_app(session), Screen(session)
    backup = backups.find(folder, name)
    for each in backups.newer_broken(backup) if name is None else ():
        screen.warn(f"{each.name} is newer, and cannot be restored: {each.problem}")
    began = time.monotonic()
    with _progress(session) as progress:
        manifest, settled = backups.restore(backup, app.settings, app.clock, progress, moved=moved)
    took_s = time.monotonic() - began
    view = {**_view(manifest), "took_s": round(took_s, 3), "epoch": settled.epoch, "moved": moved}
    view |= {"skipped_jobs": settled.jobs, "cancelled_runs": settled.cancelled}
    screen.answer(view, lambda: _draw_settled(screen, describe_store(app.settings), manifest, settled, took_s))


def _draw_settled(screen: Screen, where: str, manifest: Manifest, settled: Settled, took_s: float) -> None:
    rows = sum(manifest.rows.values())
    screen.line(
        f"Restored {manifest.name} of {manifest.store} to {where}: {rows:,} rows, all digests good, {took_s:.1f} s."
    )
    if settled.jobs:
        jobs = "1 job was" if settled.jobs == 1 else f"{settled.jobs:,} jobs were"
        screen.line(f"{jobs} due since the backup: those instants are skipped.")
        screen.hint("`mainspring job backfill` fires instants that are known not to have fired.")
    if settled.cancelled:
        runs = "1 run" if settled.cancelled == 1 else f"{settled.cancelled:,} runs"
        screen.line(f"{runs} had not ended in the backup, and count as cancelled.")
        screen.hint("`mainspring run retry` runs those again that are known not to have ended.")


@click.command(cls=Verb)
@_FOLDER
@_RETENTION
@click.option("--dry-run", is_flag=True, help="Only say which.")
@click.pass_obj
def prune(session: Session, folder: Path, hourly: int, daily: int, dry_run: bool) -> None:
    """Remove backups, except the newest one of each of the latest hours and days that have any.

    It also removes what backups left that were interrupted more than a day ago.
    """
    screen = Screen(session)
    removed = backups.prune(folder, hourly, daily, SystemClock().now(), dry_run=dry_run)
    verb = "Would remove" if dry_run else "Removed"

    def draw() -> None:
        for each in removed:
            screen.line(f"{verb} {each}.")
        if not removed:
            screen.line("Nothing to remove.")

    screen.answer(removed, draw)


@click.command(cls=Verb)
@_FOLDER
@click.pass_obj
def doctor(session: Session, folder: Path) -> int:
    """Say whether a loss of the store takes at most five minutes with it; exits 1 if not.

    On PostgreSQL that needs archiving of the log, and a base backup that the server's own tools make; on SQLite, a
    backup every five minutes. It also counts the hours and days of which there is a backup.
    """
    app, screen = open_app(session), Screen(session)
    findings = asyncio.run(examine_recovery(app.settings, folder, app.clock))

    def draw() -> None:
        for each in findings:
            style = {"good": "green", "warning": "yellow"}.get(each.state, "red")
            screen.facts([(each.part, Cell(f"{each.state:8}{each.detail}", style))])
            if each.remedy:
                screen.hint(f"{each.part}: {each.remedy}")

    screen.answer(findings, draw)
    return FAILED if any(each.state == "failed" for each in findings) else 0


def _view(manifest: Manifest) -> dict[str, object]:
    return {
        "name": manifest.name,
        "taken_at": format_instant(manifest.taken_at),
        "dialect": manifest.dialect,
        "store": manifest.store,
        "program": manifest.program,
        "schema": max(manifest.migrations),
        "rows": manifest.rows,
        "bytes": manifest.size,
    }


@contextmanager
def _progress(session: Session) -> Iterator[Progress]:
    """A bar on the standard error, if a person watches."""
    if session.as_json or not sys.stderr.isatty():
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        tasks = {}

        def show(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label)
            bars.update(tasks[label], completed=done, total=total or None)

        yield show
