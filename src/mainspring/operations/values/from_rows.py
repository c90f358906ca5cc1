"""From the store's rows to public records: instants become datetimes, durations text like `1h30m`, stored JSON values.

`read` says what becomes of stored JSON: `decode` for programs, `as_stored` where the record is encoded again at once.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from mainspring.core import model
from mainspring.core.answers import Change
from mainspring.core.instants import EPOCH, SECOND, Duration, Instant, format_duration, format_instant
from mainspring.core.model import KeptOptions, RunOptions
from mainspring.core.runs.spending import Spent
from mainspring.core.runs.why import Cause
from mainspring.core.schedules import calendars
from mainspring.core.schedules.triggers import (
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
    describe,
)
from mainspring.core.schedules.words import in_words
from mainspring.core.states import BLOCKED, SUCCEEDED
from mainspring.core.tasks.isolation import format_isolation
from mainspring.operations import records
from mainspring.operations.jobs.options import OPTIONS

Read = Callable[[str | None], Any]

_STATUSES: Mapping[str, records.JobStatus] = {BLOCKED: "pending", SUCCEEDED: "completed"}
_options = msgspec.json.Decoder(KeptOptions)
_decode = msgspec.json.Decoder().decode


def decode(text: str | None) -> Any:
    """Stored JSON as values."""
    return None if text is None else _decode(text)


def as_stored(text: str | None) -> msgspec.Raw | None:
    """Stored JSON as it is: an encoder copies it."""
    return None if text is None else msgspec.Raw(text.encode())


def moment(instant: Instant) -> datetime:
    """An instant as a datetime in UTC."""
    return EPOCH + timedelta(microseconds=instant)


def moment_or_none(instant: Instant | None) -> datetime | None:
    """As `moment`, for an instant that may be missing."""
    return None if instant is None else EPOCH + timedelta(microseconds=instant)


def span(duration: Duration | None) -> str | None:
    """A duration as text."""
    return None if duration is None else format_duration(duration)


def seconds(duration: Duration | None) -> float | None:
    """A duration in seconds."""
    return None if duration is None else duration / SECOND


def same_fields(row: msgspec.Struct, record: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of a row that a record has under the same name: instants as datetimes, tuples as lists."""
    fields: dict[str, Any] = {}
    for name, is_instant in _names_in_common(type(row), record):
        value = getattr(row, name)
        fields[name] = moment_or_none(value) if is_instant else [*value] if isinstance(value, tuple) else value
    return fields


@cache
def _names_in_common(row: type[msgspec.Struct], record: type[msgspec.Struct]) -> Sequence[tuple[str, bool]]:
    """The names, and whether each is that of an instant: `at`, `due_at`."""
    names = [name for name in record.__struct_fields__ if name in row.__struct_fields__]
    return [(name, name == "at" or name.endswith("_at")) for name in names]


def run_record(run: model.Run, read: Read = decode) -> records.Run:
    """A run."""
    return records.Run(**run_fields(run, read))


def run_fields(run: model.Run, read: Read = decode) -> dict[str, Any]:
    """The fields of `records.Run`, for records that have more."""
    options = _options.decode(run.options)
    ran = None
    if run.started_at is not None and run.finished_at is not None:
        ran = format_duration(max(run.finished_at - run.started_at, 0))
    return same_fields(run, records.Run) | {
        "run_id": run.id,
        "duration": ran,
        "home_region": options.home_region or run.region,
        "moved_because": options.moved_because,
        **_execution(options),
        "args": read(run.args),
        "result": read(run.result),
        "error": read(run.error),
        "index": run.idx,
        "updated_at": moment(_updated_at(run)),
        "submitted_by": options.submitted_by or None,
    }


def run_row(run: model.Run, read: Read = decode) -> records.ListedRun:
    """A run of a list, without payloads."""
    unset = dict.fromkeys(("args", "result", "error"), msgspec.UNSET)
    return records.ListedRun(**run_fields(run, read) | unset)


def _updated_at(run: model.Run) -> Instant:
    """The newest of: accepted, started, asked to stop, an attempt ended, the run ended."""
    moments = (run.created_at, run.started_at, run.cancel_requested_at, run.attempt_ended_at, run.finished_at)
    return max(each for each in moments if each is not None)


def _execution(options: RunOptions) -> dict[str, Any]:
    """How runs are executed."""
    return {
        "timeout": span(options.timeout),
        "soft_timeout": span(options.soft_timeout),
        "total_timeout": span(options.total_timeout),
        "retries": options.retry.retries,
        "isolation": None if options.isolation is None else format_isolation(options.isolation),
        "under_pressure": options.under_pressure,
        "region_failover": span(options.region_failover),
        "failover_regions": list(options.failover_regions),
        "tags": list(options.tags),
    }


def job_record(job: model.Job, read: Read = decode) -> records.Job:
    """A job."""
    return records.Job(**job_fields(job, read))


def job_fields(job: model.Job, read: Read = decode) -> dict[str, Any]:
    """The fields of `records.Job`, for records that have more."""
    return same_fields(job, records.Job) | {
        "job_id": job.id,
        "state": "active" if job.paused_at is None else "paused",
        "schedule": describe(job.trigger),
        "trigger": trigger_words(job.trigger),
        "next_run": moment_or_none(job.next_fire_at),
        "last_run": moment_or_none(job.last_fire_at),
        "args": read(job.args),
        **_execution(job.options),
        "retry": OPTIONS["retry"].kind.write(job.options.retry),
        "max_losses": job.options.max_losses,
        "on_key_failure": job.options.on_key_failure,
        "policy": policy_words(job.policy),
    }


def job_row(job: model.Job, read: Read = decode, **more: Any) -> records.ListedJob:
    """A job of a list, with its schedule in words, without arguments."""
    row = job_fields(job, read) | {"args": msgspec.UNSET, "schedule_text": in_words(job.trigger)}
    return records.ListedJob(**row, **more)


def progress_of(last: model.Run | None) -> dict[str, Any]:
    """`status` and `retry_count` of a job, by its last run, in the words of other schedulers."""
    if last is None:
        return {"status": "scheduled", "retry_count": 0}
    status = _STATUSES.get(last.state, last.state)
    retries = 0 if last.state == SUCCEEDED else last.attempt
    return {"status": "retrying" if status == "pending" and retries else status, "retry_count": retries}


def policy_words(policy: model.JobPolicy) -> dict[str, Any]:
    """What happens at and around a due instant, in the words of the options that say it."""
    fields: dict[str, Any] = msgspec.structs.asdict(policy)
    return {name: None if value is None else OPTIONS[name].kind.write(value) for name, value in fields.items()}


def trigger_words(trigger: Trigger) -> dict[str, Any]:
    """A trigger, in the words of the functions that make one."""
    match trigger:
        case CronTrigger(expression, tz, dialect):
            return {"kind": "cron", "cron": expression, "tz": tz, "dialect": dialect}
        case EveryTrigger(period, anchor):
            start = None if anchor is None else format_instant(anchor)
            return {"kind": "every", "every": format_duration(period), "anchor": start}
        case AtTrigger(at):
            return {"kind": "at", "at": format_instant(at)}
        case AfterTrigger(jobs, when, on_failure):
            return {"kind": "after", "after": list(jobs), "when": when, "on_failure": on_failure}
        case ManualTrigger():
            return {"kind": "manual"}


def firing_record(firing: model.Firing) -> records.Firing:
    """A row of the ledger."""
    return records.Firing(**same_fields(firing, records.Firing), index=firing.idx)


def attempt_record(attempt: model.Attempt, read: Read = decode) -> records.Attempt:
    """One attempt of a run that has ended."""
    return records.Attempt(**same_fields(attempt, records.Attempt) | {"error": read(attempt.error)})


def line_records(lines: Iterable[tuple[int, model.LogLine]]) -> list[records.Line]:
    """Lines that a run wrote, with their numbers."""
    return [records.Line(number=number, **same_fields(line, records.Line)) for number, line in lines]


def worker_record(worker: model.Worker, state: records.WorkerState) -> records.Worker:
    """A worker, with the state that it is really in."""
    pools = {str(priority): places for priority, places in worker.pools}
    return records.Worker(**same_fields(worker, records.Worker) | {"worker": worker.id, "state": state, "pools": pools})


_COMMAND = re.compile(r"`mainspring (?!server)[^`]+(?=`)")
"""A command that a remedy names. A server serves all namespaces."""


def in_namespace(remedy: str, namespace: str) -> str:
    """A remedy whose commands reach the namespace of what it is about."""
    if namespace == model.DEFAULT:
        return remedy
    return _COMMAND.sub(lambda found: f"{found[0]} --namespace {shlex.quote(namespace)}", remedy)


def explained(causes: Iterable[Cause], namespace: str) -> dict[str, Any]:
    """`why` and `causes` of a job or run, in the same order."""
    found = [msgspec.structs.replace(each, remedy=in_namespace(each.remedy, namespace)) for each in causes]
    return {"why": [each.sentence for each in found], "causes": [_cause_record(each) for each in found]}


def _cause_record(cause: Cause) -> records.Cause:
    return records.Cause(**same_fields(cause, records.Cause) | {"since": moment_or_none(cause.since)})


def spent_records(spent: Sequence[Spent]) -> list[records.Spent]:
    """How the time of a run was spent, with the share of each part."""
    whole = sum(each.duration for each in spent) or 1
    return [
        records.Spent(each.kind, each.text, each.state, each.duration / SECOND, round(each.duration / whole, 4))
        for each in spent
    ]


def term_records(terms: Sequence[model.TermRecord]) -> list[records.Term]:
    """The history of terms, newest first, each with the time without a holder before it."""
    found, later = list[records.Term](), dict[str, int]()
    for term in terms:
        if term.name in later and term.ended_at is not None:
            following = found[later[term.name]]
            gap_s = (following.began_at - moment(term.ended_at)).total_seconds()
            # A term whose owner gave no last sign ends with the beginning of the next.
            found[later[term.name]] = msgspec.structs.replace(following, gap_s=gap_s if gap_s > 0 else None)
        later[term.name] = len(found)
        found.append(records.Term(**same_fields(term, records.Term)))
    return found


def node_record(node: model.Node, now: Instant) -> records.Node:
    """A node, and whether it is alive."""
    return records.Node(
        **same_fields(node, records.Node),
        node=node.name,
        alive=node.is_alive(now),
        check_in=format_duration(node.every),
        skew_s=node.skew / SECOND,
    )


def claim_record(claim: model.Claim, read: Read = decode) -> records.Claim:
    """What a worker needs to execute one attempt."""
    options = _options.decode(claim.options)
    return records.Claim(
        run_id=claim.run_id,
        token=claim.token,
        task=claim.task,
        args=read(claim.args),
        attempt=claim.attempt + 1,
        job=claim.job,
        fire_at=moment_or_none(claim.fire_at),
        index=claim.idx,
        timeout=span(options.timeout),
        give_up_at=moment_or_none(options.give_up_at),
        claimed_until=moment(claim.claimed_until),
    )


def event_record(position: int | None, event: model.Event) -> records.Event:
    """An event. What a worker reports of itself has no public position."""
    fields = same_fields(event, records.Event)
    return records.Event(**fields | {"position": position, "duration": span(event.duration)})


def calendar_record(calendar: calendars.Calendar) -> records.Calendar:
    """A calendar."""
    return records.Calendar(calendar.name, calendar.tz, _decode(msgspec.json.encode(calendar.rules)))


def change_record(number: int, change: Change, read: Read = decode) -> records.Change:
    """A row of the audit trail."""
    values = {"before": read(change.before), "after": read(change.after)}
    return records.Change(number=number, **same_fields(change, records.Change) | values)
