"""`mainspring job pause`, `resume`, `remove` and `trigger`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypedDict, Unpack

import click
import msgspec

from mainspring.cli.filters import bulk_options, confirm, count_of
from mainspring.cli.jobs.show import describe_work
from mainspring.cli.lazy import RemoteVerb, stack
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.output.errors import RUN_FAILED
from mainspring.cli.output.screen import Screen, Value
from mainspring.cli.session import Session
from mainspring.cli.web.addresses import Pages, web_option
from mainspring.errors import Conflict
from mainspring.operations import records
from mainspring.operations.views.explain import short_id

Act = Callable[[Backend, Sequence[str]], Awaitable[Sequence[records.Job] | None]]
"""Acts on the jobs of these names; returns them as they are then, or None if they are gone."""


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
    bulk_options,
)
"""Names, the options that select jobs, and those of actions on many."""


@click.command(cls=RemoteVerb)
@choice_options
@click.pass_obj
def pause(session: Session, **words: Unpack[ChoiceWords]) -> None:
    """Pause jobs: they fire no more. What comes due meanwhile is recorded as skipped; runs that exist go on."""

    _act(session, "Pause", words, lambda scheduler, names: scheduler.jobs.pause(*names, reason=words["reason"]))


@click.command(cls=RemoteVerb)
@choice_options
@click.pass_obj
def resume(session: Session, **words: Unpack[ChoiceWords]) -> None:
    """Let paused jobs go on with their next instant after now."""

    _act(session, "Resume", words, lambda scheduler, names: scheduler.jobs.resume(*names, reason=words["reason"]))


@click.command(cls=RemoteVerb)
@choice_options
@click.pass_obj
def remove(session: Session, **words: Unpack[ChoiceWords]) -> None:
    """Remove jobs. Runs that exist go on, and the ledger of what happened stays."""

    _act(session, "Remove", words, lambda scheduler, names: remove_jobs(scheduler, names, words["reason"]))


async def remove_jobs(scheduler: Backend, names: Sequence[str], reason: str = "") -> None:
    """Remove jobs, those that fire after others first. Conflict, once no more can be removed, if others need them."""
    left = list(names)
    while left:
        refused: dict[str, Conflict] = {}
        for name in left:
            try:
                await scheduler.jobs.remove(name, reason=reason)
            except Conflict as error:
                refused[name] = error
        if len(refused) == len(left):
            raise refused[left[0]]
        left = list(refused)


def _act(session: Session, verb: str, words: ChoiceWords, act: Act) -> None:
    selected = words["everything"] or words["owner"] is not None or words["tag"] is not None
    if selected == bool(words["names"]):
        how = "not both" if selected else "e.g. --tag nightly"
        raise click.UsageError(f"Name jobs, or select them with --all, --app or --tag: {how}.")
    screen = Screen(session)
    jobs = with_scheduler(session, lambda scheduler: _choose(scheduler, words))
    if words["dry_run"] or not jobs:
        screen.answer(jobs, lambda: _draw(screen, jobs))
        screen.hint(f"{verb} {count_of(jobs, 'job')}: nothing was done{', for this was a dry run' if jobs else ''}.")
        return
    if selected:
        confirm(f"{verb} {count_of(jobs, 'job')}?", yes=words["yes"])
    done = with_scheduler(session, lambda scheduler: act(scheduler, [job.name for job in jobs])) or jobs
    screen.answer(done, lambda: _draw(screen, done))
    screen.hint(f"{_PAST[verb]} {count_of(done, 'job')}.")


_PAST = {"Pause": "Paused", "Resume": "Resumed", "Remove": "Removed"}


async def _choose(scheduler: Backend, words: ChoiceWords) -> list[records.Job]:
    if not words["names"]:
        return [job async for job in scheduler.jobs.list(app=words["owner"], tag=words["tag"])]
    found = [await scheduler.jobs.get(name) for name in dict.fromkeys(words["names"])]
    return [msgspec.convert(job, records.Job, from_attributes=True) for job in found]


def _draw(screen: Screen, jobs: Sequence[records.Job]) -> None:
    if jobs:
        rows: list[list[Value]] = [[job.name, job.schedule, describe_work(job)] for job in jobs]
        screen.table(("NAME", "SCHEDULE", "TASK"), rows, cut=("SCHEDULE", "TASK"))


@click.command(cls=RemoteVerb)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_job)
@click.option("--request-id", metavar="ID", help="Repeated with the same id, it is the same firing.")
@web_option
@click.pass_obj
def trigger(session: Session, names: Sequence[str], request_id: str | None, web: bool) -> int:
    """Fire jobs now, by hand. Their overlap policies hold: exits 3 if one leaves a firing without a run.

    In JSON the answer is the firing, or a list of firings if several jobs are named."""
    pages = Pages(session, web=web)

    async def fire(scheduler: Backend) -> list[records.Firing]:
        return [await scheduler.jobs.trigger(name, request_id) for name in names]

    firings = with_scheduler(session, fire)
    screen = Screen(session)
    screen.answer(firings[0] if len(firings) == 1 else firings, lambda: _draw_firings(screen, names, firings))
    run_ids = [firing.run_id for firing in firings if firing.run_id is not None]
    if len(names) == 1 and run_ids:
        pages.show(screen, pages.run(run_ids[0]))
    return 0 if len(run_ids) == len(names) else RUN_FAILED


def _draw_firings(screen: Screen, names: Sequence[str], firings: Sequence[records.Firing]) -> None:
    for name, firing in zip(names, firings, strict=True):
        if firing.run_id is None:
            screen.hint(f"{name} was not run: {firing.reason}")
        else:
            click.echo(firing.run_id)
            screen.hint(f"Fired {name}. Watch it: mainspring run wait {short_id(firing.run_id)}")
