"""`mainspring job sync`, and what `up` and `worker` do with the jobs that code declares."""

from __future__ import annotations

from typing import Literal, get_args

import click

from mainspring.api.shapes import Synced
from mainspring.app import Mainspring
from mainspring.cli.job_actions import remove_jobs
from mainspring.cli.lazy import Errand
from mainspring.cli.opening import open_app, with_scheduler
from mainspring.cli.scheduler import Scheduler
from mainspring.cli.screen import Screen, Value
from mainspring.cli.session import Session
from mainspring.core.revision import revise

Undeclared = Literal["report", "pause", "remove"]

undeclared_option = click.option(
    "--undeclared",
    type=click.Choice(get_args(Undeclared)),
    default="report",
    show_default=True,
    help="What to do about stored jobs that the app no longer declares.",
)


async def sync_jobs(scheduler: Scheduler, app: Mainspring, undeclared: Undeclared) -> Synced:
    """Store what the app declares, and treat what it no longer does as asked."""
    saved = await scheduler.jobs.sync(app)
    if saved.undeclared and undeclared == "pause":
        await scheduler.jobs.pause(*saved.undeclared, reason=f"app {app.name} no longer declares it")
    if saved.undeclared and undeclared == "remove":
        await remove_jobs(scheduler, saved.undeclared)
    return saved


async def compare_jobs(app: Mainspring) -> list[str]:
    """How the stored jobs differ from what the app declares; nothing is changed."""
    store = await app.open()
    now = store.now()
    stored = {job.name: job for job in await store.list_jobs(app.settings.namespace, app=app.name)}
    calendars = await store.list_calendars(app.settings.namespace)
    differences = []
    for job in app.declared_jobs(now):
        if job.name not in stored:
            differences.append(f"job {job.name} is declared but not stored")
        elif revise(stored.pop(job.name), job, now, calendars) is not None:
            differences.append(f"job {job.name} is stored otherwise than declared")
    return differences


def describe_saved(saved: Synced, undeclared: Undeclared) -> str:
    """What a sync did, in one line."""
    treated = {"report": "left as they are", "pause": "paused", "remove": "removed"}[undeclared]
    parts = [
        f"{len(names)} {word}{f' ({_some(names)})' if names and word != 'unchanged' else ''}"
        for word, names in (("created", saved.created), ("updated", saved.updated), ("unchanged", saved.unchanged))
        if names
    ]
    if saved.undeclared:
        parts.append(f"{len(saved.undeclared)} no longer declared, {treated} ({_some(saved.undeclared)})")
    return ", ".join(parts) or "none declared"


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


@click.command(cls=Errand)
@click.argument("ref", metavar="APP")
@undeclared_option
@click.pass_obj
def sync(session: Session, ref: str, undeclared: Undeclared) -> None:
    """Store the jobs that APP (`module:app` or `file.py`) declares: all or nothing.

    Changed ones are updated; runs that exist are not touched.
    """
    app = open_app(session, ref)
    saved = with_scheduler(session, lambda scheduler: sync_jobs(scheduler, app, undeclared), app=app, create=True)
    screen = Screen(session)
    screen.answer(saved, lambda: _draw(screen, saved))
    if saved.undeclared and undeclared == "report":
        screen.hint("Jobs that are no longer declared still fire: --undeclared pause or remove changes that.")


def _draw(screen: Screen, saved: Synced) -> None:
    rows: list[tuple[str, Value]] = [
        (word, ", ".join(names))
        for word, names in (
            ("created", saved.created),
            ("updated", saved.updated),
            ("unchanged", saved.unchanged),
            ("undeclared", saved.undeclared),
        )
    ]
    if any(value for _, value in rows):
        screen.facts(rows)
    else:
        screen.hint("The app declares no jobs.")
