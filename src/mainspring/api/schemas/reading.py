"""From the fields of a body to jobs and runs: every fault is noted, under the name that the caller used."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from mainspring.api.problems import Wrong
from mainspring.api.wire.decoding import Given, given_of
from mainspring.core.instants import Instant, from_wall, load_zone, parse_instant, to_datetime
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import (
    AtTrigger,
    CronTrigger,
    Trigger,
    after,
    check_not_past,
    check_trigger,
    every,
    manual,
)
from mainspring.core.tasks.commands import split_command
from mainspring.errors import InvalidInput
from mainspring.operations.jobs.options import INSTANT, OPTIONS, JobWords, RunWords, Values, check_name, read_words

COMMANDS = frozenset({"command", "container"})
"""Tasks that execute whatever they are given: they need a permission of their own."""
_ALIASES = (
    ("schedule", "cron"),
    ("run_at", "at"),
    ("timezone", "tz"),
    ("schedule", "cronExpression"),
    ("run_at", "executeAt"),
    ("run_at", "execute_at"),
    ("task", "type"),
    ("args", "payload"),
    ("retry", "max_retries"),
    ("regions", "targetDataCenters"),
)
"""Our names of fields, and the names that other schedulers use (docs/sources.md). Requests may use the latter; answers
never do."""
_TRIGGERS = ("schedule", "every", "run_at", "after", "manual")
TRIGGER_WORDS = frozenset(
    {"schedule", "every", "anchor", "run_at", "after", "when", "on_failure", "manual", "timezone", "dialect"}
)
_SAY_WHEN = "give one of schedule, every, run_at, after, manual"


class TaskCall(NamedTuple):
    """What is to be done."""

    task: str
    args: dict[str, Any]


def settle_names(given: Given, wrong: Wrong) -> Given:
    """The fields under their first names; null is the same as leaving a field out."""
    named = {name: value for name, value in given.items() if value is not None}
    wrong.names.update({name: name for name, _ in _ALIASES})
    for name, alias in _ALIASES:
        if alias in named:
            if name in named:
                wrong.add(alias, f"is given together with {name}", "give one of them")
            named[name] = named.pop(alias)
            wrong.names[name] = alias
    return named


def settle_dependencies(named: Given, wrong: Wrong) -> None:
    """What a job follows: its trigger, or, where it has its own time as well, what its runs wait for then."""
    timed = any(name in named for name in ("schedule", "every", "run_at", "manual"))
    given, name = [each for each in ("after", "dependencies") if each in named], "dependencies" if timed else "after"
    if len(given) > 1:
        wrong.add("dependencies", "is given together with after", "give one of them")
        del named["dependencies"]
    elif given:
        named[name] = named.pop(given[0])
        wrong.names[name] = given[0]
    if timed and "on_failure" in named and "dependencies" in named:
        named["on_dependency_failure"] = named.pop("on_failure")
        wrong.names["on_dependency_failure"] = "on_failure"


def read_work(given: Given, wrong: Wrong) -> TaskCall:
    """A task and its arguments, or a command."""
    task, command, args = given.get("task"), given.get("command"), given.get("args")
    if (task is None) == (command is None):
        if not {fault.field for fault in wrong.faults} & {"task", "command"}:
            fault = "is missing" if task is None else "is given together with command"
            wrong.add("task", fault, "give a task or a command")
        return TaskCall("", {})
    if task is not None:
        note_fault(wrong, check_name, "task", task)
        return TaskCall(task, args or {})
    if args is not None:
        wrong.add("args", "is for tasks", "write the arguments into the command itself")
    argv = command if isinstance(command, list) else note_fault(wrong, split_command, command)
    if argv and any("\0" in word for word in argv):
        wrong.add("command", "has a zero character", "leave it out")
        argv = None
    return TaskCall("command", {"argv": argv}) if argv else TaskCall("", {})


def note_fault(wrong: Wrong, read: Any, *values: Any) -> Any:
    """The result of a reader; None, and the fault noted, if it refuses the values."""
    try:
        return read(*values)
    except InvalidInput as error:
        wrong.take(error)
        return None


def read_options(given: Given, known: type, zone: str | None, wrong: Wrong) -> Values:
    """The options among the fields, as they are stored."""
    values: Values = {}
    for name in known.__annotations__:
        if name not in given or (known is JobWords and name in TRIGGER_WORDS):
            continue
        written = given[name]
        try:
            if name == "retry":
                written = Retry(written) if isinstance(written, int) else Retry(**given_of(written))
            elif OPTIONS[name].kind is INSTANT:
                written = to_datetime(read_instant(written, name, zone))
            values |= read_words({name: written}, known, "this request")
        except InvalidInput as error:
            wrong.take(error, "retry." if name == "retry" and not error.field.startswith("retry") else "")
    return values


def read_instant(text: str, field: str, zone: str | None) -> Instant:
    """An instant with its offset, or a wall-clock time in `zone`."""
    if zone is not None:
        with suppress(ValueError):
            wall = datetime.fromisoformat(text.strip())
            if wall.tzinfo is None:
                return from_wall(wall, zone)
    return parse_instant(text, field)


def read_zone(given: Given, wrong: Wrong) -> str | None:
    """The zone that instants and schedules are in."""
    zone: str | None = given.get("timezone")
    if zone is not None and note_fault(wrong, load_zone, zone, "timezone") is None:
        return None
    return zone


def read_trigger(given: Given, zone: str | None, now: Instant | None, wrong: Wrong) -> Trigger:
    """When a job is due. With `now`, it must be due after it."""
    kinds = [name for name in _TRIGGERS if name in given and given[name] is not False]
    if len(kinds) != 1:
        if not {fault.field for fault in wrong.faults} & {*_TRIGGERS, "cron", "at"}:
            field = wrong.names.get(kinds[1], kinds[1]) if kinds else "schedule"
            wrong.add(field, f"is given together with {kinds[0]}" if kinds else "is missing", _SAY_WHEN)
        return manual()
    kind = kinds[0]
    _check_companions(given, kind, wrong)
    shown = wrong.names.get(kind, kind)
    wrong.names.update({"cron": shown, "at": shown, "period": "every", "jobs": "after", "tz": wrong.names["timezone"]})
    try:
        trigger = _make_trigger(given, kind, zone, shown)
        check_trigger(trigger)
        if now is not None:
            check_not_past(trigger, now)
    except InvalidInput as error:
        wrong.take(error)
        return manual()
    return trigger


def _make_trigger(given: Given, kind: str, zone: str | None, shown: str) -> Trigger:
    if kind == "schedule":
        return CronTrigger(given["schedule"], zone or "UTC", given.get("dialect"))
    if kind == "every":
        anchor = given.get("anchor")
        start = None if anchor is None else to_datetime(read_instant(anchor, "anchor", zone))
        return every(given["every"], anchor=start)
    if kind == "run_at":
        return AtTrigger(read_instant(given["run_at"], shown, zone))
    if kind == "after":
        words = {name: given[name] for name in ("when", "on_failure") if name in given}
        return after(*given["after"], **words)
    return manual()


_COMPANIONS = {"when": "after", "on_failure": "after", "dialect": "schedule", "anchor": "every"}


def _check_companions(given: Given, kind: str, wrong: Wrong) -> None:
    for name, needed in _COMPANIONS.items():
        if name in given and kind != needed:
            wrong.add(name, f"has no use without {needed}", "leave it out")
    zoned = kind in ("schedule", "run_at") or any(name in given for name in ("anchor", "start_at", "end_at"))
    if "timezone" in given and not zoned:
        wrong.add(wrong.names["timezone"], "has no use for this trigger", "leave it out")


def read_run_options(given: Given, wrong: Wrong) -> Values:
    """The options of a submission."""
    words = dict(given)
    if "run_at" in words:
        words["at"] = words.pop("run_at")
        wrong.names["at"] = wrong.names["run_at"]
    values = read_options(words, RunWords, None, wrong)
    if "delay" in values and "at" in values:
        wrong.add("delay", f"is given together with {wrong.names['run_at']}", "give one of them")
        del values["delay"]
    for word in ("when", "on_failure"):
        if word in values and not values.get("after"):
            wrong.add(word, "has no use without after", "name the runs that it should wait for")
            del values[word]
    return values


def rename_aliases(change: Mapping[str, Any]) -> dict[str, Any]:
    """A change under the first names, so that it replaces what is stored under them. Fields that are given twice are
    refused by `settle_names`."""
    ours = {alias: name for name, alias in _ALIASES if alias not in ("cron", "at", "tz") and name not in change}
    return {ours.get(name, name): value for name, value in change.items()}


def merge(stored: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON merge patch (RFC 7396) of one level: null takes a field away."""
    merged = {**stored, **change}
    return {name: value for name, value in merged.items() if value is not None}
