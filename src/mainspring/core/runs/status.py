"""What a status query answers about a run or a worker, from events or from the store: the same either way.

Only states that end with an event are kept for long. A run that waits may become blocked or free without one, and a
worker that was taken for dead may be heard of again: these are kept for a moment.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import msgspec

from mainspring.core.instants import HOUR, MINUTE, SECOND, Duration, Instant
from mainspring.core.model import Event, Run, Worker
from mainspring.core.states import FINAL, RUNNING, SUCCEEDED, State

RUN_KEPT: Duration = HOUR
WORKER_KEPT: Duration = 5 * MINUTE
MOMENT: Duration = SECOND

WorkerState = Literal["active", "draining", "stopped", "dead"]

_WORKER_STATES: Final[dict[str, WorkerState]] = {
    "worker.started": "active",
    "worker.draining": "draining",
    "worker.stopped": "stopped",
}


class RunStatus(msgspec.Struct, frozen=True, tag="run"):
    """How a run stands."""

    run_id: str
    namespace: str
    state: State
    reason: str
    attempt: int
    """Attempts that have ended."""
    worker: str | None
    job: str | None
    task: str | None
    as_of: Instant
    """When that was known."""


class WorkerStatus(msgspec.Struct, frozen=True, tag="worker"):
    """How a worker stands."""

    worker: str
    namespace: str
    state: WorkerState
    as_of: Instant


Status = RunStatus | WorkerStatus


class Posting(NamedTuple):
    """What is known of a run or a worker once all events before a position have happened."""

    subject: str
    position: int
    kept: Duration
    status: Status | None
    """None: something has changed, and the store must be asked what."""


def subject_of_run(run_id: str) -> str:
    """What a run is called where statuses are kept."""
    return f"job_status:{run_id}"


def subject_of_worker(worker_id: str) -> str:
    """The key of a worker's status in the cache."""
    return f"worker_status:{worker_id}"


def posting_of(event: Event, position: int) -> Posting | None:
    """What an event says; None if it is about neither a run nor a worker. Its own position is `position`."""
    if event.run_id is not None:
        return Posting(subject_of_run(event.run_id), position + 1, RUN_KEPT, _run_after(event))
    if event.worker is not None and event.kind.startswith("worker."):
        state = _WORKER_STATES.get(event.kind)
        status = None if state is None else WorkerStatus(event.worker, event.namespace, state, event.at)
        return Posting(subject_of_worker(event.worker), position + 1, WORKER_KEPT, status)
    return None


def _run_after(event: Event) -> RunStatus | None:
    """The status that the commonest events describe completely."""
    state = event.kind.removeprefix("run.")
    if event.run_id is None or event.attempt is None or state not in (RUNNING, SUCCEEDED):
        return None
    ended = event.attempt - 1 if state == RUNNING else event.attempt
    return RunStatus(
        event.run_id, event.namespace, RUNNING if state == RUNNING else SUCCEEDED, event.reason, ended, event.worker,
        event.job, event.task, event.at,
    )  # fmt: skip


def posting_of_run(run: Run, position: int, now: Instant) -> Posting:
    """What the store says of a run; all events before the position had happened when it was asked."""
    status = RunStatus(
        run.id, run.namespace, run.state, run.reason, run.attempt, run.worker, run.job, run.task, now
    )  # fmt: skip
    kept = RUN_KEPT if run.state == RUNNING or run.state in FINAL else MOMENT
    return Posting(subject_of_run(run.id), position, kept, status)


def posting_of_worker(worker: Worker, state: WorkerState, position: int, now: Instant) -> Posting:
    """A worker's status as stored, with the state that its heartbeats imply."""
    status = WorkerStatus(worker.id, worker.namespace, state, now)
    return Posting(subject_of_worker(worker.id), position, MOMENT if state == "dead" else WORKER_KEPT, status)
