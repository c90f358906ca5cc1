"""`mainspring errors` and `mainspring service-levels`: what became of runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from mainspring.cli.filters import read_when
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import collect, show_answer, with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import relative
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.operations.views import records


@click.command(cls=RemoteVerb)
@click.argument("error", required=False, metavar="[ERROR]")
@click.option("--since", metavar="WHEN", callback=read_when, help="That failed since an instant, or since 2h ago.")
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
        show_answer(session, lambda scheduler: scheduler.insight.error(error), _draw_error)
        return
    show_answer(
        session,
        lambda scheduler: collect(scheduler.insight.errors(since=since, job=job, task=task, limit=limit)),
        _draw_errors,
    )


def _draw_errors(screen: Screen, found: Sequence[records.ErrorGroup], now: Instant) -> None:
    if not found:
        screen.hint("No failure has been counted.")
        return
    rows = [
        [each.error, str(each.count), relative(each.last_at, now), each.type, each.message, each.place]
        for each in found
    ]
    columns = ("ERROR", "RUNS", "LAST", "TYPE", "MESSAGE", "PLACE")
    screen.table(columns, rows, cut=("MESSAGE",), spare=("PLACE",))


def _draw_error(screen: Screen, story: records.ErrorStory, _: Instant) -> None:
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


@click.command(cls=RemoteVerb)
@click.option("--since", metavar="WHEN", callback=read_when, help="From an instant on, or from 2h ago; by default 24h.")
@click.pass_obj
def service_levels(session: Session, since: datetime | None) -> None:
    """Show how many runs of each priority started within its service level.

    The setting service_levels names the levels: how long after it is due a run starts at the latest.
    """
    screen = Screen(session)
    found = with_scheduler(session, lambda scheduler: scheduler.insight.service_levels(since=since))
    screen.answer(found.items, lambda: _draw_levels(screen, found))


def _draw_levels(screen: Screen, found: records.ServiceLevels) -> None:
    if not found.items:
        screen.hint("No priority has a service level, and no start has been counted.")
        return
    rows = [
        [
            str(each.priority),
            each.within or "",
            str(each.starts),
            str(each.late) if each.within is not None else "",
            "" if each.met is None else f"{100 * each.met:.2f} %",
            _seconds(each.late_p50),
            _seconds(each.late_p99),
        ]
        for each in found.items
    ]
    screen.table(("PRIORITY", "WITHIN", "STARTS", "LATE", "MET", "P50", "P99"), rows)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"
