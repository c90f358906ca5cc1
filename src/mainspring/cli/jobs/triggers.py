"""The options that say when: `--cron`, `--every`, `--at`, `--after`, `--manual`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, get_args

import click

from mainspring.cli.lazy import stack
from mainspring.core.instants import Instant, from_wall, parse_instant
from mainspring.core.schedules.triggers import (
    AtTrigger,
    CronTrigger,
    OnFailure,
    Trigger,
    When,
    after,
    cron,
    every,
    manual,
)
from mainspring.errors import InvalidInput


class TriggerWords(TypedDict, total=False):
    """What the options gave."""

    cron: str | None
    every: str | None
    at: str | None
    after: Sequence[str]
    manual: bool
    tz: str | None
    when: When | None
    on_failure: OnFailure | None


clock_options = stack(
    click.option("--cron", metavar="EXPRESSION", help="By the clock, e.g. '0 2 * * *' or '@daily'."),
    click.option("--every", metavar="DURATION", help="At a fixed interval, e.g. 30s or 1h30m."),
    click.option("--at", metavar="INSTANT", help="Once, e.g. 2026-03-01T09:00+01:00 (or without offset, with --tz)."),
    click.option("--tz", metavar="ZONE", help="The zone of --cron, --at, --start and --end; UTC unless given."),
)
"""The options for triggers whose fire times are known in advance."""

trigger_options = stack(
    clock_options,
    click.option("--after", multiple=True, metavar="JOB", help="When this job has ended; repeat for several."),
    click.option("--when", type=click.Choice(get_args(When)), help="With --after: all of them, or any."),
    click.option("--on-failure", type=click.Choice(get_args(OnFailure)), help="With --after: if one of them fails."),
    click.option("--manual", is_flag=True, help="Only when it is triggered by hand."),
)
"""The options for every kind of trigger."""


def read_trigger(words: TriggerWords, current: Trigger | None = None) -> Trigger | None:
    """The trigger that the options describe; `current`, perhaps in another zone, if they describe none."""
    given = [name for name in ("cron", "every", "at", "after", "manual") if words.get(name)]
    if len(given) > 1:
        names = " and ".join(f"--{name}" for name in given)
        raise click.UsageError(f"A job has one trigger: {names} cannot be combined.")
    zone = words.get("tz")
    if given:
        _check_companions(words, given[0])
        return _make_trigger(words, given[0], zone or (current.tz if isinstance(current, CronTrigger) else "UTC"))
    if zone is not None and isinstance(current, CronTrigger):
        return cron(current.expression, tz=zone, dialect=current.dialect)
    return current


def trigger_of(view: Mapping[str, Any]) -> Trigger:
    """The trigger that is shown like this: see `views.trigger_view`."""
    match view:
        case {"kind": "cron", "cron": expression, "tz": zone, "dialect": dialect}:
            return CronTrigger(expression, zone, dialect)
        case {"kind": "every", "every": period, "anchor": anchor}:
            return every(period, anchor=anchor)
        case {"kind": "at", "at": at}:
            return AtTrigger(parse_instant(at))
        case {"kind": "after", "after": jobs, "when": when, "on_failure": on_failure}:
            return after(*jobs, when=when, on_failure=on_failure)
    return manual()


def _make_trigger(words: TriggerWords, kind: str, zone: str) -> Trigger:
    match kind:
        case "cron":
            return cron(words["cron"] or "", tz=zone)
        case "every":
            return every(words["every"] or "")
        case "at":
            return AtTrigger(read_instant(words["at"] or "", "at", words.get("tz")))
        case "after":
            when, on_failure = words.get("when") or "all_succeeded", words.get("on_failure") or "skip"
            return after(*words["after"], when=when, on_failure=on_failure)
    return manual()


def _check_companions(words: TriggerWords, kind: str) -> None:
    for name, value in (("when", words.get("when")), ("on-failure", words.get("on_failure"))):
        if value is not None and kind != "after":
            raise InvalidInput(name, value, "has no use without --after", "leave it out, or name a job to run after")


def read_instant(text: str, field: str, zone: str | None) -> Instant:
    """An instant with its offset, or a reading of the clocks of `zone`."""
    if zone is not None:
        try:
            wall = datetime.fromisoformat(text.strip())
        except ValueError:
            wall = None
        if wall is not None and wall.tzinfo is None:
            return from_wall(wall, zone)
    try:
        return parse_instant(text, field)
    except InvalidInput as error:
        if error.problem != "has no time zone":
            raise
        remedy = f"{error.remedy}, or say whose clocks with --tz"
        raise InvalidInput(field, text, error.problem, remedy) from None
