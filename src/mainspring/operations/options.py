"""Options as people write them, read into what is stored. A word means the same wherever it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Protocol, TypedDict, get_args, runtime_checkable

import msgspec

from mainspring.core.instants import MILLISECOND, Duration, format_duration, parse_duration, parse_instant
from mainspring.core.model import (
    DEFAULT,
    JobPolicy,
    Misfire,
    OnExcluded,
    OnKeyFailure,
    Overlap,
    RunOptions,
    UnderPressure,
)
from mainspring.core.runs.alerts import check_alert
from mainspring.core.runs.priority import check_priority
from mainspring.core.runs.retry import Length, Retry
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import OnFailure, When
from mainspring.core.tasks.isolation import Isolation, parse_isolation
from mainspring.errors import InvalidInput

LONGEST_NAME = 200


@runtime_checkable
class RunReference(Protocol):
    """Anything that stands for a run: a `RunHandle`."""

    @property
    def id(self) -> str:
        """The run's id."""


class ExecutionWords(TypedDict, total=False):
    """How runs are executed. None, here and below, is the same as leaving the word out."""

    priority: int | None
    """1 (highest) to 10; 5 unless told otherwise."""
    queue: str | None
    timeout: Length | None
    """An attempt that takes longer is killed."""
    soft_timeout: Length | None
    """An attempt that takes longer is told so, and may finish early: `current_run().overdue`."""
    retry: Retry | None
    max_losses: int | None
    """How often a run's worker may be lost before the run is failed."""
    on_key_failure: OnKeyFailure | None
    """Whether a failed run lets the next one of its key go on, or stops the key."""
    tags: Sequence[str] | None
    isolation: Isolation | str | None
    """Where it is executed and what it may use: see `Isolation`. A text is a level, or `"limits,memory=1GB"`."""
    alert: str | None
    """Who is told if a run fails for good: the name of a task, a URL, or `$` and a command."""
    under_pressure: UnderPressure | None
    """`"run"`: while there is far too much to do, it runs without waiting for what it follows."""


class TaskWords(ExecutionWords, total=False):
    """What `@app.task` takes besides a name."""

    limit: int | None
    """How many runs of the task may run at once, on all workers together."""
    batch: int | None
    """Execute up to so many runs in one call. The function takes one list; what it returns is parted again."""
    batch_wait: Length | None
    """How long to wait for a batch to fill; 50 ms unless given."""


class RunWords(ExecutionWords, total=False):
    """What `task.options` takes."""

    key: str | None
    """Runs of one key run one after the other, in the order of their submission."""
    region: str | None
    delay: Length | None
    """Due this long after submission."""
    at: str | datetime | None
    """Due at this instant."""
    expires: Length | None
    """Skipped if it has not started this long after it was due."""
    after: Sequence[RunReference | str] | None
    """Runs, as handles or ids, that must end first."""
    when: When | None
    on_failure: OnFailure | None
    """What becomes of the run if one of those before it did not succeed."""
    idempotency_key: str | None
    """Submitted again with the same key, it is the same run."""
    connection: object
    """The PostgreSQL connection whose transaction the submission should join."""


class JobWords(TaskWords, total=False):
    """What `@app.job` and `app.add_job` take besides a trigger, a name and arguments: see `JobPolicy`."""

    key: str | None
    misfire: Misfire | None
    grace: Length | None
    catch_up_window: Length | None
    catch_up_limit: int | None
    start_deadline: Length | None
    overlap: Overlap | None
    jitter: Length | None
    start_at: str | datetime | None
    end_at: str | datetime | None
    max_firings: int | None
    calendars: Sequence[str | Calendar] | None
    on_excluded: OnExcluded | None
    keep_succeeded: int | None
    keep_failed: int | None
    regions: Sequence[str] | None
    completions: int | None
    parallelism: int | None
    dependencies: Sequence[str] | None
    """Jobs by name. At each instant a run waits until the newest firing of each of them has ended, and starts if they
    succeeded."""
    on_dependency_failure: OnFailure | None
    """What becomes of an instant if one of them did not succeed, or has not run yet."""


class Defaults(msgspec.Struct, frozen=True):
    """How the runs of a task are executed, unless a job or a submission says otherwise."""

    priority: int = 5
    queue: str = DEFAULT
    limit: int | None = None
    batch: int | None = None
    batch_wait: Duration = 50 * MILLISECOND
    options: RunOptions = RunOptions()


Words = Mapping[str, object]
Values = dict[str, Any]
"""Options as read: those that were given."""


def read_words(words: Words, known: type, where: str) -> Values:
    """The values of the options that were given; InvalidInput names one that is unknown or wrong."""
    values = {}
    for name, written in words.items():
        if name not in known.__annotations__:
            near = get_close_matches(name, known.__annotations__, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(known.__annotations__))}"
            raise InvalidInput(name, written, f"is not an option of {where}", remedy)
        if written is not None:
            values[name] = _READERS[name](name, written)
    return values


def read_defaults(values: Values, base: Defaults) -> Defaults:
    """The defaults with what was given put over them."""
    options = msgspec.structs.replace(base.options, **_of(RunOptions, values))
    if options.timeout is not None and options.soft_timeout is not None and options.soft_timeout >= options.timeout:
        problem = f"is not shorter than the timeout of {format_duration(options.timeout)}"
        raise InvalidInput("soft_timeout", format_duration(options.soft_timeout), problem, "warn before it is killed")
    return msgspec.structs.replace(base, **_of(Defaults, values), options=options)


def read_policy(values: Values) -> JobPolicy:
    """A job's policy."""
    policy = JobPolicy(**_of(JobPolicy, values))
    if policy.start_at is not None and policy.end_at is not None and policy.end_at <= policy.start_at:
        raise InvalidInput("end_at", policy.end_at, "is not after start_at", "choose a later end")
    if policy.overlap == "queue" and policy.completions > 1:
        # A place in a line is one run's; a firing of several would let the next one in when its first run ends.
        raise InvalidInput("overlap", "queue", "does not go with completions", 'choose "forbid", or completions=1')
    if policy.overlap == "replace" and policy.dependencies:
        # The run that is replaced is waited for whatever becomes of it; a dependency is not.
        raise InvalidInput("overlap", "replace", "does not go with dependencies", 'choose "forbid" or "queue"')
    return policy


def _of(struct: type[msgspec.Struct], values: Values) -> Values:
    return {name: values[name] for name in struct.__struct_fields__ if name in values}


def check_name(field: str, value: object) -> str:
    """A name or a key: text that can be printed, typed and compared."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable() and value == value.strip():
        return value
    remedy = f"use 1 to {LONGEST_NAME} printable characters, with no blanks around them"
    raise InvalidInput(field, value, "cannot be used here", remedy)


def _read_names(field: str, value: object) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(check_name(f"{field}[{index}]", each) for index, each in enumerate(_items(field, value)))
    )


def _read_some_names(field: str, value: object) -> tuple[str, ...]:
    names = _read_names(field, value)
    if not names:
        raise InvalidInput(field, value, "is empty", "name at least one, or leave it out")
    return names


def _read_calendars(field: str, value: object) -> tuple[str, ...]:
    return _read_names(field, [each.name if isinstance(each, Calendar) else each for each in _items(field, value)])


def _read_runs(field: str, value: object) -> tuple[str, ...]:
    return _read_names(field, [each.id if isinstance(each, RunReference) else each for each in _items(field, value)])


def _items(field: str, value: object) -> Iterable[object]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput(field, value, "is not a list", "write it in brackets, even if it is one")
    return value


def _word_of(kind: object) -> Callable[[str, object], str]:
    words = get_args(kind)

    def read(field: str, value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise InvalidInput(field, value, "is not known", f"choose one of {', '.join(words)}")

    return read


def _count_from(least: int) -> Callable[[str, object], int]:
    def read(field: str, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise InvalidInput(field, value, "is not a count", f"give a whole number from {least} up")

    return read


def _read_duration(field: str, value: Any) -> Duration:
    return parse_duration(value, field)


def _read_some_duration(field: str, value: Any) -> Duration:
    duration = parse_duration(value, field)
    if not duration:
        raise InvalidInput(field, value, "is no time at all", "choose a duration above zero")
    return duration


def _read_retry(field: str, value: object) -> Retry:
    if not isinstance(value, Retry):
        raise InvalidInput(field, value, "is not a Retry", "write Retry(3), or Retry(0) for none")
    return value


def _read_isolation(field: str, value: object) -> Isolation:
    if isinstance(value, Isolation):
        return value
    if not isinstance(value, str):
        raise InvalidInput(field, value, "is not an isolation", 'write "process", or Isolation("limits", memory="1GB")')
    return parse_isolation(value)


_READERS: dict[str, Callable[[str, Any], object]] = {
    "priority": lambda field, value: check_priority(value, field),
    "queue": check_name,
    "timeout": _read_some_duration,
    "soft_timeout": _read_some_duration,
    "retry": _read_retry,
    "max_losses": _count_from(0),
    "on_key_failure": _word_of(OnKeyFailure),
    "tags": _read_names,
    "isolation": _read_isolation,
    "alert": lambda field, value: check_alert(value, field),
    "under_pressure": _word_of(UnderPressure),
    "batch": _count_from(1),
    "batch_wait": _read_some_duration,
    "limit": _count_from(1),
    "key": check_name,
    "region": check_name,
    "delay": _read_duration,
    "at": lambda field, value: parse_instant(value, field),
    "expires": _read_some_duration,
    "after": _read_runs,
    "when": _word_of(When),
    "on_failure": _word_of(OnFailure),
    "idempotency_key": check_name,
    "connection": lambda field, value: value,
    "misfire": _word_of(Misfire),
    "grace": _read_duration,
    "catch_up_window": _read_duration,
    "catch_up_limit": _count_from(0),
    "start_deadline": _read_some_duration,
    "overlap": _word_of(Overlap),
    "jitter": _read_duration,
    "start_at": lambda field, value: parse_instant(value, field),
    "end_at": lambda field, value: parse_instant(value, field),
    "max_firings": _count_from(1),
    "calendars": _read_calendars,
    "on_excluded": _word_of(OnExcluded),
    "keep_succeeded": _count_from(0),
    "keep_failed": _count_from(0),
    "regions": _read_some_names,
    "completions": _count_from(1),
    "parallelism": _count_from(1),
    "dependencies": _read_names,
    "on_dependency_failure": _word_of(OnFailure),
}
