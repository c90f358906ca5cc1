"""`mainspring run list` and `run show`."""

from __future__ import annotations

from typing import Unpack

import click

from mainspring.app import Mainspring
from mainspring.cli.filters import RunWords, run_filters, to_filter
from mainspring.cli.lazy import Verb
from mainspring.cli.naming import complete_run
from mainspring.cli.opening import with_app
from mainspring.cli.run_tables import Story, draw_runs, draw_story
from mainspring.cli.screen import Screen
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.core.model import Run
from mainspring.lookup import explain_run, find_run
from mainspring.views import attempt_view, run_view


@click.command("list", cls=Verb)
@run_filters
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_runs(session: Session, limit: int, **words: Unpack[RunWords]) -> None:
    """List runs, newest first: what state each is in, how long it waited and how long it ran."""

    async def look(app: Mainspring) -> tuple[list[Run], Instant]:
        store = await app.open()
        return await store.list_runs(to_filter(app.settings.namespace, words, limit)), store.now()

    runs, now = with_app(session, look)
    screen = Screen(session)
    screen.answer([run_view(run) for run in runs], lambda: _draw(screen, runs, now, limit))


def _draw(screen: Screen, runs: list[Run], now: Instant, limit: int) -> None:
    if not runs:
        screen.hint("There are no such runs.")
        return
    draw_runs(screen, runs, now)
    if len(runs) == limit:
        screen.hint(f"Only the newest {limit} are shown: --limit shows more.")


@click.command(cls=Verb)
@click.argument("run_id", metavar="RUN", shell_complete=complete_run)
@click.pass_obj
def show(session: Session, run_id: str) -> None:
    """Tell the story of RUN: attempt by attempt, the reason of its state, and, if it is not running, why not.

    RUN is an id, or enough of its beginning or end to be the only one.
    """

    async def look(app: Mainspring) -> Story:
        store = await app.open()
        run = await find_run(app, run_id)
        attempts = await store.list_attempts(run.id)
        logs = await store.list_logs(run.id)
        return Story(run, attempts, await explain_run(app, run), len(logs), store.now())

    story = with_app(session, look)
    screen = Screen(session)
    attempts = [attempt_view(attempt) for attempt in story.attempts]
    view = {**run_view(story.run), "attempts": attempts, "why": story.why}
    screen.answer(view, lambda: draw_story(screen, story))
