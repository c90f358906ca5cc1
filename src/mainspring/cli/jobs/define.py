"""`mainspring job add` and `job edit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import msgspec

from mainspring.cli.jobs.preview import draw_fire_times
from mainspring.cli.jobs.show import describe_work
from mainspring.cli.jobs.triggers import (
    TriggerWords,
    read_instant,
    read_trigger,
    trigger_of,
    trigger_options,
)
from mainspring.cli.lazy import RemoteVerb, stack
from mainspring.cli.naming import complete_job
from mainspring.cli.opening import OWNERS, Backend, with_scheduler
from mainspring.cli.option_flags import NONE, flags_of
from mainspring.cli.output.screen import Screen
from mainspring.cli.runs.arguments import TaskChoice, read_work
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, to_datetime
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import AtTrigger, CronTrigger, Trigger, describe
from mainspring.errors import InvalidInput, NotAllowed
from mainspring.operations import records
from mainspring.operations.jobs.options import JOB, OPTIONS

Words = dict[str, Any]

definition_options = stack(
    click.option("--task", metavar="TASK", help="The task to run."),
    click.option(
        "--command", metavar="TEXT", help="Or a command, split into words as a shell would; no shell runs it."
    ),
    click.option("--http", metavar="URL", help="Or an HTTP call; --arg says more of it, as in --arg method=PUT."),
    click.option("--arg", "pairs", multiple=True, metavar="NAME=VALUE", help="An argument: JSON, or else text."),
    flags_of(JOB),
)
"""The options that say what a job does and by which policies."""


def _split(words: Words) -> tuple[TriggerWords, Words]:
    """The words about the trigger, and the others that were given."""
    given = {name: value for name, value in words.items() if value is not None and value != ()}
    about = msgspec.convert(
        {name: given.pop(name) for name in TriggerWords.__annotations__ if name in given}, TriggerWords
    )
    return about, given


def _read_work(given: Words, argv: Sequence[str]) -> TaskChoice:
    task, command, http = (given.pop(name, None) for name in ("task", "command", "http"))
    return read_work(task, command, argv, given.pop("pairs", ()), http)


def _read_options(given: Words, zone: str | None) -> Words:
    """Options as `app.jobs.add` takes them."""
    words = dict(given)
    for name, field in (("start_at", "start"), ("end_at", "end")):
        if words.get(name, NONE) != NONE:
            words[name] = to_datetime(read_instant(words[name], field, zone))
    return words


class Edit(NamedTuple):
    """What the options change about a job."""

    about: TriggerWords
    kept: Words
    """Options to set."""
    cleared: list[str]
    """Options to take away."""


def read_edit(words: Words) -> Edit:
    """The change that options describe."""
    about, given = _split(words)
    given = _read_options(given, about.get("tz"))
    cleared = [name for name, value in given.items() if _is_none(value) and name in OPTIONS and OPTIONS[name].clearable]
    return Edit(about, {name: value for name, value in given.items() if name not in cleared}, cleared)


@click.command(cls=RemoteVerb)
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

    async def create(scheduler: Backend) -> _Defined:
        job = await scheduler.jobs.add(name, trigger, task=work.task or "", args=work.args, **options)
        return await _look_ahead(scheduler, job)

    _show(Screen(session), with_scheduler(session, create, create=True), "Added")


@click.command(cls=RemoteVerb)
@click.argument("name", shell_complete=complete_job)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@trigger_options
@definition_options
@click.pass_obj
def edit(session: Session, /, name: str, argv: Sequence[str], **words: Any) -> None:
    """Change job NAME: what is not named stays. `none` takes a value away, as in --timeout none.

    Runs that exist already keep what the job said when they were made.
    """
    work = _read_work(words, argv)
    about, kept, cleared = read_edit(words)
    if not kept and not cleared and not any(about.values()) and work == TaskChoice(None, None):
        raise click.UsageError("Say what to change: `mainspring job edit --help` lists the options.")

    async def change(scheduler: Backend) -> _Defined:
        job = await scheduler.jobs.get(name)
        current = trigger_of(job.trigger)
        trigger = read_trigger(about, current) or current
        _check_zone(about, trigger, kept)
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


async def _look_ahead(scheduler: Backend, job: records.Job) -> _Defined:
    try:
        ahead = await scheduler.jobs.next(job.job_id, 3)
        return _Defined(job, ahead, (await scheduler.jobs.get(job.job_id)).why, scheduler.now())
    except NotAllowed:
        return _Defined(job, [], [], scheduler.now())  # The caller may define a job and yet not be allowed to read it.


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
