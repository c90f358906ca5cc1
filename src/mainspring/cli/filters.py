"""The options that select runs or jobs, and the confirmation of actions on many of them."""

from __future__ import annotations

from collections.abc import Sized
from datetime import UTC, datetime, timedelta

import click

from mainspring.cli.lazy import stack
from mainspring.cli.naming import complete_job
from mainspring.cli.output.errors import FAILED
from mainspring.cli.session import is_attended
from mainspring.core.answers import DELAYS
from mainspring.core.instants import parse_duration, parse_instant, to_datetime
from mainspring.core.states import STATES
from mainspring.errors import InvalidDuration
from mainspring.operations.filters import RunFilters


def read_when(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """An instant, or how long ago."""
    if value is None:
        return None
    name = param.name or "when"
    try:
        return datetime.now(UTC) - timedelta(microseconds=parse_duration(value, name))
    except InvalidDuration:
        return to_datetime(parse_instant(value, name))


class RunChoice(RunFilters, total=False):
    """The values of the options that select runs."""

    error: str | None


run_filters = stack(
    click.option("--job", metavar="NAME", shell_complete=complete_job, help="Of this job."),
    click.option("--task", metavar="TASK", help="Of this task."),
    click.option("--tag", metavar="TAG", help="With this tag."),
    click.option("--queue", metavar="QUEUE", help="In this queue."),
    click.option("--worker", metavar="WORKER", help="Running on this worker, by its id."),
    click.option("--region", metavar="REGION", help="Waiting, running or ended in this region."),
    click.option("--key", metavar="KEY", help="With this key."),
    click.option("--late", type=click.Choice(list(DELAYS)), help="Began at least this long after they were due."),
    click.option("--took", type=click.Choice(list(DELAYS)), help="Ended, and took at least this long."),
    click.option("--submitted-by", metavar="SUBJECT", help="Submitted over HTTP by this subject."),
    click.option(
        "--since",
        metavar="WHEN",
        callback=read_when,
        help="Due or submitted since an instant, or since 2h ago.",
    ),
    click.option(
        "--until",
        metavar="WHEN",
        callback=read_when,
        help="Due or submitted before an instant, or before 2h ago.",
    ),
    click.option("--error", metavar="ERROR", help="Failed with this kind of error: `mainspring errors` lists them."),
    click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="In this state; or in several."),
)
"""The options that select runs."""

bulk_options = stack(
    click.option("--dry-run", is_flag=True, help="Only show what would be affected."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--reason", default="", metavar="TEXT", help="Why; kept with what is done."),
)
"""The options of actions on many things at once."""


def confirm(question: str, *, yes: bool) -> None:
    """Ask before acting on everything that a filter fits. Without a terminal the answer is no."""
    if yes:
        return
    if not is_attended():
        raise click.UsageError(f"{question} There is no terminal to ask: say --yes, or look first with --dry-run.")
    if not click.confirm(question, err=True):
        click.echo("Nothing was done.", err=True)
        raise click.exceptions.Exit(FAILED)


def count_of(things: Sized, word: str) -> str:
    """`1 run`, `12 runs`."""
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"
