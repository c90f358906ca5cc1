"""What programs are shown of runs, jobs, firings and workers, by `--json` and by the API: stable names, instants in
ISO 8601, durations as `1h30m`."""

from __future__ import annotations

import msgspec

from mainspring.core.answers import Change
from mainspring.core.instants import Instant, format_duration, format_instant
from mainspring.core.model import Attempt, Event, Firing, Job, KeptOptions, LogLine, Run, RunOptions, Worker
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import (
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
    describe,
)
from mainspring.core.states import BLOCKED, SUCCEEDED
from mainspring.core.tasks.isolation import format_isolation

View = dict[str, object]

_DURATIONS = ("grace", "catch_up_window", "start_deadline", "jitter")
_INSTANTS = ("start_at", "end_at")


def iso(instant: Instant | None) -> str | None:
    """ISO 8601 in UTC."""
    return None if instant is None else format_instant(instant)


def raw(text: str | None) -> msgspec.Raw | None:
    """JSON that was stored as text, as it is."""
    return None if text is None else msgspec.Raw(text.encode())


def run_options(run: Run) -> KeptOptions:
    """How a run is executed."""
    return msgspec.json.decode(run.options, type=KeptOptions)


def run_view(run: Run) -> View:
    """A run."""
    options = run_options(run)
    return {
        "run_id": run.id,
        "job": run.job,
        "task": run.task,
        "state": run.state,
        "reason": run.reason,
        "fire_at": iso(run.fire_at),
        "due_at": iso(run.due_at),
        "attempt": run.attempt,
        "started_at": iso(run.started_at),
        "finished_at": iso(run.finished_at),
        "duration": _duration_of(run),
        "worker": run.worker,
        "namespace": run.namespace,
        "queue": run.queue,
        "region": run.region,
        "priority": run.priority,
        "key": run.key,
        **execution_view(options),
        "args": raw(run.args),
        "result": raw(run.result),
        "error": raw(run.error),
        "progress": run.progress,
        "progress_note": run.progress_note,
        "losses": run.losses,
        "waits_for": run.waits_for,
        "job_id": run.job_id,
        "index": run.idx,
        "created_at": iso(run.created_at),
        "updated_at": iso(_updated_at(run)),
        "expires_at": iso(run.expires_at),
        "cancel_requested_at": iso(run.cancel_requested_at),
        "cancel_reason": run.cancel_reason,
        "retry_of": run.retry_of,
        "submitted_by": options.submitted_by or None,
    }


def _duration_of(run: Run) -> str | None:
    """How long the last attempt of a run that has ended took."""
    if run.started_at is None or run.finished_at is None:
        return None
    return format_duration(max(run.finished_at - run.started_at, 0))


def _updated_at(run: Run) -> Instant:
    """When something last happened to a run: it was accepted, started, asked to stop, or it or an attempt ended."""
    moments = (run.created_at, run.started_at, run.cancel_requested_at, run.attempt_ended_at, run.finished_at)
    return max(each for each in moments if each is not None)


def execution_view(options: RunOptions) -> View:
    """How runs are executed."""
    return {
        "timeout": None if options.timeout is None else format_duration(options.timeout),
        "soft_timeout": None if options.soft_timeout is None else format_duration(options.soft_timeout),
        "retries": options.retry.retries,
        "isolation": None if options.isolation is None else format_isolation(options.isolation),
        "under_pressure": options.under_pressure,
        "tags": options.tags,
    }


def attempt_view(attempt: Attempt) -> View:
    """One attempt of a run that has ended."""
    return {
        "attempt": attempt.attempt,
        "worker": attempt.worker,
        "outcome": attempt.outcome,
        "started_at": iso(attempt.started_at),
        "finished_at": iso(attempt.finished_at),
        "reason": attempt.reason,
        "error": raw(attempt.error),
    }


def log_view(line: LogLine) -> View:
    """One line that a run wrote."""
    return {"at": iso(line.at), "attempt": line.attempt, "stream": line.stream, "text": line.text}


def job_view(job: Job) -> View:
    """A job. `next_run` and `last_run` are its fire times under the names that users of other schedulers look for."""
    return {
        "job_id": job.id,
        "name": job.name,
        "task": job.task,
        "state": "paused" if job.paused_at is not None else "active",
        "schedule": describe(job.trigger),
        "trigger": trigger_view(job.trigger),
        "next_fire_at": iso(job.next_fire_at),
        "next_run": iso(job.next_fire_at),
        "last_fire_at": iso(job.last_fire_at),
        "last_run": iso(job.last_fire_at),
        "fired": job.fired,
        "paused_at": iso(job.paused_at),
        "paused_why": job.paused_why,
        "app": job.app,
        "origin": job.origin,
        "namespace": job.namespace,
        "args": raw(job.args),
        "queue": job.queue,
        "priority": job.priority,
        "key": job.key,
        "limit": job.limit,
        **execution_view(job.options),
        "policy": policy_view(job),
        "version": job.version,
        "created_at": iso(job.created_at),
        "updated_at": iso(job.updated_at),
    }


def progress_view(last: Run | None) -> View:
    """How a job stands, by its last run, in the words of other schedulers."""
    if last is None:
        return {"status": "scheduled", "retry_count": 0}
    status: str = _STATUSES.get(last.state, last.state)
    retries = 0 if last.state == SUCCEEDED else last.attempt
    return {"status": "retrying" if status == "pending" and retries else status, "retry_count": retries}


_STATUSES = {BLOCKED: "pending", SUCCEEDED: "completed"}


def policy_view(job: Job) -> View:
    """What happens at and around a due instant."""
    values: View = msgspec.structs.asdict(job.policy)
    for name in _DURATIONS:
        value = values[name]
        values[name] = format_duration(value) if isinstance(value, int) else None
    for name in _INSTANTS:
        value = values[name]
        values[name] = iso(value if isinstance(value, int) else None)
    return values


def trigger_view(trigger: Trigger) -> View:
    """A trigger, in the words of the options that make one."""
    match trigger:
        case CronTrigger(expression, tz, dialect):
            return {"kind": "cron", "cron": expression, "tz": tz, "dialect": dialect}
        case EveryTrigger(period, anchor):
            return {"kind": "every", "every": format_duration(period), "anchor": iso(anchor)}
        case AtTrigger(at):
            return {"kind": "at", "at": iso(at)}
        case AfterTrigger(jobs, when, on_failure):
            return {"kind": "after", "after": jobs, "when": when, "on_failure": on_failure}
        case ManualTrigger():
            return {"kind": "manual"}


def firing_view(firing: Firing) -> View:
    """One row of the ledger."""
    return {
        "fire_at": iso(firing.fire_at),
        "last_at": iso(firing.last_at),
        "count": firing.count,
        "kind": firing.kind,
        "outcome": firing.outcome,
        "reason": firing.reason,
        "run_id": firing.run_id,
        "region": firing.region,
        "index": firing.idx,
        "finished_at": iso(firing.finished_at),
    }


def worker_view(worker: Worker, state: str) -> View:
    """A worker, with the state that it is really in."""
    return {
        "worker": worker.id,
        "state": state,
        "host": worker.host,
        "pid": worker.pid,
        "app": worker.app,
        "namespace": worker.namespace,
        "queues": worker.queues,
        "regions": worker.regions,
        "tasks": worker.tasks,
        "running": worker.running,
        "concurrency": worker.concurrency,
        "started_at": iso(worker.started_at),
        "heartbeat_at": iso(worker.heartbeat_at),
        "drain_requested_at": iso(worker.drain_requested_at),
    }


def event_view(position: int | None, event: Event) -> View:
    """Something that happened. What a worker says of itself has no public position."""
    return {
        "position": position,
        "kind": event.kind,
        "at": iso(event.at),
        "namespace": event.namespace,
        "run_id": event.run_id,
        "job": event.job,
        "job_id": event.job_id,
        "task": event.task,
        "worker": event.worker,
        "fire_at": iso(event.fire_at),
        "attempt": event.attempt,
        "reason": event.reason,
        "duration": None if event.duration is None else format_duration(event.duration),
        "count": event.count,
    }


def calendar_view(calendar: Calendar) -> View:
    """A calendar."""
    return {"name": calendar.name, "timezone": calendar.tz, "rules": msgspec.to_builtins(calendar.rules)}


def change_view(number: int, change: Change) -> View:
    """One change."""
    return {
        "number": number,
        "at": iso(change.at),
        "subject": change.subject,
        "action": change.action,
        "target": change.target,
        "before": raw(change.before),
        "after": raw(change.after),
        "request_id": change.request_id,
        "namespace": change.namespace,
    }
