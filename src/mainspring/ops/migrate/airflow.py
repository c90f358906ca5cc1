"""The schedules of Airflow's DAGs as jobs, read from the files of code without running or importing them.

A DAG becomes a job whose task has the DAG's name: its operators are work for a task of yours.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from mainspring.core.instants import SECOND, Instant, from_datetime, load_zone
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger, ManualTrigger, Trigger, check_trigger
from mainspring.errors import InvalidInput
from mainspring.ops.migrate.found import FireTimes, Found, blank_job, left_out, unique_names
from mainspring.ops.migrate.their_cron import their_fires

_MADE_BY = {"DAG", "dag"}
_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond")
"""The fields of a datetime, in the order of its arguments."""
_SCHEDULES = ("schedule", "schedule_interval", "timetable")
_READ = {*_SCHEDULES, "dag_id", "start_date", "end_date", "catchup", "max_active_runs", "tags", "default_args"}
_IGNORED = {"description", "doc_md", "owner_links", "default_view", "orientation"}
"""What only Airflow's pages show."""
_CRON_TIMETABLES = {"CronTriggerTimetable", "CronDataIntervalTimetable"}
_DELTA_TIMETABLES = {"DeltaTriggerTimetable", "DeltaDataIntervalTimetable"}
Words = Mapping[str, ast.expr]


class _Unknown(Exception):
    """A value that is not written in the file as it is."""


def read_dags(paths: list[Path], now: Instant, *, namespace: str) -> list[Found]:
    """The DAGs of files, and of the Python files below folders."""
    found, blank = list[Found](), blank_job(namespace, now)
    for path in paths:
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        for file in files:
            found += _read_file(file, blank)
    return unique_names(found)


def _read_file(path: Path, blank: Job) -> Iterator[Found]:
    try:
        tree = ast.parse(path.read_text(), str(path))
    except (SyntaxError, UnicodeDecodeError) as error:
        yield left_out(str(path), path.stem, f"it is not Python: {error}")
        return
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call, default in _dag_calls(tree):
        yield _read_dag(f"{path.name}:{call.lineno}", call, default, constants, blank)


def _dag_calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Calls of DAG, and decorators, with the name that a DAG has unless it is given one."""
    decorated = {
        id(mark): node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for mark in node.decorator_list
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in _MADE_BY:
                yield node, decorated.get(id(node), "")


def _read_dag(source: str, call: ast.Call, default: str, constants: Words, blank: Job) -> Found:
    words: dict[str, ast.expr] = {each.arg: each.value for each in call.keywords if each.arg is not None}
    if call.args:
        words.setdefault("dag_id", call.args[0])
    name = default or source
    try:
        name = str(_value(words["dag_id"], constants)) if "dag_id" in words else name
        return _make_job(source, name, words, constants, blank)
    except _Unknown as error:
        return left_out(source, name, f"{error}: the file does not say it as it is")
    except InvalidInput as error:
        return left_out(source, name, error)


def _make_job(source: str, name: str, words: Words, constants: Words, blank: Job) -> Found:
    start = _value(words["start_date"], constants) if "start_date" in words else None
    end = _value(words["end_date"], constants) if "end_date" in words else None
    schedule = next((_value(words[word], constants) for word in _SCHEDULES if word in words), timedelta(days=1))
    trigger = _read_schedule(schedule, start)
    check_trigger(trigger)
    lost = [f"operators: register a task named {name!r} that does what they do"]
    if isinstance(trigger, CronTrigger | EveryTrigger):
        lost.append("logical date: a run's fire_at is the end of its interval, and data_interval_start is not stored")
    lost += [f"{word}: a job has nothing like it" for word in words if word not in _READ | _IGNORED]
    catchup = bool(_value(words["catchup"], constants)) if "catchup" in words else False
    active = _value(words["max_active_runs"], constants) if "max_active_runs" in words else None
    if catchup:
        lost.append("catchup: past intervals are fired by `mainspring job backfill`, not by the import")
    policy = JobPolicy(
        misfire="all" if catchup else "once",
        overlap="queue" if active == 1 else "allow",
        start_at=_instant(start),
        end_at=_instant(end),
    )
    options = RunOptions(retry=_read_retry(words, constants), tags=_read_tags(words, constants))
    job = msgspec.structs.replace(blank, name=name, task=name, trigger=trigger, policy=policy, options=options)
    fires = their_fires(trigger, "airflow")
    bounded = None if fires is None else partial(_fires, fires, (policy.start_at, policy.end_at))
    return Found(source, name, job, "", tuple(lost), bounded)


def _fires(fires: FireTimes, bounds: tuple[Instant | None, Instant | None], after: Instant) -> Iterator[Instant]:
    """Between the start and the end of the DAG."""
    start, end = bounds
    due = fires(after) if start is None else fires(max(after, start - 1))
    return due if end is None else takewhile(lambda instant: instant <= end, due)


def _read_schedule(schedule: object, start: object) -> Trigger:
    zone = str(start.tzinfo) if isinstance(start, datetime) and start.tzinfo not in (None, UTC) else "UTC"
    match schedule:
        case None | "@once":
            return ManualTrigger()
        case str() if schedule == "@continuous":
            raise InvalidInput("schedule", schedule, "has no counterpart", "use after(…) or a short interval")
        case str():
            return CronTrigger(schedule, zone)
        case CronTrigger():
            return schedule
        case timedelta():
            return EveryTrigger(round(schedule / timedelta(seconds=1) * SECOND), _instant(start))
    raise InvalidInput("schedule", schedule, "has no counterpart: it is no cron and no interval", "choose one")


def _read_retry(words: Words, constants: Words) -> Retry:
    arguments = _value(words["default_args"], constants) if "default_args" in words else {}
    if not isinstance(arguments, dict):
        return Retry(0)
    delay = arguments.get("retry_delay", timedelta(minutes=5))
    return Retry(int(arguments.get("retries") or 0), delay=delay, factor=1.0)


def _read_tags(words: Words, constants: Words) -> tuple[str, ...]:
    tags = _value(words["tags"], constants) if "tags" in words else ()
    return tuple(map(str, tags)) if isinstance(tags, list | tuple | set) else ()


def _instant(moment: object) -> Instant | None:
    return from_datetime(moment) if isinstance(moment, datetime) else None


def _value(node: ast.expr, constants: Words) -> object:
    """What an expression is, if the file says so: a literal, a constant of the module, a date, a length, a zone."""
    match node:
        case ast.Name(name) if name in constants:
            return _value(constants[name], {key: value for key, value in constants.items() if key != name})
        case ast.Dict(keys, values):
            pairs = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
            return {_value(key, constants): _known(value, constants) for key, value in pairs}
        case ast.List(elements) | ast.Tuple(elements):
            return [_value(element, constants) for element in elements]
        case ast.Call():
            return _call(node, constants)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _Unknown(ast.unparse(node)) from None


def _known(node: ast.expr, constants: Words) -> object:
    """As `_value`, or None where the file does not say it."""
    try:
        return _value(node, constants)
    except _Unknown:
        return None


def _call(node: ast.Call, constants: Words) -> object:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    args = [_value(each, constants) for each in node.args]
    words = {each.arg: _value(each.value, constants) for each in node.keywords if each.arg is not None}
    zone = words.pop("tz", words.pop("tzinfo", None))
    numbers = {key: value for key, value in words.items() if isinstance(value, int | float)}
    if name in ("timedelta", "duration"):
        return timedelta(*(each for each in args if isinstance(each, int | float)), **numbers)
    if name in _CRON_TIMETABLES and args:
        return CronTrigger(str(args[0]), str(words.get("timezone", "UTC")))
    if name in _DELTA_TIMETABLES and args:
        return args[0]
    if name in ("timezone", "ZoneInfo") and args:
        return load_zone(str(args[0]))
    if name in ("datetime", "today"):
        place = zone if isinstance(zone, ZoneInfo) else load_zone(str(zone)) if zone else UTC
        parts = dict(zip(_PARTS, (each for each in args if isinstance(each, int)), strict=False))
        parts |= {key: int(value) for key, value in numbers.items()}
        if parts.keys() >= {"year", "month", "day"}:
            day = date(parts["year"], parts["month"], parts["day"])
            hour, minute, second, micro = (parts.get(part, 0) for part in _PARTS[3:])
            return datetime.combine(day, time(hour, minute, second, micro), place)
    raise _Unknown(ast.unparse(node))
