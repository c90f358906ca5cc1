"""`mainspring job backfill`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from mainspring.cli.filters import bulk_options, confirm, count_of
from mainspring.cli.jobs.triggers import read_instant
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import Backend, with_scheduler
from mainspring.cli.output.screen import Screen, Value
from mainspring.cli.output.times import moment
from mainspring.cli.session import Session
from mainspring.core.instants import format_instant, from_datetime, to_datetime
from mainspring.errors import MainspringError
from mainspring.operations import records
from mainspring.operations.views.explain import short_id

PAGE = 100


class _Course(msgspec.Struct):
    """How far it has come."""

    job: records.Job
    items: list[records.Backfilled]
    next: datetime | None
    error: MainspringError | None = None

    def fired(self) -> list[records.Backfilled]:
        """The instants that have new runs, or would."""
        return [item for item in self.items if item.run_ids]


@click.command(cls=RemoteVerb)
@click.argument("name", shell_complete=complete_job)
@click.option("--from", "since", required=True, metavar="INSTANT", help="The beginning, e.g. 2026-03-01T00:00Z.")
@click.option("--to", "until", required=True, metavar="INSTANT", help="The end, which is included; not in the future.")
@click.option("--tz", metavar="ZONE", help="The zone of --from and --to, if they have no offset.")
@bulk_options
@click.pass_obj
def backfill(
    session: Session, name: str, since: str, until: str, tz: str | None, dry_run: bool, yes: bool, reason: str
) -> None:
    """Fire the instants of a past interval at which job NAME was due and has no run: missed, skipped, or before it was
    added. What has a run gets no other, so it can be repeated.

    \b
    mainspring job backfill report --from 2026-03-01T00:00Z --to 2026-03-08T00:00Z --dry-run
    """
    ends = [to_datetime(read_instant(text, field, tz)) for text, field in ((since, "from"), (until, "to"))]
    screen = Screen(session)
    if dry_run or not yes:
        seen = _go(session, name, ends, dry_run=True, reason=reason)
        if seen.error is not None:
            raise seen.error
        if dry_run or not seen.fired():
            screen.answer(seen.items, lambda: _draw(screen, seen))
            screen.hint(f"{_count(seen)} would fire: nothing was done{', for this was a dry run' if dry_run else ''}.")
            return
        confirm(f"Fire {_count(seen)} of {seen.job.name}?", yes=False)
    done = _go(session, name, ends, dry_run=False, reason=reason)
    screen.answer(done.items, lambda: _draw(screen, done))
    screen.hint(f"Fired {_count(done)} of {done.job.name}.")
    if done.error is not None:
        if done.next is not None:
            screen.hint(f"Go on with --from {format_instant(from_datetime(done.next))}")
        raise done.error


def _go(session: Session, name: str, ends: Sequence[datetime], *, dry_run: bool, reason: str) -> _Course:
    """Page by page; an error on the way does not hide what was done before it."""

    async def work(scheduler: Backend) -> _Course:
        job = await scheduler.jobs.get(name)
        course = _Course(job, [], ends[0])
        try:
            while course.next is not None:
                page = await scheduler.jobs.backfill(
                    job.job_id, course.next, ends[1], limit=PAGE, dry_run=dry_run, reason=reason
                )
                course.items += page.items
                course.next = page.next
        except MainspringError as error:
            course.error = error
        return course

    return with_scheduler(session, work)


def _count(course: _Course) -> str:
    return count_of(course.fired(), "instant")


def _kept(item: records.Backfilled) -> str:
    """Why nothing is made for an instant: its runs may have ended or not."""
    return "has a run that has not ended" if item.before == "fired" else "has run"


def _draw(screen: Screen, course: _Course) -> None:
    if not course.items:
        return
    zone = course.job.trigger.get("tz", "UTC")
    rows: list[list[Value]] = [
        [moment(item.fire_at, zone), item.before or "", ", ".join(map(short_id, item.run_ids)) or _kept(item)]
        for item in course.items
    ]
    screen.table((f"DUE ({zone})", "BEFORE", "RUNS"), rows, fold=("RUNS",))
