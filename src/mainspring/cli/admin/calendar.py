"""`mainspring calendar list`, `calendar show`, `calendar save` and `calendar remove`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack

import click
import msgspec

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import show_answer, with_scheduler
from mainspring.cli.output.screen import Screen
from mainspring.cli.output.times import moment
from mainspring.cli.session import Session
from mainspring.core.instants import Instant, load_zone
from mainspring.core.schedules.calendar_rules import (
    Blackout,
    CronRule,
    DailyWindow,
    Dates,
    Not,
    Other,
    Rule,
    Weekdays,
    weekends,
)
from mainspring.core.schedules.calendars import Calendar
from mainspring.errors import InvalidInput
from mainspring.operations import records
from mainspring.operations.planning.records import CalendarPreview


@click.command("list", cls=RemoteVerb)
@click.pass_obj
def list_calendars(session: Session) -> None:
    """List calendars, and what each excludes."""
    show_answer(session, lambda scheduler: scheduler.calendars.list(), _draw_list)


def _draw_list(screen: Screen, found: Sequence[records.Calendar], _: Instant) -> None:
    if not found:
        screen.hint("There are no calendars. Save one: mainspring calendar save holidays --weekends --date 12-25")
        return
    rows = [[each.name, each.timezone, "; ".join(map(describe_rule, each.rules))] for each in found]
    screen.table(("NAME", "ZONE", "EXCLUDES"), rows, fold=("EXCLUDES",))


@click.command(cls=RemoteVerb)
@click.argument("name")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show what calendar NAME excludes."""
    show_answer(session, lambda scheduler: scheduler.calendars.get(name), _draw)


def _draw(screen: Screen, calendar: records.Calendar, _: Instant) -> None:
    screen.line(f"{calendar.name}, on the clocks of {calendar.timezone}", "bold")
    screen.items("Excludes", [describe_rule(rule) for rule in calendar.rules])


class _RuleWords(TypedDict):
    """What the options that make rules gave."""

    weekends: bool
    days: tuple[str, ...]
    dates: tuple[str, ...]
    daily: tuple[str, ...]
    hours: str | None
    blackouts: tuple[str, ...]
    crons: tuple[str, ...]
    others: tuple[str, ...]
    rules: str | None


@click.command(cls=RemoteVerb)
@click.argument("name")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="The zone of its days and times.")
@click.option("--weekends", is_flag=True, help="Exclude Saturdays and Sundays.")
@click.option("--weekday", "days", multiple=True, metavar="DAY", help="Exclude a day of the week: mon to sun.")
@click.option(
    "--date", "dates", multiple=True, metavar="DATE", help="Exclude a day: 2026-12-25, each year 12-25, or 12-24/01-02."
)
@click.option("--daily", multiple=True, metavar="START/END", help="Exclude a time of every day: 22:00/06:00.")
@click.option("--only", "hours", metavar="START/END", help="Exclude all times of the day but these: 09:00/17:00.")
@click.option("--blackout", "blackouts", multiple=True, metavar="START/END", help="Exclude one stretch of time.")
@click.option("--cron", "crons", multiple=True, metavar="EXPRESSION", help="Exclude the times that it matches.")
@click.option("--calendar", "others", multiple=True, metavar="NAME", help="Exclude what another calendar excludes.")
@click.option("--rules", metavar="JSON", help="Rules as the API takes them, besides the others.")
@click.option("--dry-run", is_flag=True, help="Only show which firings would move, disappear or appear.")
@click.option(
    "--days",
    "horizon",
    default=30,
    show_default=True,
    type=click.IntRange(1, 366),
    help="With --dry-run: how far ahead.",
)
@click.pass_obj
def save(session: Session, name: str, tz: str, *, dry_run: bool, horizon: int, **words: Unpack[_RuleWords]) -> None:
    """Save calendar NAME, or replace it: jobs that use it are planned anew. Each option may be repeated.

    \b
    mainspring calendar save holidays --tz Europe/Berlin --weekends --date 12-25 --date 2026-04-06
    mainspring job add report --cron '0 9 * * *' --calendar holidays --task report
    """
    load_zone(tz, "tz")
    rules = _read_rules(words)
    if not rules:
        raise click.UsageError("Say what it excludes: --weekends, --date, --daily, --only, --blackout, --cron …")
    calendar = Calendar(name, rules, tz)
    if dry_run:
        show_answer(session, lambda scheduler: scheduler.calendars.preview(calendar, horizon), _draw_preview)
        return
    show_answer(session, lambda scheduler: scheduler.calendars.save(calendar), _draw, create=True)


@click.command(cls=RemoteVerb)
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why; kept with what is done.")
@click.pass_obj
def remove(session: Session, name: str, reason: str) -> None:
    """Remove calendar NAME. While jobs or other calendars use it, it stays, and they are named."""
    with_scheduler(session, lambda scheduler: scheduler.calendars.remove(name, reason))
    screen = Screen(session)
    screen.answer({"removed": name}, lambda: screen.line(f"Calendar {name} is removed."))


def _draw_preview(screen: Screen, found: CalendarPreview, _: Instant) -> None:
    if found.items:
        rows = [
            [
                each.job,
                each.effect,
                *(("" if at is None else moment(at, "UTC")) for at in (each.at, each.to)),
                each.reason,
            ]
            for each in found.items
        ]
        screen.table(("JOB", "EFFECT", "NOW", "THEN", "BECAUSE"), rows, fold=("BECAUSE",))
    more = " It was cut short: choose fewer --days." if found.partial else ""
    counts = f"{found.moved:,} firings move, {found.dropped:,} disappear, {found.added:,} appear"
    screen.line(f"{counts} until {moment(found.until, 'UTC')}; {found.jobs:,} active jobs use the calendar.{more}")


def _read_rules(words: _RuleWords) -> tuple[Rule, ...]:
    rules: list[Rule] = [weekends()] if words["weekends"] else []
    rules += [Weekdays(tuple(day.lower() for day in words["days"]))] if words["days"] else []
    rules += [Dates(words["dates"])] if words["dates"] else []
    rules += [DailyWindow(*_ends(text, "daily")) for text in words["daily"]]
    rules += [] if words["hours"] is None else [Not((DailyWindow(*_ends(words["hours"], "only")),))]
    rules += [Blackout(*_ends(text, "blackout")) for text in words["blackouts"]]
    rules += [CronRule(text) for text in words["crons"]]
    rules += [Other(text) for text in words["others"]]
    return (*rules, *_read_json(words["rules"]))


def _ends(text: str, field: str) -> tuple[str, str]:
    start, slash, end = text.partition("/")
    if not slash:
        raise InvalidInput(field, text, "has no end", "write it like 22:00/06:00")
    return start.strip(), end.strip()


def _read_json(text: str | None) -> Sequence[Rule]:
    try:
        return () if text is None else msgspec.json.decode(text, type=tuple[Rule, ...])
    except msgspec.MsgspecError as error:
        remedy = """write it like [{"kind": "dates", "dates": ["12-25"]}]"""
        raise InvalidInput("rules", text, f"cannot be read: {error}", remedy) from None


def describe_rule(rule: dict[str, Any]) -> str:
    """A rule in words."""
    words: dict[object, Callable[[dict[str, Any]], str]] = {
        "weekdays": lambda rule: ", ".join(rule["days"]),
        "dates": lambda rule: ", ".join(rule["dates"]),
        "daily_window": lambda rule: f"{rule['start']} to {rule['end']} of every day",
        "blackout": lambda rule: f"{rule['start']} to {rule['end']}",
        "cron": lambda rule: f"cron {rule['expression']}",
        "calendar": lambda rule: f"what {rule['calendar']} excludes",
        "not": lambda rule: f"all but {', '.join(map(describe_rule, rule['rules']))}",
    }
    describe = words.get(rule["kind"])
    return msgspec.json.encode(rule).decode() if describe is None else describe(rule)
