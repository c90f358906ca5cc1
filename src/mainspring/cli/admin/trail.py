"""`mainspring events` and `mainspring audit`: what happens, and the changes made over the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click
import msgspec

from mainspring.cli.filters import read_when
from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.naming import complete_job, find_run
from mainspring.cli.opening import Backend, collect, show_answer, with_scheduler
from mainspring.cli.output.event_lines import describe_event
from mainspring.cli.output.harmless import harmless
from mainspring.cli.output.screen import Cell, Screen, Value
from mainspring.cli.output.times import moment
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.operations import records


@click.command(cls=RemoteVerb)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option("--after", type=click.IntRange(0), metavar="POSITION", help="Begin beyond this position, not now.")
@click.option("--kind", "kinds", multiple=True, help="Of this kind, e.g. run.failed; repeat for several.")
@click.option("--job", metavar="NAME", shell_complete=complete_job, help="Of this job.")
@click.option("--task", metavar="TASK", help="Of this task.")
@click.option("--run", "run_id", metavar="RUN", help="Of this run.")
@click.option("-n", "--limit", type=click.IntRange(1), help="End after this many events.")
@click.pass_obj
def events(
    session: Session,
    follow: bool,
    after: int | None,
    kinds: Sequence[str],
    job: str | None,
    task: str | None,
    run_id: str | None,
    limit: int | None,
) -> None:
    """Print what happens as it happens, a line each: firings, runs, workers. With --json, its position too.

    \b
    mainspring events --follow --kind run.failed --json
    mainspring events --after 0 --limit 100
    """
    if not follow and limit is None:
        raise click.UsageError("Say --follow to watch, or --limit to end after a number of events.")
    screen = Screen(session)

    async def watch(scheduler: Backend) -> None:
        run = None if run_id is None else (await find_run(scheduler, run_id)).run_id
        count = 0
        async for event in scheduler.events.follow(after=after, kinds=kinds, job=job, task=task, run=run):
            click.echo(screen.encode(event) if session.as_json else harmless(describe_event(event)))
            count += 1
            if limit is not None and count >= limit:
                return

    with_scheduler(session, watch)


@click.command(cls=RemoteVerb)
@click.option("--subject", help="What this subject changed.")
@click.option("--target", metavar="TARGET", help="What happened to this, e.g. job:nightly.")
@click.option("--action", metavar="ACTION", help="Changes of this kind, e.g. job.pause.")
@click.option("--since", metavar="WHEN", callback=read_when, help="Made since an instant, or since 2h ago.")
@click.option("--until", metavar="WHEN", callback=read_when, help="Made before an instant, or before 2h ago.")
@click.option("-n", "--limit", type=click.IntRange(1), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def audit(session: Session, /, since: datetime | None, until: datetime | None, limit: int, **named: str | None) -> None:
    """List changes made over the API, newest first; --json has each value before and after.

    \b
    mainspring audit --action job.pause --since 7d
    """
    show_answer(
        session,
        lambda scheduler: collect(scheduler.audit.list(since=since, until=until, limit=limit, **named)),
        _draw,
    )


def _draw(screen: Screen, changes: list[records.Change], _: Instant) -> None:
    if not changes:
        screen.hint("No such change was made over the API.")
        return
    rows: list[list[Value]] = [
        [moment(each.at), each.subject, each.action, each.target, Cell(_differences(each), "dim")] for each in changes
    ]
    columns = ("WHEN", "SUBJECT", "ACTION", "TARGET", "CHANGED")
    screen.table(columns, rows, cut=("CHANGED", "TARGET"), spare=("CHANGED",))


def _differences(change: records.Change) -> str:
    """The fields that differ, with what they are now."""
    if not isinstance(change.before, dict) or not isinstance(change.after, dict):
        return ""
    before, after = change.before, change.after
    changed = [name for name in after if after[name] != before.get(name) and name not in ("version", "updated_at")]
    return ", ".join(f"{name}={msgspec.json.encode(after[name]).decode()}" for name in changed)
