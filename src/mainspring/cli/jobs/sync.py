"""`mainspring job sync`, and what `up` and `worker` do with the jobs that code declares."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal, get_args

import click
import msgspec

from mainspring.cli.filters import count_of
from mainspring.cli.jobs.act import remove_jobs
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import Backend, open_app, with_scheduler
from mainspring.cli.output.screen import Screen, Value
from mainspring.cli.session import Session
from mainspring.core.instants import to_datetime
from mainspring.core.model import DEFAULT
from mainspring.core.planning.declaring import PAGE, UNDECLARED, may_give_up
from mainspring.core.planning.revision import revise
from mainspring.errors import InvalidInput
from mainspring.operations.records import Job, Synced
from mainspring.sdk.app import Mainspring

MICROSECOND: Final = timedelta(microseconds=1)
_FEW = 5
"""How many unchanged jobs are listed by name."""
Undeclared = Literal["report", "pause", "remove"]
MOST = 1_000
"""The most undeclared jobs of one sync; the rest follow with the next."""

undeclared_option = click.option(
    "--undeclared",
    type=click.Choice(get_args(Undeclared)),
    default="pause",
    show_default=True,
    help="What to do about stored jobs that the app's code declared before, and no longer does.",
)


async def sync_jobs(scheduler: Backend, app: Mainspring, undeclared: Undeclared) -> Synced:
    """Store what the app declares, and treat what its code no longer does as asked."""
    if undeclared == "remove" and app.name == DEFAULT:
        problem = "would remove jobs of an app without a name of its own, which others may share"
        raise InvalidInput("undeclared", undeclared, problem, 'name it: Mainspring(name="..."); or use pause')
    saved = await scheduler.jobs.sync(app)
    if not saved.undeclared or undeclared == "report":
        return saved
    given_up = await _choose(scheduler, app, saved.undeclared[:MOST])
    if undeclared == "remove":
        await remove_jobs(scheduler, [job.name for job in given_up])
        return msgspec.structs.replace(saved, removed=[job.name for job in given_up])
    active = [job.name for job in given_up if job.state == "active"]
    if active:
        await scheduler.jobs.pause(*active, reason=UNDECLARED)
    return msgspec.structs.replace(saved, paused=active)


async def _choose(scheduler: Backend, app: Mainspring, names: Sequence[str]) -> list[Job]:
    """The undeclared jobs that this code may give up."""
    now = to_datetime(scheduler.now())
    patience = timedelta(microseconds=app.settings.worker_dead_after)
    workers = [each for each in await scheduler.workers.list() if each.state in ("active", "draining")]
    live = [each for each in workers if each.heartbeat_at > now - patience]
    live_tasks = {task for each in live for task in each.tasks}
    alone = all(each.app != app.name for each in live)
    jobs = [await scheduler.jobs.get(name) for name in names]
    return [
        job
        for job in jobs
        if may_give_up(job.task, (now - job.created_at) // MICROSECOND, app.tasks, live_tasks, alone=alone)
    ]


async def compare_jobs(app: Mainspring) -> list[str]:
    """How the stored jobs differ from what the app declares; nothing is changed."""
    store = await app.open()
    now, namespace = store.now(), app.settings.namespace
    calendars = await store.list_calendars(namespace)
    declared, differences = app.declared_jobs(now), []
    for start in range(0, len(declared), PAGE):
        page = declared[start : start + PAGE]
        stored = {job.name: job for job in await store.find_jobs(namespace, [job.name for job in page])}
        for job in page:
            if job.name not in stored:
                differences.append(f"job {job.name} is declared but not stored")
            elif revise(stored[job.name], job, now, calendars) is not None:
                differences.append(f"job {job.name} is stored otherwise than declared")
    return differences


def describe_saved(saved: Synced) -> str:
    """What a sync did, in one line."""
    named = (("created", saved.created), ("updated", saved.updated), ("declared again, resumed", saved.resumed))
    parts = [f"{len(names)} {word} ({_some(names)})" for word, names in named if names]
    if saved.unchanged:
        parts.append(f"{len(saved.unchanged)} unchanged")
    for word, names in _treated(saved):
        parts.append(f"{len(names)} no longer declared, {word} ({_some(names)})")
    return ", ".join(parts) or "none declared"


def _treated(saved: Synced) -> list[tuple[str, list[str]]]:
    """What became of the jobs that are no longer declared."""
    done = {*saved.paused, *saved.removed}
    left = [name for name in saved.undeclared if name not in done]
    return [
        (word, names)
        for word, names in (("paused", saved.paused), ("removed", saved.removed), ("left as they are", left))
        if names
    ]


def _some(names: list[str]) -> str:
    return ", ".join(names[:_FEW]) + (", …" if len(names) > _FEW else "")


@click.command(cls=RemoteVerb)
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
    hint_at_undeclared(screen, saved, undeclared)


def hint_at_undeclared(screen: Screen, saved: Synced, undeclared: Undeclared) -> None:
    """Say why jobs that are no longer declared were left as they are, and what to do about it."""
    if not any(word.startswith("left") for word, _ in _treated(saved)):
        return
    if undeclared == "report":
        screen.hint("Jobs that are no longer declared still fire: --undeclared pause or remove changes that.")
    else:
        screen.hint(
            "Jobs that are paused already, that a live worker of other code still knows, or that are new while other "
            "workers of this app live, are left as they are: `mainspring job pause NAME` or `job remove NAME`."
        )


def _draw(screen: Screen, saved: Synced) -> None:
    rows: list[tuple[str, Value]] = [
        (word, ", ".join(names))
        for word, names in (
            ("created", saved.created),
            ("updated", saved.updated),
            ("unchanged", saved.unchanged if len(saved.unchanged) <= _FEW else [count_of(saved.unchanged, "job")]),
            ("resumed", saved.resumed),
            *(("undeclared" if word.startswith("left") else word, names) for word, names in _treated(saved)),
        )
    ]
    if any(value for _, value in rows):
        screen.facts(rows)
    else:
        screen.hint("The app declares no jobs.")
