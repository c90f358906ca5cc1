"""`mainspring db status` and `db migrate`."""

from __future__ import annotations

from pathlib import Path

import click

from mainspring.cli.lazy import Verb
from mainspring.cli.opening import open_app, with_app
from mainspring.cli.output.errors import FAILED
from mainspring.cli.output.screen import Cell, Screen, Value, size_text, state_cell
from mainspring.cli.session import Session
from mainspring.core.states import STATES, State
from mainspring.operations.operations import Operations
from mainspring.process.urls import show_url
from mainspring.sdk.app import Mainspring
from mainspring.wiring import DatabaseStatus, database_status


@click.command(cls=Verb)
@click.pass_obj
def status(session: Session) -> int:
    """Show where the database is, which version its schema has, and what it holds. Nothing is created or changed."""
    app, screen = open_app(session), Screen(session)
    found = database_status(app.settings)
    current = found.exists and found.version == found.latest
    runs, jobs = with_app(session, _count, app=app) if current else ({}, 0)
    view = {
        "store": show_url(app.settings.store),
        "path": found.path,
        "exists": found.exists,
        "size": found.size,
        "version": found.version,
        "latest": found.latest,
        "usable": not found.refusal,
        "jobs": jobs,
        "runs": {state: runs.get(state, 0) for state in STATES},
    }
    screen.answer(view, lambda: _draw(screen, show_url(app.settings.store), found, jobs, runs))
    return FAILED if found.refusal else 0


async def _count(app: Mainspring) -> tuple[dict[State, int], int]:
    store = await app.open()
    jobs = [job.name async for job in Operations(app).jobs.list()]
    return await store.count_runs(app.settings.namespace), len(jobs)


def _draw(screen: Screen, url: str, found: DatabaseStatus, jobs: int, runs: dict[State, int]) -> None:
    facts: list[tuple[str, Value]] = [("store", url)]
    if found.path != url:
        facts.append(("file", str(Path(found.path).absolute())))
    if not found.exists:
        state = "there is no database yet" if found.size == 0 else "nothing of Mainspring's is in this database yet"
        screen.facts([*facts, ("state", Cell(state, "yellow"))])
        screen.hint("Make one with `mainspring db migrate`; `up`, `job add` and `run submit` do it too.")
        return
    facts += [("size", size_text(found.size)), ("schema", _schema(found))]
    if found.version == found.latest:
        facts.append(("jobs", str(jobs)))
        facts += [(state, Cell(str(runs[state]), state_cell(state).style)) for state in STATES if runs.get(state)]
    screen.facts(facts)


def _schema(found: DatabaseStatus) -> Cell:
    if found.refusal:
        return Cell(f"the database {found.refusal}", "red")
    if found.version < found.latest:
        return Cell(f"version {found.version} of {found.latest}: run `mainspring db migrate`", "yellow")
    return Cell(f"version {found.version}, up to date", "green")


@click.command(cls=Verb)
@click.pass_obj
def migrate(session: Session) -> None:
    """Create the database, or bring its schema up to date. Running programs of the version before may go on."""
    app, screen = open_app(session), Screen(session)
    before = database_status(app.settings)

    async def touch(app: Mainspring) -> None:
        await app.open()

    with_app(session, touch, app=app, create=True)
    after = database_status(app.settings)
    url = show_url(app.settings.store)
    view = {"store": url, "path": after.path, "from_version": before.version, "version": after.version}
    screen.answer(view, lambda: screen.line(_describe(before, after)))


def _describe(before: DatabaseStatus, after: DatabaseStatus) -> str:
    if not before.exists:
        return f"Created {after.path}, schema version {after.version}."
    if before.version == after.version:
        return f"{after.path} is up to date, schema version {after.version}."
    return f"Migrated {after.path} from schema version {before.version} to {after.version}."
