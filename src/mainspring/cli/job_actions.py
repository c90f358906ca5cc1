"""`mainspring job pause`, `resume`, `remove` and `trigger`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypedDict, Unpack

import click

from mainspring.app import Mainspring
from mainspring.cli.filters import care_options, confirm, count_of
from mainspring.cli.job import describe_work
from mainspring.cli.lazy import Verb, stack
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import open_app, with_app
from mainspring.cli.screen import Screen, Value
from mainspring.cli.session import Session
from mainspring.cli.trouble import RUN_FAILED
from mainspring.core.model import Event, Firing, Job
from mainspring.core.triggers import describe
from mainspring.errors import Conflict
from mainspring.lookup import select_jobs, short_id
from mainspring.views import firing_view, job_view

Act = Callable[[Mainspring, list[Job]], Awaitable[list[Job]]]


class ChoiceWords(TypedDict):
    """Which jobs to act on, and how careful to be."""

    names: Sequence[str]
    everything: bool
    owner: str | None
    tag: str | None
    dry_run: bool
    yes: bool
    reason: str


choice_options = stack(
    click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_job),
    click.option("--all", "everything", is_flag=True, help="All jobs."),
    click.option("--app", "owner", metavar="NAME", help="All jobs of this app."),
    click.option("--tag", metavar="TAG", help="All jobs with this tag."),
    care_options,
)
"""Names, the options that select jobs, and those of actions on many."""


@click.command(cls=Verb)
@choice_options
@click.pass_obj
def pause(session: Session, **words: Unpack[ChoiceWords]) -> None:
    """Pause jobs: they fire no more. What comes due meanwhile is recorded as skipped; runs that exist go on."""

    async def act(app: Mainspring, jobs: list[Job]) -> list[Job]:
        return await app.pause(*(job.name for job in jobs), reason=words["reason"])

    _act(session, "Pause", words, act)


@click.command(cls=Verb)
@choice_options
@click.pass_obj
def resume(session: Session, **words: Unpack[ChoiceWords]) -> None:
    """Let paused jobs go on with their next instant after now."""

    async def act(app: Mainspring, jobs: list[Job]) -> list[Job]:
        resumed = await app.resume(*(job.name for job in jobs))
        await _note(app, jobs, words["reason"])
        return resumed

    _act(session, "Resume", words, act)


@click.command(cls=Verb)
@choice_options
@click.pass_obj
def remove(session: Session, **words: Unpack[ChoiceWords]) -> None:
    """Remove jobs. Runs that exist go on, and the ledger of what happened stays."""

    async def act(app: Mainspring, jobs: list[Job]) -> list[Job]:
        await _note(app, jobs, words["reason"])
        await remove_jobs(app, jobs)
        return jobs

    _act(session, "Remove", words, act)


async def remove_jobs(app: Mainspring, jobs: Sequence[Job]) -> None:
    """Remove jobs, those that fire after others first. Conflict, once no more can be removed, if others need them."""
    store = await app.open()
    left = list(jobs)
    while left:
        refused: list[tuple[Job, Conflict]] = []
        for job in left:
            try:
                await store.remove_job(job.namespace, job.name)
            except Conflict as error:
                refused.append((job, error))
        if len(refused) == len(left):
            raise refused[0][1]
        left = [job for job, _ in refused]


async def _note(app: Mainspring, jobs: Sequence[Job], reason: str) -> None:
    """Keep the reason where the action itself has no place for it: among the events."""
    if reason:
        store = await app.open()
        now = store.now()
        notes = [
            Event("job.noted", now, job.namespace, None, job.id, job.name, job.task, reason=reason) for job in jobs
        ]
        await store.tell(notes)


def _act(session: Session, verb: str, words: ChoiceWords, act: Act) -> None:
    selected = words["everything"] or words["owner"] is not None or words["tag"] is not None
    if selected == bool(words["names"]):
        how = "not both" if selected else "e.g. --tag nightly"
        raise click.UsageError(f"Name jobs, or select them with --all, --app or --tag: {how}.")
    app, screen = open_app(session), Screen(session)
    jobs = with_app(session, lambda app: _choose(app, words), app=app)
    if words["dry_run"] or not jobs:
        screen.answer([job_view(job) for job in jobs], lambda: _draw(screen, jobs))
        screen.hint(f"{verb} {count_of(jobs, 'job')}: nothing was done{', for this was a dry run' if jobs else ''}.")
        return
    if selected:
        confirm(f"{verb} {count_of(jobs, 'job')}?", yes=words["yes"])
    done = with_app(session, lambda app: act(app, jobs), app=app)
    screen.answer([job_view(job) for job in done], lambda: _draw(screen, done))
    screen.hint(f"{_PAST[verb]} {count_of(done, 'job')}.")


_PAST = {"Pause": "Paused", "Resume": "Resumed", "Remove": "Removed"}


async def _choose(app: Mainspring, words: ChoiceWords) -> list[Job]:
    if not words["names"]:
        return await select_jobs(app, words["owner"], words["tag"])
    store = await app.open()
    return [await store.get_job(app.settings.namespace, name) for name in dict.fromkeys(words["names"])]


def _draw(screen: Screen, jobs: Sequence[Job]) -> None:
    if jobs:
        rows: list[list[Value]] = [[job.name, describe(job.trigger), describe_work(job)] for job in jobs]
        screen.table(("NAME", "SCHEDULE", "TASK"), rows, cut=("SCHEDULE", "TASK"))


@click.command(cls=Verb)
@click.argument("name", shell_complete=complete_job)
@click.option("--request-id", metavar="ID", help="Repeated with the same id, it is the same firing.")
@click.pass_obj
def trigger(session: Session, name: str, request_id: str | None) -> int:
    """Fire job NAME now, by hand. Its overlap policy holds: exits 3 if that leaves the firing without a run."""
    firing = with_app(session, lambda app: app.trigger(name, request_id))
    screen = Screen(session)
    screen.answer(firing_view(firing), lambda: _tell(screen, name, firing))
    return 0 if firing.run_id is not None else RUN_FAILED


def _tell(screen: Screen, name: str, firing: Firing) -> None:
    if firing.run_id is None:
        screen.hint(f"{name} was not run: {firing.reason}")
        return
    click.echo(firing.run_id)
    screen.hint(f"Fired {name}. Watch it: mainspring run wait {short_id(firing.run_id)}")
