"""`mainspring errors`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from mainspring.cli.filters import read_since
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import collect, show_answer
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import relative
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.operations.views import records


@click.command(cls=RemoteVerb)
@click.argument("error", required=False, metavar="[ERROR]")
@click.option("--since", metavar="WHEN", callback=read_since, help="That failed since an instant, or since 2h ago.")
@click.option("--job", metavar="JOB", help="Among the latest failures of a job.")
@click.option("--task", metavar="TASK", help="Among the latest failures of a task.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many at most.")
@click.pass_obj
def errors(
    session: Session, error: str | None, since: datetime | None, job: str | None, task: str | None, limit: int
) -> None:
    """List kinds of failure, the one that was seen last first; or show ERROR with what it affects.

    \b
    mainspring run list --error ERROR                 # the runs that failed so
    mainspring run act retry --error ERROR --dry-run  # how many would be run again
    """
    if error is not None:
        show_answer(session, lambda scheduler: scheduler.insight.error(error), _draw_one)
        return
    show_answer(
        session,
        lambda scheduler: collect(scheduler.insight.errors(since=since, job=job, task=task, limit=limit)),
        _draw,
    )


def _draw(screen: Screen, found: Sequence[records.ErrorGroup], now: Instant) -> None:
    if not found:
        screen.hint("No failure has been counted.")
        return
    rows = [
        [each.error, str(each.count), relative(each.last_at, now), each.type, each.message, each.place]
        for each in found
    ]
    columns = ("ERROR", "RUNS", "LAST", "TYPE", "MESSAGE", "PLACE")
    screen.table(columns, rows, cut=("MESSAGE",), spare=("PLACE",))


def _draw_one(screen: Screen, story: records.ErrorStory, _: Instant) -> None:
    screen.line(f"{story.type}: {story.message}".removeprefix(": "), "bold")
    screen.facts(
        [
            ("runs", str(story.count)),
            ("place", story.place or None),
            ("jobs", ", ".join(story.jobs) or None),
            ("tasks", ", ".join(story.tasks) or None),
            ("last run", story.last_run),
            ("example", None if story.sample is None else msgspec.json.encode(story.sample).decode()[:500]),
        ]
    )
