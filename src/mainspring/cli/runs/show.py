"""`mainspring run list` and `run show`."""

from __future__ import annotations

from typing import Unpack

import click
import msgspec

from mainspring.cli.filters import RunChoice, run_filters
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import complete_job, complete_run, find_run
from mainspring.cli.opening import Backend, collect, show_answer, with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.runs.tables import Story, draw_runs, draw_story
from mainspring.cli.session import Session
from mainspring.cli.web.addresses import Pages, web_option
from mainspring.core.instants import Instant
from mainspring.core.states import FAILED
from mainspring.operations import records


@click.command("list", cls=RemoteVerb)
@run_filters
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_runs(session: Session, limit: int, **words: Unpack[RunChoice]) -> None:
    """List runs, newest first: what state each is in, how long it waited and how long it ran."""
    _list(session, limit, words)


@click.command("dead-letters", cls=RemoteVerb)
@click.option("--job", metavar="NAME", shell_complete=complete_job, help="Of this job.")
@click.option("--task", metavar="TASK", help="Of this task.")
@click.option("--tag", metavar="TAG", help="With this tag.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def dead_letters(session: Session, limit: int, job: str | None, task: str | None, tag: str | None) -> None:
    """List runs that failed for good, newest first: their retries are used up, and no worker will take them again.

    \b
    mainspring run retry --state failed --task encode     # run them again
    """
    _list(session, limit, {"states": (FAILED,), "job": job, "task": task, "tag": tag})


def _list(session: Session, limit: int, words: RunChoice) -> None:
    def draw(screen: Screen, runs: list[records.Run], now: Instant) -> None:
        if not runs:
            screen.hint("There are no such runs.")
            return
        draw_runs(screen, runs, now)
        if len(runs) == limit:
            screen.hint(f"Only the newest {limit} are shown: --limit shows more.")

    show_answer(session, lambda scheduler: collect(scheduler.runs.list(limit=limit, **words)), draw)


@click.command(cls=RemoteVerb)
@click.argument("run_id", metavar="RUN", shell_complete=complete_run)
@web_option
@click.pass_obj
def show(session: Session, run_id: str, web: bool) -> None:
    """Show the history of RUN: attempt by attempt, the reason of its state, and, if it is not running, why not.

    RUN is an id, or enough of its beginning or end to be the only one.
    """

    async def look(scheduler: Backend) -> Story:
        runs = scheduler.runs
        run = await runs.get((await find_run(scheduler, run_id)).run_id)
        wrote = [line async for line in runs.logs(run.run_id, tail=1)]
        return Story(run, await runs.attempts(run.run_id), bool(wrote), scheduler.now())

    pages = Pages(session, web=web)
    story = with_scheduler(session, look)
    screen = Screen(session)
    view = {**msgspec.structs.asdict(story.run), "attempts": story.attempts}
    screen.answer(view, lambda: draw_story(screen, story))
    pages.show(screen, pages.run(story.run.run_id))
