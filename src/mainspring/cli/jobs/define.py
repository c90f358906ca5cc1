"""`mainspring job add` and `job edit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import click
import msgspec

from mainspring.cli.jobs.preview import draw_fire_times
from mainspring.cli.jobs.show import describe_work
from mainspring.cli.jobs.triggers import (
    TriggerWords,
    check_to_come,
    read_instant,
    read_trigger,
    trigger_of,
    trigger_options,
)
from mainspring.cli.lazy import Errand, stack
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import OWNERS, Scheduler, with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.runs.arguments import Work, read_work
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, to_datetime
from mainspring.core.model import Misfire, OnExcluded, OnKeyFailure, Overlap, UnderPressure
from mainspring.core.runs.retry import Retry, RetryPolicy
from mainspring.core.schedules.triggers import AtTrigger, CronTrigger, Trigger, describe
from mainspring.errors import InvalidInput, NotAllowed
from mainspring.operations import records

Words = dict[str, Any]

NONE = "none"
"""Typed instead of a value, it takes the value away."""


def _read_count(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """A whole number, or `none`; its range is for the word to judge."""
    if value is None or value == NONE:
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is not a whole number.", ctx, param) from None


definition_options = stack(
    click.option("--task", metavar="TASK", help="The task to run."),
    click.option(
        "--command", metavar="TEXT", help="Or a command, split into words as a shell would; no shell runs it."
    ),
    click.option("--http", metavar="URL", help="Or an HTTP call; --arg says more of it, as in --arg method=PUT."),
    click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument: JSON, or else text."),
    click.option(
        "--isolation", metavar="LEVEL[,LIMIT...]", help="none, process, limits or sandbox,memory=1GB,network."
    ),
    click.option("--timeout", metavar="DURATION", help="Kill an attempt that takes longer."),
    click.option("--soft-timeout", metavar="DURATION", help="Warn an attempt that takes longer."),
    click.option("--retries", type=int, help="How often to try again after a failure; 3 by default, 0 for never."),
    click.option(
        "--retry-policy", type=click.Choice(get_args(RetryPolicy)), help="How long to wait before each retry."
    ),
    click.option("--priority", type=int, help="1 (highest) to 10; 5 unless given."),
    click.option("--queue", help="The queue whose workers run it."),
    click.option("--region", "regions", multiple=True, help="Where it must run; repeat for several."),
    click.option("--key", help="Runs of one key run one after the other."),
    click.option("--limit", callback=_read_count, metavar="NUMBER", help="How many runs of the task may run at once."),
    click.option("--overlap", type=click.Choice(get_args(Overlap)), help="If the last firing has not ended."),
    click.option("--misfire", type=click.Choice(get_args(Misfire)), help="What to do about missed instants."),
    click.option("--grace", metavar="DURATION", help="Later than this is a misfire."),
    click.option("--catch-up-window", metavar="DURATION", help="With --misfire all: how far back."),
    click.option("--catch-up-limit", type=int, help="With --misfire all: how many."),
    click.option("--start-deadline", metavar="DURATION", help="Later than this it no longer starts."),
    click.option("--jitter", metavar="DURATION", help="Start up to this much later, to spread load."),
    click.option("--calendar", "calendars", multiple=True, help="Never when this calendar excludes it."),
    click.option("--on-excluded", type=click.Choice(get_args(OnExcluded)), help="Skip, or move to the next day."),
    click.option("--start", "start_at", metavar="INSTANT", help="Not before this."),
    click.option("--end", "end_at", metavar="INSTANT", help="Not after this."),
    click.option("--max-firings", callback=_read_count, metavar="NUMBER", help="End after so many firings."),
    click.option("--completions", type=int, help="How many runs each firing has."),
    click.option("--parallelism", callback=_read_count, metavar="NUMBER", help="How many of those may run at once."),
    click.option("--max-losses", type=int, help="How often its worker may be lost before it is failed."),
    click.option(
        "--on-key-failure", type=click.Choice(get_args(OnKeyFailure)), help="Whether a failure stops its key."
    ),
    click.option(
        "--under-pressure",
        type=click.Choice(get_args(UnderPressure)),
        help="Whether it waits for what it follows while there is far too much to do.",
    ),
    click.option("--alert", metavar="WHOM", help="Told if it fails for good: a task, a URL, or $ and a command."),
    click.option("--keep-succeeded", callback=_read_count, metavar="NUMBER", help="How many succeeded runs to keep."),
    click.option("--keep-failed", callback=_read_count, metavar="NUMBER", help="How many failed runs to keep."),
    click.option("--tag", "tags", multiple=True, help="A tag, to select by; repeat for several."),
)
"""The options that say what a job does and by which policies."""

_CLEARABLE = frozenset(
    {"timeout", "key", "limit", "start_at", "end_at", "max_firings", "parallelism", "start_deadline", "keep_succeeded"}
    | {"keep_failed", "alert", "tags", "calendars"}
)
"""The options that `none` takes away."""


def _split(words: Words) -> tuple[TriggerWords, Words]:
    """The words about the trigger, and the others that were given."""
    given = {name: value for name, value in words.items() if value is not None and value != ()}
    about = msgspec.convert(
        {name: given.pop(name) for name in TriggerWords.__annotations__ if name in given}, TriggerWords
    )
    return about, given


def _read_work(given: Words, argv: Sequence[str]) -> Work:
    task, command, http = (given.pop(name, None) for name in ("task", "command", "http"))
    return read_work(task, command, argv, given.pop("pairs", ()), http)


def _read_options(given: Words, zone: str | None) -> Words:
    """Options as `app.add_job` takes them."""
    words = dict(given)
    for name, field in (("start_at", "start"), ("end_at", "end")):
        if words.get(name, NONE) != NONE:
            instant = read_instant(words[name], field, zone)
            if name == "end_at":
                check_to_come(words[name], field, instant, "choose a later end, or leave it out")
            words[name] = to_datetime(instant)
    return words


@click.command(cls=Errand)
@click.argument("name")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@trigger_options
@definition_options
@click.pass_obj
def add(session: Session, /, name: str, argv: Sequence[str], **words: Any) -> None:
    """Add job NAME: a trigger, a task or a command, and policies.

    \b
    mainspring job add backup --cron '0 2 * * *' --tz Europe/Berlin --command 'backup --all'
    mainspring job add report --every 1h --task report --arg size=4 --timeout 10m
    mainspring job add notify --after backup -- notify-send 'backup done'
    """
    about, given = _split(words)
    work = _read_work(given, argv)
    trigger = read_trigger(about)
    if trigger is None:
        raise click.UsageError("Say when: --cron, --every, --at, --after or --manual.")
    _check_zone(about, trigger, given)
    if work.task is None:
        raise click.UsageError("Say what: --task, --command, --http, or a command after --.")
    options = {name: value for name, value in _read_options(given, about.get("tz")).items() if not _is_none(value)}
    if "retries" in options or "retry_policy" in options:
        options["retry"] = Retry(options.pop("retries", None), policy=options.pop("retry_policy", None))

    async def create(scheduler: Scheduler) -> _Defined:
        job = await scheduler.jobs.create(name, trigger, task=work.task or "", args=work.args, **options)
        return await _look_ahead(scheduler, job)

    _show(Screen(session), with_scheduler(session, create, create=True), "Added")


@click.command(cls=Errand)
@click.argument("name", shell_complete=complete_job)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@trigger_options
@definition_options
@click.pass_obj
def edit(session: Session, /, name: str, argv: Sequence[str], **words: Any) -> None:
    """Change job NAME: what is not named stays. `none` takes a value away, as in --timeout none.

    Runs that exist already keep what the job said when they were made.
    """
    about, given = _split(words)
    work = _read_work(given, argv)
    given = _read_options(given, about.get("tz"))
    if not given and not any(about.values()) and work == Work(None, None):
        raise click.UsageError("Say what to change: `mainspring job edit --help` lists the options.")

    cleared = [name for name, value in given.items() if name in _CLEARABLE and _is_none(value)]
    kept: Words = {name: value for name, value in given.items() if name not in cleared}

    async def change(scheduler: Scheduler) -> _Defined:
        job = await scheduler.jobs.get(name)
        current = trigger_of(job.trigger)
        trigger = read_trigger(about, current) or current
        _check_zone(about, trigger, given)
        other = {} if trigger == current else {"trigger": trigger}
        words = {"task": work.task, "args": work.args, "clear": cleared, "version": job.version, **other, **kept}
        return await _look_ahead(scheduler, await scheduler.jobs.edit(job.job_id, **words))

    defined = with_scheduler(session, change)
    screen = Screen(session)
    _show(screen, defined, "Changed")
    if defined.job.origin == "code" or (not defined.job.origin and defined.job.app not in OWNERS):
        owner = defined.job.app
        screen.hint(f"App {owner} declares this job: if it still does, its next `up` or `job sync` sets it back.")


def _check_zone(about: TriggerWords, trigger: Trigger, given: Words) -> None:
    zone = about.get("tz")
    if zone is None or isinstance(trigger, CronTrigger | AtTrigger) or "start_at" in given or "end_at" in given:
        return
    raise InvalidInput("tz", zone, f"has no use for a job that is {describe(trigger)}", "leave it out")


def _is_none(value: object) -> bool:
    return value in (NONE, (NONE,))


class _Defined(NamedTuple):
    """A job as it is stored now, and what can be said of its future."""

    job: records.Job
    ahead: Sequence[records.FireTime]
    why: list[str]
    """What keeps it from firing, or its runs from starting."""
    now: Instant


async def _look_ahead(scheduler: Scheduler, job: records.Job) -> _Defined:
    try:
        ahead = await scheduler.jobs.next(job.job_id, 3)
        return _Defined(job, ahead, (await scheduler.jobs.get(job.job_id)).why, scheduler.now())
    except NotAllowed:
        return _Defined(job, [], [], scheduler.now())  # Who may define a job may be somebody who may not look at it.


def _show(screen: Screen, defined: _Defined, verb: str) -> None:
    job, ahead = defined.job, defined.ahead

    def draw() -> None:
        screen.line(f"{verb} job {job.name}: {job.schedule}, {describe_work(job)}")
        if ahead:
            screen.line()
            draw_fire_times(screen, ahead, defined.now)
        for sentence in defined.why:
            screen.hint(sentence)

    # A server adds what the maker may not have meant; for both, `why` says it.
    view: dict[str, object] = {name: getattr(job, name) for name in records.Job.__struct_fields__}
    screen.answer({**view, "next_fire_times": ahead}, draw)
