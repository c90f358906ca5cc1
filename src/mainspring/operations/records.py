"""The public records: what SDK, API, client and CLI give of jobs, runs, firings, attempts, workers and events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from mainspring.core.model import AttemptOutcome, FiringKind, FiringOutcome, OnKeyFailure, Origin, UnderPressure
from mainspring.core.runs.why import CauseKind
from mainspring.core.states import State

T = TypeVar("T")
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some of a list, and where it goes on."""

    items: list[T]
    next: str | None


class Job(msgspec.Struct, kw_only=True, frozen=True):
    """A job."""

    job_id: str
    name: str
    task: str
    state: Literal["active", "paused"]
    schedule: str
    trigger: dict[str, Any]
    next_fire_at: Moment | None
    next_run: Moment | None
    last_fire_at: Moment | None
    last_run: Moment | None
    fired: int
    paused_at: Moment | None
    paused_why: str
    app: str
    origin: Origin = ""
    namespace: str
    args: Any
    queue: str
    priority: int
    key: str | None
    limit: int | None
    timeout: str | None
    soft_timeout: str | None
    total_timeout: str | None
    retries: int
    retry: dict[str, Any]
    max_losses: int
    on_key_failure: OnKeyFailure
    isolation: str | None
    under_pressure: UnderPressure
    region_failover: str | None
    failover_regions: list[str]
    tags: list[str]
    policy: dict[str, Any]
    version: int
    created_at: Moment
    updated_at: Moment


JobStatus = Literal["scheduled", "pending", "running", "retrying", "completed", "failed", "cancelled", "skipped"]


class Cause(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What keeps a run from running or a job from firing, what to do about it, and what it refers to."""

    kind: CauseKind
    text: str
    remedy: str = ""
    since: Moment | None = None
    """Since when, or until when if it lies ahead."""
    run_id: str | None = None
    job: str | None = None
    queue: str | None = None
    gate: str | None = None
    used: int | None = None
    capacity: int | None = None
    workers: list[str] = []


class JobStory(Job, kw_only=True, frozen=True):
    """A job, how its last run stands (`scheduled` before the first) and often failed, and what keeps it from firing."""

    schedule_text: str = ""
    status: JobStatus
    retry_count: int
    why: list[str]
    causes: list[Cause] = []


class NewJob(Job, kw_only=True, frozen=True):
    """A job that was just made, and what its maker may not have meant."""

    status: JobStatus
    retry_count: int
    warnings: list[str] | msgspec.UnsetType = msgspec.UNSET


class Firing(msgspec.Struct, frozen=True):
    """A row of the ledger."""

    fire_at: Moment
    last_at: Moment | None
    count: int
    kind: FiringKind
    outcome: FiringOutcome
    reason: str
    run_id: str | None
    region: str
    index: int
    finished_at: Moment | None


class ListedJob(Job, kw_only=True, frozen=True):
    """A job of a list. As a row it has its schedule in words, and no arguments."""

    args: Any = msgspec.UNSET
    schedule_text: str | msgspec.UnsetType = msgspec.UNSET
    last: Firing | msgspec.UnsetType | None = msgspec.UNSET
    """The newest row of its ledger, where that was asked for; null if it has not fired yet."""
    recent: list[FiringOutcome] | msgspec.UnsetType = msgspec.UNSET
    """What its latest firings came to, the newest last, where that was asked for."""
    took_p50: float | msgspec.UnsetType | None = msgspec.UNSET
    """How many seconds half of its runs took at most, in the latest 24 hours in which any began or ended, where that
    was asked for; to the next half power of two."""
    late_p50: float | msgspec.UnsetType | None = msgspec.UNSET
    """How many seconds after their instant half of its runs had begun, counted likewise."""


class Run(msgspec.Struct, frozen=True):
    """A run."""

    run_id: str
    job: str | None
    task: str
    state: State
    reason: str
    fire_at: Moment | None
    due_at: Moment
    attempt: int
    started_at: Moment | None
    finished_at: Moment | None
    duration: str | None
    worker: str | None
    namespace: str
    queue: str
    region: str
    home_region: str
    """The region that it stands for; another than `region` if it has moved."""
    moved_because: str
    priority: int
    key: str | None
    timeout: str | None
    soft_timeout: str | None
    total_timeout: str | None
    retries: int
    isolation: str | None
    under_pressure: UnderPressure
    region_failover: str | None
    failover_regions: list[str]
    tags: list[str]
    args: Any
    result: Any
    error: Any
    progress: float | None
    progress_note: str
    losses: int
    waits_for: int
    job_id: str | None
    index: int
    created_at: Moment
    updated_at: Moment
    expires_at: Moment | None
    cancel_requested_at: Moment | None
    cancel_reason: str
    retry_of: str | None
    submitted_by: str | None


class ListedRun(Run, kw_only=True, frozen=True):
    """A run of a list. As a row it has no payloads."""

    args: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET


class Count(msgspec.Struct, frozen=True):
    """How many runs a filter fits. They are counted up to a bound: `at_least` says whether there may be more."""

    count: int
    at_least: bool


class NewRun(Run, kw_only=True, frozen=True):
    """A run that was just accepted, and what its submitter may not have meant."""

    warnings: list[str] | msgspec.UnsetType = msgspec.UNSET


class ScheduledRun(Run, kw_only=True, frozen=True):
    """The same where it is called a job: `job_id` is the run's."""

    status: Literal["scheduled"]
    warnings: list[str] | msgspec.UnsetType = msgspec.UNSET


class Spent(msgspec.Struct, frozen=True):
    """A wait or an attempt of a run, how long it took, and its share of the whole (0 to 1)."""

    kind: Literal["waiting", "attempt"]
    text: str
    state: str
    seconds: float
    share: float


class RunStory(Run, frozen=True):
    """A run, what keeps it from running, and how its time was spent since it was due."""

    why: list[str]
    causes: list[Cause] = []
    spent: list[Spent] = []


class Batch(msgspec.Struct, frozen=True):
    """Runs that were accepted."""

    run_ids: list[str]
    count: int
    warnings: list[str] | msgspec.UnsetType = msgspec.UNSET
    tag: str | msgspec.UnsetType = msgspec.UNSET
    """The tag of all of them, where they are a graph."""


class Synced(msgspec.Struct, frozen=True):
    """What a sync did with the jobs that an app declares, by name."""

    created: list[str]
    updated: list[str]
    unchanged: list[str]
    undeclared: list[str]
    """Declared by this code before, and no longer."""
    resumed: list[str] = []
    paused: list[str] = []
    removed: list[str] = []
    """Those of the undeclared that were treated so."""


class Backfilled(msgspec.Struct, frozen=True):
    """A past instant: what the ledger had of it before, and the runs that it has now (or would have) for it."""

    fire_at: Moment
    before: FiringOutcome | None
    run_ids: list[str]


class Backfill(msgspec.Struct, frozen=True):
    """What a past interval came to: how many of its instants fire, and where it goes on if it has more."""

    job_id: str
    dry_run: bool
    count: int
    items: list[Backfilled]
    next: Moment | None


class FireTime(msgspec.Struct, frozen=True):
    """When a job will fire."""

    fire_at: Moment
    local: str
    zone: str
    note: str


class FireTimes(msgspec.Struct, frozen=True):
    """The next fire times."""

    items: list[FireTime]


class Preview(msgspec.Struct, frozen=True):
    """What a draft of a job would do: its schedule in words, and when it would fire."""

    text: str
    items: list[FireTime]
    changes: list[FireTime]
    """Later ones, of the year after: the first after each change of the clocks."""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a run that has ended."""

    attempt: int
    worker: str
    outcome: AttemptOutcome
    started_at: Moment | None
    finished_at: Moment
    reason: str
    error: Any


class Attempts(msgspec.Struct, frozen=True):
    """All attempts of a run."""

    items: list[Attempt]


class Line(msgspec.Struct, frozen=True):
    """A line that a run wrote."""

    number: int
    at: Moment
    attempt: int
    stream: str
    text: str


class Lines(msgspec.Struct, frozen=True):
    """Lines, and the number from which they go on."""

    items: list[Line]
    next: int


class Cancelled(msgspec.Struct, frozen=True):
    """What became of a run that should be cancelled; `running` if its worker was asked to stop."""

    run_id: str
    state: State


class Rerun(msgspec.Struct, frozen=True):
    """Which runs are run again, each as which."""

    count: int
    runs: dict[str, str]
    refused: dict[str, str]


class Calendar(msgspec.Struct, frozen=True):
    """A calendar."""

    name: str
    timezone: str
    rules: list[dict[str, Any]]


class Calendars(msgspec.Struct, frozen=True):
    """All calendars of a namespace."""

    items: list[Calendar]


WorkerState = Literal["active", "draining", "stopped", "dead"]


class Worker(msgspec.Struct, frozen=True):
    """A worker."""

    worker: str
    state: WorkerState
    host: str
    pid: int
    app: str
    namespace: str
    queues: list[str]
    regions: list[str]
    tasks: list[str]
    running: int
    concurrency: int
    started_at: Moment
    heartbeat_at: Moment
    drain_requested_at: Moment | None = None
    """Since when it is asked to finish what it holds and to end."""
    version: str = ""
    """The version of Mainspring that it runs; empty for a worker over HTTP."""
    pools: dict[str, int] = {}
    """How many of its places are kept for a priority and those below it; empty if it has no pools."""


class Workers(msgspec.Struct, frozen=True):
    """All workers of a namespace."""

    items: list[Worker]


class Region(msgspec.Struct, frozen=True):
    """How a region stands: its live workers, and their places (`slots`). A worker of several regions counts in each."""

    region: str
    workers: int
    slots: int
    running: int
    depth: int
    """Due runs that no worker has taken, counted up to 100,000 of each queue and priority."""
    lateness: str
    """For how long the oldest of them has been due."""


class Regions(msgspec.Struct, frozen=True):
    """All regions of a namespace that workers serve or that runs wait in."""

    items: list[Region]


class Term(msgspec.Struct, frozen=True):
    """A period of leadership."""

    name: str
    """`scheduler`, one of its shards, or the namespace and name of an `app.leadership`."""
    number: int
    owner: str
    began_at: Moment
    ended_at: Moment | None
    """None while it lasts, as far as the store knows."""
    reason: str
    """Why it ended."""
    gap_s: float | None = None
    """Seconds without a holder before it; None before the first term, and after an owner that gave no last sign."""


class Node(msgspec.Struct, frozen=True):
    """A process that schedules, as it checked in most recently."""

    node: str
    alive: bool
    coordination: str
    check_in: str
    started_at: Moment
    checked_in_at: Moment
    skew_s: float = 0.0
    """Seconds by which its clock is ahead of the store's."""
    loops: dict[str, str] = {}
    """What is wrong with each of its loops; empty for one that is well."""


class Cluster(msgspec.Struct, frozen=True):
    """Which nodes plan, and which have led."""

    leaders: list[Term]
    """The terms that have not ended."""
    nodes: list[Node]
    terms: list[Term]
    """The history, newest first."""
    changes: int = 0
    """How often a name passed on, in all of the history that is kept."""
    longest_gap_s: float | None = None
    """The longest time without a holder in it."""


Degradation = Literal["normal", "shedding", "slow-history", "no-waiting", "refusing"]


class Registered(msgspec.Struct, frozen=True):
    """A new worker, and how often it should be heard of."""

    worker_id: str
    heartbeat_every: str
    claim_ttl: str


class Heartbeat(msgspec.Struct, frozen=True):
    """Which claims still stand, which of them should be cancelled and why, and whether the worker should end."""

    held: list[str]
    lost: list[str]
    cancel: dict[str, str]
    state: Literal["active", "draining"]


class Claim(msgspec.Struct, frozen=True):
    """A run for this worker until its claim ends, unless a heartbeat renews it. At `give_up_at` its total time ends."""

    run_id: str
    token: int
    task: str
    args: Any
    attempt: int
    job: str | None
    fire_at: Moment | None
    index: int
    timeout: str | None
    give_up_at: Moment | None
    claimed_until: Moment | None


class Assigned(msgspec.Struct, frozen=True):
    """Work; empty if none came in time."""

    runs: list[Claim]


class Reported(msgspec.Struct, frozen=True):
    """What became of a report, and of its run."""

    run_id: str
    verdict: Literal["accepted", "repeated"]
    state: State


class Ready(msgspec.Struct, frozen=True):
    """What has to be well."""

    status: Literal["ready", "not ready"]
    reasons: list[str]
    checks: dict[str, str]
    degradation: Degradation
    pressure: float


class Alive(msgspec.Struct, frozen=True):
    """The server answers."""

    status: Literal["alive"]


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""

    position: int | None
    kind: str
    at: Moment
    namespace: str
    run_id: str | None
    job: str | None
    job_id: str | None
    task: str | None
    worker: str | None
    fire_at: Moment | None
    attempt: int | None
    reason: str
    duration: str | None
    count: int | None


class Change(msgspec.Struct, frozen=True):
    """An entry of the audit trail."""

    number: int
    at: Moment
    subject: str
    action: str
    target: str
    before: Any
    after: Any
    request_id: str
    namespace: str


class RunStatus(msgspec.Struct, frozen=True):
    """How a run stands, and when that was known."""

    run_id: str
    namespace: str
    state: State
    reason: str
    attempt: int
    worker: str | None
    job: str | None
    task: str | None
    as_of: Moment


class WorkerStatus(msgspec.Struct, frozen=True):
    """How a worker stands."""

    worker: str
    namespace: str
    state: WorkerState
    as_of: Moment
