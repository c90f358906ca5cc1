"""Options of tasks, runs and jobs: one table says how each is called, read and written, and where it applies.

The table drives the keywords of the SDK, the flags of commands, the fields of the API and the words of answers. To add
an option, touch at most four places:

1. `RunOptions` or `JobPolicy` in `core/model.py`, which store it, with its default;
2. a row of `OPTIONS`, and a keyword of the `TypedDict` that type checkers see (a test compares the two), in this file;
3. `records.Job` or `records.Run` with `from_rows`, if answers show it by itself (`policy` shows all of `JobPolicy`);
4. the code that acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated, Any, NamedTuple, Protocol, TypedDict, get_args, runtime_checkable

import msgspec
from msgspec import Meta

from mainspring.core.instants import (
    MILLISECOND,
    Duration,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)
from mainspring.core.load.rate_limits import Pace, format_pace, parse_pace
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
from mainspring.core.tasks.isolation import Isolation, format_isolation, parse_isolation
from mainspring.errors import InvalidInput
from mainspring.operations.values import json_types

LONGEST_NAME = json_types.LONGEST_NAME


@runtime_checkable
class RunReference(Protocol):
    """Anything that stands for a run: a `RunHandle`."""

    @property
    def id(self) -> str:
        """The run's id."""


class ExecutionWords(TypedDict, total=False):
    """How runs are executed. None, here and below, is the same as leaving the keyword out."""

    priority: int | None
    queue: str | None
    timeout: Length | None
    soft_timeout: Length | None
    total_timeout: Length | None
    retry: Retry | None
    max_losses: int | None
    on_key_failure: OnKeyFailure | None
    tags: Sequence[str] | None
    isolation: Isolation | str | None
    alert: str | None
    under_pressure: UnderPressure | None
    region_failover: Length | None
    failover_regions: Sequence[str] | None


class TaskWords(ExecutionWords, total=False):
    """What `@app.task` takes besides a name."""

    limit: int | None
    rate: str | None
    per: str | None
    batch: int | None
    batch_wait: Length | None


class RunWords(ExecutionWords, total=False):
    """What `task.options` takes."""

    key: str | None
    region: str | None
    delay: Length | None
    at: str | datetime | None
    expires: Length | None
    after: Sequence[RunReference | str] | None
    when: When | None
    on_failure: OnFailure | None
    idempotency_key: str | None
    unique: str | None
    connection: object


class JobWords(TaskWords, total=False):
    """What `@app.job` and `app.jobs.add` take besides a trigger, a name and arguments: see `JobPolicy`."""

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
    on_dependency_failure: OnFailure | None


class Defaults(msgspec.Struct, frozen=True):
    """How the runs of a task are executed, unless a job or a submission says otherwise."""

    priority: int = 5
    queue: str = DEFAULT
    limit: int | None = None
    rate: Pace | None = None
    batch: int | None = None
    batch_wait: Duration = 50 * MILLISECOND
    options: RunOptions = RunOptions()


Words = Mapping[str, object]
Values = dict[str, Any]
"""Options as read: those that were given."""


class Kind(NamedTuple):
    """What the values of an option are."""

    read: Callable[[str, Any], object]
    """Converts what an author writes in Python to what is stored. InvalidInput if it is wrong."""
    json: Any = None
    """The type of the field in a JSON body; None: the option exists in Python only."""
    write: Callable[[Any], Any] = lambda value: list(value) if isinstance(value, tuple) else value
    """Converts what is stored to JSON."""
    metavar: str = ""
    """What commands call a value."""
    words: tuple[str, ...] = ()
    """The values that are possible, if they are words."""
    several: bool = False
    """Whether it is a list: a command takes its option once for each."""


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


def _word(kind: Any, json: Any = None) -> Kind:
    words = get_args(kind)

    def read(field: str, value: object) -> str:
        if isinstance(value, str) and value in words:
            return value
        raise InvalidInput(field, value, "is not known", f"choose one of {', '.join(words)}")

    return Kind(read, json or kind, words=words)


def _count(least: int, json: Any) -> Kind:
    def read(field: str, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        raise InvalidInput(field, value, "is not a count", f"give a whole number from {least} up")

    return Kind(read, json, metavar="NUMBER")


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


def _write_retry(retry: Retry) -> dict[str, Any]:
    body: dict[str, Any] = {"retries": retry.retries, "cap": format_duration(retry.cap), "jitter": retry.jitter}
    if len(retry.delays) == 1 and retry.factor > 1:
        body |= {"delay": format_duration(retry.delays[0]), "factor": retry.factor}
    else:
        body["delays"] = [format_duration(each) for each in retry.delays]
    return body | {name: list(errors) for name, errors in (("on", retry.on), ("never", retry.never)) if errors}


NAME = Kind(check_name, json_types.Name, metavar="NAME")
NAMES = Kind(_read_names, json_types.Names, metavar="NAME", several=True)
TAGS = Kind(_read_names, json_types.Tags, metavar="NAME", several=True)
CALENDARS = Kind(_read_calendars, json_types.Calendars, metavar="NAME", several=True)
REGIONS = Kind(_read_some_names, json_types.FewNames, metavar="NAME", several=True)
JOBS = Kind(_read_names, json_types.SomeNames, metavar="JOB", several=True)
RUNS = Kind(_read_runs, json_types.Names, metavar="RUN", several=True)
DURATION = Kind(lambda field, value: parse_duration(value, field), json_types.Span, format_duration, "DURATION")
SOME_DURATION = Kind(_read_some_duration, json_types.Span, format_duration, "DURATION")
INSTANT = Kind(lambda field, value: parse_instant(value, field), json_types.InstantText, format_instant, "INSTANT")
COUNT, COUNT_FROM_0 = _count(1, json_types.Count), _count(0, json_types.CountFrom0)
PRIORITY = Kind(lambda field, value: check_priority(value, field), json_types.Priority, metavar="NUMBER")
RATE = Kind(lambda field, value: parse_pace(value, field), None, format_pace, "RATE")
RETRY = Kind(_read_retry, json_types.RetryBody | json_types.CountFrom0, _write_retry)
ISOLATION = Kind(_read_isolation, json_types.IsolationText, format_isolation, "LEVEL[,LIMIT...]")
ALERT = Kind(lambda field, value: check_alert(value, field), json_types.AlertText, metavar="RECEIVER")
UNDER_PRESSURE = _word(
    UnderPressure,
    Annotated[UnderPressure, Meta(description="whether it waits for what it follows while there is far too much")],
)

TASK, RUN, JOB = "task", "run", "job"
EXECUTION = (TASK, RUN, JOB)


class Option(NamedTuple):
    """One option."""

    name: str
    kind: Kind
    applies: tuple[str, ...]
    """What the option applies to: tasks, runs, jobs."""
    doc: str
    """What it does, in a sentence: for the help of commands and the reference."""
    flag: str | None = ""
    """Its flag without dashes; empty: its name; None: commands do not offer it, or read it otherwise."""
    field: str | None = ""
    """Its field in a JSON body; empty: its name; None: it has none, or one that is read otherwise."""

    @property
    def default(self) -> Any:
        """What is stored unless it is given."""
        for struct in (RunOptions, JobPolicy, Defaults):
            for field in msgspec.structs.fields(struct):
                if field.name == self.name:
                    return field.default
        return None

    @property
    def clearable(self) -> bool:
        """Whether `none` takes its value away. "none" is a level of isolation, so that means something else there."""
        return self.default in (None, ()) and self.kind is not ISOLATION


OPTIONS: Mapping[str, Option] = {
    option.name: option
    for option in (
        Option("priority", PRIORITY, EXECUTION, "1 (highest) to 10; 5 unless given."),
        Option("queue", NAME, EXECUTION, "The queue whose workers run it."),
        Option("timeout", SOME_DURATION, EXECUTION, "Kill an attempt that takes longer."),
        Option("retry", RETRY, EXECUTION, "How often and how late a failed run is tried again.", None),
        Option("soft_timeout", SOME_DURATION, EXECUTION, "Warn an attempt that takes longer: `current_run().overdue`."),
        Option(
            "total_timeout",
            SOME_DURATION,
            EXECUTION,
            "End a run that is not done in this time from its due instant on, with all attempts and waits.",
        ),
        Option("isolation", ISOLATION, EXECUTION, "none, process, limits or sandbox,memory=1GB,network."),
        Option("alert", ALERT, EXECUTION, "Notified if it fails for good: a task, a URL, or $ and a command."),
        Option("max_losses", COUNT_FROM_0, EXECUTION, "How often its worker may be lost before it is failed."),
        Option("on_key_failure", _word(OnKeyFailure), EXECUTION, "Whether a failure stops its key."),
        Option("under_pressure", UNDER_PRESSURE, EXECUTION, "Whether it waits for what it follows under heavy load."),
        Option("region_failover", SOME_DURATION, EXECUTION, "Move it if its region has not begun it in this time."),
        Option("failover_regions", NAMES, EXECUTION, "Where it may move, best first; repeat.", "failover-region"),
        Option("tags", TAGS, EXECUTION, "A tag, to select by; repeat for several.", "tag"),
        Option("key", NAME, (RUN, JOB), "Runs of one key run one after the other, in order of submission."),
        Option("limit", COUNT, (TASK, JOB), "How many runs of the task may run at once, on all workers together."),
        Option("rate", RATE, (TASK, JOB), "How many runs of the task may start in a time, on all workers: 10/m.", None),
        Option("per", NAME._replace(json=None), (TASK, JOB), "Count limit and rate by this argument.", None),
        Option("batch", COUNT._replace(json=None), (TASK, JOB), "Up to this many runs are executed in one call.", None),
        Option(
            "batch_wait", SOME_DURATION._replace(json=None), (TASK, JOB), "How long a batch may take to fill.", None
        ),
        Option("region", NAME, (RUN,), "Where it must run."),
        Option("delay", DURATION, (RUN,), "Due this long from now."),
        Option("at", INSTANT, (RUN,), "Due at this instant.", field=None),
        Option("expires", SOME_DURATION, (RUN,), "Skipped if it has not started this long after it was due."),
        Option("after", RUNS, (RUN,), "Wait for the end of this run; repeat for several."),
        Option("when", _word(When), (RUN,), "With --after: all of them, or any."),
        Option("on_failure", _word(OnFailure), (RUN,), "With --after: if one of them fails."),
        Option("idempotency_key", NAME, (RUN,), "Submitted again with the same key, it is the same run.", field=None),
        Option("unique", NAME, (RUN,), "While a run of the task with this key waits to start, it is that run."),
        Option("connection", Kind(lambda field, value: value), (RUN,), "The transaction that it joins.", None),
        Option("misfire", _word(Misfire), (JOB,), "What to do about missed instants."),
        Option("grace", DURATION, (JOB,), "Later than this is a misfire."),
        Option("catch_up_window", DURATION, (JOB,), "With --misfire all: how far back."),
        Option("catch_up_limit", COUNT_FROM_0, (JOB,), "With --misfire all: how many."),
        Option("start_deadline", SOME_DURATION, (JOB,), "Later than this it no longer starts."),
        Option("overlap", _word(Overlap), (JOB,), "What to do if the last firing has not ended."),
        Option("jitter", DURATION, (JOB,), "Start up to this much later, to spread load."),
        Option("start_at", INSTANT, (JOB,), "Not before this.", "start"),
        Option("end_at", INSTANT, (JOB,), "Not after this.", "end"),
        Option("max_firings", COUNT, (JOB,), "End after this many firings."),
        Option("calendars", CALENDARS, (JOB,), "Not when this calendar excludes it; repeat for several.", "calendar"),
        Option("on_excluded", _word(OnExcluded), (JOB,), "Skip such an instant, or move it to the next day."),
        Option("keep_succeeded", COUNT_FROM_0, (JOB,), "How many succeeded runs to keep."),
        Option("keep_failed", COUNT_FROM_0, (JOB,), "How many failed runs to keep."),
        Option("regions", REGIONS, (JOB,), "Where it must run; repeat for several.", "region"),
        Option("completions", _count(1, json_types.Completions), (JOB,), "How many runs each firing has."),
        Option("parallelism", COUNT, (JOB,), "How many of those may run at once."),
        Option("dependencies", JOBS, (JOB,), "Each run waits for the newest firing of this job.", "dependency", None),
        Option("on_dependency_failure", _word(OnFailure), (JOB,), "If a dependency failed, or has not run yet."),
    )
}
"""All options, by name."""


def options_of(what: str) -> list[Option]:
    """The options that apply to tasks, runs or jobs."""
    return [option for option in OPTIONS.values() if what in option.applies]


def read_words(words: Words, known: type, where: str) -> Values:
    """The values of the options that were given; InvalidInput names one that is unknown or wrong."""
    values = {}
    for name, written in words.items():
        if name not in known.__annotations__:
            near = get_close_matches(name, known.__annotations__, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"it takes {', '.join(sorted(known.__annotations__))}"
            raise InvalidInput(name, written, f"is not an option of {where}", remedy)
        if written is not None:
            values[name] = OPTIONS[name].kind.read(name, written)
    return values


def read_defaults(values: Values, base: Defaults) -> Defaults:
    """The defaults with what was given put over them."""
    options = msgspec.structs.replace(base.options, **_of(RunOptions, values))
    check_timeouts(options)
    return msgspec.structs.replace(base, **_of(Defaults, values), options=options)


def check_timeouts(options: RunOptions) -> None:
    """InvalidInput if two of the timeouts contradict each other."""
    timeout, soft, total = options.timeout, options.soft_timeout, options.total_timeout
    if timeout is None:
        return
    if soft is not None and soft >= timeout:
        problem = f"is not shorter than the timeout of {format_duration(timeout)}"
        raise InvalidInput("soft_timeout", format_duration(soft), problem, "warn before it is killed")
    if total is not None and total < timeout:
        problem = f"is shorter than the timeout of {format_duration(timeout)}, which is for one attempt"
        raise InvalidInput("total_timeout", format_duration(total), problem, "leave time for a whole attempt")


def read_policy(values: Values) -> JobPolicy:
    """A job's policy."""
    policy = JobPolicy(**_of(JobPolicy, values))
    if policy.start_at is not None and policy.end_at is not None and policy.end_at <= policy.start_at:
        raise InvalidInput("end_at", policy.end_at, "is not after start_at", "choose a later end")
    if policy.overlap == "queue" and policy.completions > 1:
        # The next firing would start when the first of several runs ends.
        raise InvalidInput("overlap", "queue", "does not go with completions", 'choose "forbid", or completions=1')
    if policy.overlap == "replace" and policy.dependencies:
        # A run waits for the one that it replaces whatever becomes of that; for a dependency it does not.
        raise InvalidInput("overlap", "replace", "does not go with dependencies", 'choose "forbid" or "queue"')
    return policy


def _of(struct: type[msgspec.Struct], values: Values) -> Values:
    return {name: values[name] for name in struct.__struct_fields__ if name in values}


def word_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they are stored, in the words of a JSON body; None is left out."""
    return {name: OPTIONS[name].kind.write(value) for name, value in values.items() if value is not None}
