"""The jobs of an APScheduler 3 store (SQLAlchemy) as jobs. APScheduler itself computes its fire times.

The store is only read: APScheduler's own reader deletes the jobs whose functions it cannot import. Its rows are
pickles; an unpickler reads them that knows the classes of its triggers and plain data, and imports nothing else.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from mainspring.core.instants import SECOND, Duration, Instant, from_datetime, load_zone, to_datetime
from mainspring.core.model import Job, JobPolicy, Misfire
from mainspring.core.schedules.triggers import (
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    Trigger,
    check_not_past,
    check_trigger,
)
from mainspring.errors import InvalidInput
from mainspring.ops.migrate.crontab import NO_RETRY
from mainspring.ops.migrate.found import Found, blank_job, left_out, unique_names
from mainspring.ops.migrate.functions import encode_call, task_name, unknown_task
from mainspring.process.urls import show_url
from mainspring.sdk.app import Mainspring

TABLE = "apscheduler_jobs"
PAUSED = "paused in APScheduler"
_TRIGGERS = re.compile(r"apscheduler\.triggers(\.\w+)+")
_PLAIN = {
    "datetime": {"datetime", "date", "time", "timedelta", "timezone"},
    "zoneinfo": {"ZoneInfo"},
    "pytz": {"_p", "_UTC"},
    "decimal": {"Decimal"},
    "uuid": {"UUID"},
    "builtins": {"set", "frozenset"},
}
"""Names that a pickle may import, beside the classes of triggers: none of them runs or imports anything."""
_THEIR_GRACE_S = 1
"""APScheduler's default: later than this, a run is dropped."""
_ORDINALS = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5}
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_FIELDS = ("second", "minute", "hour", "day", "month", "day_of_week")
_GIVE = "give the URL of a SQLAlchemyJobStore, as SQLAlchemy writes it"
State = Mapping[str, Any]


def read_apscheduler(
    url: str, now: Instant, *, namespace: str, app: Mainspring | None, table: str = TABLE
) -> list[Found]:
    """The jobs of the store at an SQLAlchemy URL. InvalidInput if it cannot be read, or has no such table."""
    try:
        rows = _read_rows(url, table)
    except ImportError as error:
        problem = f"can be read only with APScheduler 3, SQLAlchemy and the driver that it names: {error}"
        remedy = "install what is missing: pip install 'apscheduler<4' sqlalchemy"
        raise InvalidInput("url", show_url(url), problem, remedy) from None
    blank = blank_job(namespace, now)
    return unique_names(_read_row(key, state, blank, app) for key, state in rows)


def _read_rows(url: str, table: str) -> list[tuple[str, bytes]]:
    import sqlalchemy
    from sqlalchemy.exc import SQLAlchemyError

    import_module("apscheduler.jobstores.sqlalchemy")  # No row can be read without it.
    try:
        engine = sqlalchemy.create_engine(url)
        try:
            # SQLite creates a file that does not exist.
            if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").is_file():
                raise InvalidInput("url", url, "names a file that does not exist", "check the path")
            if not sqlalchemy.inspect(engine).has_table(table):
                raise InvalidInput("url", show_url(url), f"has no table {table}", _GIVE)
            with engine.connect() as connection:
                columns = sqlalchemy.text(f'SELECT id, job_state FROM "{table}" ORDER BY id')
                return [(str(key), bytes(state)) for key, state in connection.execute(columns)]
        finally:
            engine.dispose()
    except SQLAlchemyError as error:
        raise InvalidInput("url", show_url(url), f"cannot be read: {str(error).splitlines()[0]}", _GIVE) from None


def _read_row(key: str, pickled: bytes, blank: Job, app: Mainspring | None) -> Found:
    source = f"job {key}"
    try:
        return _read_job(source, key, _unpickle(pickled), blank, app)
    except InvalidInput as error:
        return left_out(source, key, error)
    except Exception as error:  # A damaged pickle may raise anything; other jobs are still read.
        return left_out(source, key, f"its state cannot be read: {type(error).__name__}: {error}")


def _unpickle(pickled: bytes) -> State:
    from apscheduler.jobstores.sqlalchemy import pickle  # the only reader of what APScheduler wrote

    class Reader(pickle.Unpickler):
        """Imports the classes of triggers and zones, and plain data."""

        def find_class(self, module: str, name: str) -> Any:
            """A class that the pickle names."""
            if (module, name) == ("builtins", "getattr"):
                return _zone_reader
            if name in _PLAIN.get(module, ()):
                return super().find_class(module, name)
            if _TRIGGERS.fullmatch(module):
                found = super().find_class(module, name)
                if isinstance(found, type) and found.__module__ == module:
                    return found
            problem = "is a name that is not imported from data"
            raise InvalidInput("job_state", f"{module}.{name}", problem, "store plain values as arguments")

    state: State = Reader(io.BytesIO(pickled)).load()
    return state


def _zone_reader(owner: object, name: str) -> Any:
    """The only attribute that a pickle may ask for: what restores a zone."""
    if owner is ZoneInfo and name == "_unpickle":
        return getattr(owner, name)
    raise InvalidInput("job_state", f"{owner!r}.{name}", "is not read from data", "store plain values as arguments")


def _read_job(source: str, key: str, state: State, blank: Job, app: Mainspring | None) -> Found:
    lost: list[str] = []
    limits: dict[str, Any] = {}
    their_trigger = state["trigger"]
    trigger = _read_trigger(their_trigger, limits)
    check_trigger(trigger)
    check_not_past(trigger, blank.created_at)
    if state.get("executor", "default") != "default":
        lost.append(f"executor {state['executor']}: a worker runs it; give the job a queue to choose which")
    if state.get("max_instances", 1) > 1:
        lost.append(f"max_instances {state['max_instances']}: any number may overlap here; give the task a limit")
    misfire, grace = _read_misfire(state, lost)
    is_paused = state.get("next_run_time") is None
    task = task_name(str(state["func"]), app)
    lost += unknown_task(task, app)
    name = str(state.get("name") or task) if re.fullmatch(r"[0-9a-f]{32}", key) else key
    policy = JobPolicy(
        misfire=misfire,
        grace=grace,
        overlap="forbid" if state.get("max_instances", 1) == 1 else "allow",
        **limits,
    )
    job = msgspec.structs.replace(
        blank,
        name=name,
        task=task,
        trigger=trigger,
        args=encode_call(task, state.get("args", ()), state.get("kwargs", {}), app),
        policy=policy,
        options=NO_RETRY,
        paused_at=blank.created_at if is_paused else None,
        paused_why=PAUSED if is_paused else "",
    )
    return Found(source, name, job, "", tuple(lost), partial(_fires, their_trigger))


def _read_misfire(state: State, lost: list[str]) -> tuple[Misfire, Duration]:
    grace, ours = state.get("misfire_grace_time", _THEIR_GRACE_S), JobPolicy().grace
    if grace is None:
        return ("once" if state.get("coalesce", True) else "all"), ours
    if grace == _THEIR_GRACE_S:
        lost.append("misfire_grace_time 1: a late instant is dropped there after one second; here it still runs, once")
        return "once", ours
    return "skip", grace * SECOND


def _read_trigger(trigger: Any, limits: dict[str, Any]) -> Trigger:
    kind = type(trigger).__name__
    if jitter := getattr(trigger, "jitter", None):
        limits["jitter"] = int(jitter * SECOND)
    if (end := getattr(trigger, "end_date", None)) is not None:
        limits["end_at"] = from_datetime(end)
    if kind == "IntervalTrigger":
        period = round(trigger.interval / timedelta(seconds=1) * SECOND)
        # Its first instant is the start date; ours is one period after the anchor.
        return EveryTrigger(period, from_datetime(trigger.start_date) - period)
    if kind == "DateTrigger":
        return AtTrigger(from_datetime(trigger.run_date))
    if kind == "CronTrigger":
        if (start := trigger.start_date) is not None:
            limits["start_at"] = from_datetime(start)
        return CronTrigger(_read_fields(trigger), str(trigger.timezone))
    remedy = "make a job for each of its parts" if kind == "OrTrigger" else "choose a cron or an interval"
    raise InvalidInput("trigger", str(trigger), "has no counterpart", remedy)


def _read_fields(trigger: Any) -> str:
    texts = {field.name: str(field) for field in trigger.fields}
    for name in ("year", "week"):
        if texts[name] != "*":
            raise InvalidInput(name, texts[name], "has no counterpart in cron", "use start_at and end_at, or a weekday")
    day, weekday = texts["day"], texts["day_of_week"]
    if day != "*" and weekday != "*":
        problem = "and a weekday must both match there; either does here"
        raise InvalidInput("day", day, problem, "restrict one, and check the other in the task")
    texts["day"], texts["day_of_week"] = _read_day(day, _read_weekdays(weekday))
    fields = [texts[name] for name in _FIELDS]
    return " ".join(fields[1:] if fields[0] == "0" else fields)


def _read_day(day: str, weekday: str) -> tuple[str, str]:
    """`last` and `2nd fri` of the day field as `L` and `FRI#2`."""
    words = day.split()
    if day == "last":
        return "L", weekday
    if len(words) == 2 and words[1].upper() in _WEEKDAYS:
        number = (_WEEKDAYS.index(words[1].upper()) + 1) % 7
        return "*", f"{number}L" if words[0] == "last" else f"{number}#{_ORDINALS[words[0]]}"
    return day, weekday


def _read_weekdays(text: str) -> str:
    """Weekdays by name: their numbers begin with Monday as 0."""

    def named(match: re.Match[str]) -> str:
        return _WEEKDAYS[int(match[0])]

    if "/" in text:
        base, _, step = text.partition("/")
        if base == "*":
            return ",".join(_WEEKDAYS[:: int(step)])
        raise InvalidInput("day_of_week", text, "has a step that counts from Monday", "list the weekdays")
    return re.sub(r"\d+", named, text).upper()


def _fires(trigger: Any, after: Instant) -> Iterator[Instant]:
    """The fire times that APScheduler computes, each from the one before."""
    zone = getattr(trigger, "timezone", None) or load_zone("UTC")
    # It answers with the present itself where that matches.
    moment: datetime | None = to_datetime(after + 1).astimezone(zone)
    previous: datetime | None = None
    while True:
        assert moment is not None
        found: datetime | None = trigger.get_next_fire_time(previous, moment)
        if found is None or (previous is not None and from_datetime(found) <= from_datetime(previous)):
            return
        yield from_datetime(found)
        previous, moment = found, found
