"""What is stored: jobs, firings, runs, attempts, workers, events. Values only; decisions live beside them.

Instants and durations are integers in microseconds (`core.instants`). JSON that Mainspring only carries (arguments,
results) stays text from the edge to the database and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from mainspring.core.instants import DAY, SECOND, Duration, Instant
from mainspring.core.load.rate_limits import Pace
from mainspring.core.runs.priority import PRIORITIES
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import OnFailure, Trigger, When
from mainspring.core.states import State
from mainspring.core.tasks.isolation import Isolation

DEFAULT = "default"
PROVIDED_TASKS = ("command", "http", "container")
"""Names of tasks that Mainspring itself provides: what they do is in their arguments."""

Misfire = Literal["skip", "once", "all"]
Overlap = Literal["allow", "forbid", "queue", "replace"]
OnExcluded = Literal["skip", "next_day"]
OnKeyFailure = Literal["continue", "stop"]
UnderPressure = Literal["wait", "run"]
FiringKind = Literal["scheduled", "manual", "after", "backfill"]
FiringOutcome = Literal["fired", "missed", "succeeded", "failed", "cancelled", "skipped"]
Origin = Literal["", "code", "call", "api", "cli"]
"""Where a job comes from: declared in code, or added by a call of the SDK, over HTTP, by a command. Empty: it is older
than this distinction."""
AttemptOutcome = Literal["succeeded", "failed", "timed_out", "cancelled", "lost", "skipped"]


class RunOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run is executed. Stored with the run, so that a deploy does not change work that was already accepted."""

    timeout: Duration | None = None
    soft_timeout: Duration | None = None
    """After this time the attempt is warned that it takes long; after `timeout` it is killed."""
    total_timeout: Duration | None = None
    """The time for all attempts of the run and the waits between them, from its due instant on."""
    retry: Retry = Retry()
    max_losses: int = 3
    """How often its worker may be lost before the run is failed; separate from retries, which count the task's own
    failures."""
    on_key_failure: OnKeyFailure = "continue"
    tags: tuple[str, ...] = ()
    per: str = ""
    """The argument for each of whose values the limit and the rate of its task are counted: see `core.tasks.limits`."""
    isolation: Isolation | None = None
    alert: str | None = None
    """The alert to send if the run fails for good: see `core.runs.alerts`."""
    under_pressure: UnderPressure = "wait"
    """Whether, under heavy load, the run starts without waiting for what it follows: see `core.load.degradation`."""
    said: tuple[str, ...] | None = None
    """The names of the given options, for a run whose submitter knew only the name of its task. A worker fills in the
    others from the task's declaration (`core.runs.fitting`). None if all options are decided."""
    context: dict[str, str] = {}
    """What the submitter's hooks carry to the attempts of the run, such as the id of a trace."""
    give_up_at: Instant | None = None
    """When the total timeout of the run ends: see `core.runs.outcome.with_end`. None in the options of a job."""
    unfit_since: Instant | None = None
    """When a worker first found that its arguments do not fit the code that it has."""
    region_failover: Duration | None = None
    """A due run that no worker of its region has taken for this long moves to another: see `core.runs.regions`."""
    failover_regions: tuple[str, ...] = ()
    """The regions to move to, best first; empty for any region with a worker that can take the run."""
    home_region: str = ""
    """The region of the ledger's row, for a run that has moved to another."""
    moved_at: Instant | None = None
    moved_because: str = ""


class KeptOptions(RunOptions, frozen=True, omit_defaults=True):
    """What is stored with a run: how it is executed, its submitter (a token's subject), if known, and the runs that it
    waited for: by their ids, or, if it is a job's, by the firings of the jobs that its own follows."""

    submitted_by: str = ""
    after: tuple[str, ...] = ()
    after_firings: tuple[tuple[str, Instant], ...] = ()
    """Ids of jobs, and the instants of their firings."""


class Gate(msgspec.Struct, frozen=True):
    """A named capacity that a run needs while it runs: how many may be in at once, cluster-wide."""

    name: str
    capacity: int


class JobPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happens at and around a due instant."""

    misfire: Misfire = "once"
    grace: Duration = 10 * SECOND
    """A firing that is later than this is a misfire."""
    catch_up_window: Duration = DAY
    catch_up_limit: int = 100
    start_deadline: Duration | None = None
    """Later than this after its instant a run no longer starts."""
    overlap: Overlap = "allow"
    jitter: Duration = 0
    start_at: Instant | None = None
    end_at: Instant | None = None
    max_firings: int | None = None
    calendars: tuple[str, ...] = ()
    on_excluded: OnExcluded = "skip"
    keep_succeeded: int | None = None
    keep_failed: int | None = None
    regions: tuple[str, ...] = (DEFAULT,)
    completions: int = 1
    parallelism: int | None = None
    dependencies: tuple[str, ...] = ()
    """Jobs, by name, whose newest firing must have succeeded before a run of this one starts."""
    on_dependency_failure: OnFailure = "skip"


class Job(msgspec.Struct, frozen=True):
    """A stored definition: a task, its arguments, a trigger, and policies."""

    id: str
    name: str
    task: str
    trigger: Trigger
    namespace: str = DEFAULT
    app: str = DEFAULT
    args: str = "{}"
    queue: str = DEFAULT
    priority: int = 5
    key: str | None = None
    limit: int | None = None
    policy: JobPolicy = JobPolicy()
    options: RunOptions = RunOptions()
    next_fire_at: Instant | None = None
    version: int = 1
    paused_at: Instant | None = None
    paused_why: str = ""
    fired: int = 0
    last_fire_at: Instant | None = None
    created_at: Instant = 0
    updated_at: Instant = 0
    origin: Origin = ""
    source: str = ""
    """Identifies the program that declared the job: see `core.planning.declaring.source_of`."""


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """A run about to be accepted."""

    id: str
    task: str
    due_at: Instant
    created_at: Instant
    namespace: str = DEFAULT
    queue: str = DEFAULT
    region: str = DEFAULT
    args: str = "{}"
    priority: int = 5
    options: str = "{}"
    expires_at: Instant | None = None
    job_id: str | None = None
    job: str | None = None
    fire_at: Instant | None = None
    idx: int = 0
    key: str | None = None
    gates: tuple[Gate, ...] = ()
    """Held while it runs."""
    lines: tuple[Gate, ...] = ()
    """Held from acceptance to the end, granted in commit order: keys and `overlap="queue"`."""
    after: tuple[str, ...] = ()
    when: When = "all_succeeded"
    on_failure: OnFailure = "skip"
    idempotency_key: str | None = None
    unique: bool = False
    """The key counts only while its run waits to start: a submission meanwhile joins that run."""
    retry_of: str | None = None
    noted_for: str = ""
    """The actor that the audit trail names for this run; empty: the run has no entry, or shares one with its batch."""
    request_id: str = ""
    """The request that it came with, for the audit trail."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of work as the store knows it, running or finished."""

    id: str
    namespace: str
    queue: str
    region: str
    task: str
    args: str
    state: State
    reason: str
    priority: int
    due_at: Instant
    created_at: Instant
    options: str
    expires_at: Instant | None = None
    job_id: str | None = None
    job: str | None = None
    fire_at: Instant | None = None
    idx: int = 0
    key: str | None = None
    token: int = 0
    attempt: int = 0
    """Attempts so far that have ended, lost ones included."""
    losses: int = 0
    worker: str | None = None
    claimed_until: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    cancel_requested_at: Instant | None = None
    cancel_reason: str = ""
    waits_for: int = 0
    blocked_on: str | None = None
    progress: float | None = None
    progress_note: str = ""
    result: str | None = None
    error: str | None = None
    retry_of: str | None = None
    attempt_ended_at: Instant | None = None
    """When its last attempt ended: also of one that waits to be tried again."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """What a worker gets: enough to execute one attempt without asking the store again."""

    run_id: str
    token: int
    task: str
    args: str
    options: str
    attempt: int
    losses: int
    priority: int
    due_at: Instant
    namespace: str
    job: str | None
    fire_at: Instant | None
    idx: int
    claimed_until: Instant


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an attempt failed, as text: exceptions of other programs are never rebuilt from data."""

    type: str
    message: str
    traceback: str = ""


class Report(msgspec.Struct, frozen=True, gc=False):
    """A worker's report on one claim: the outcome of its attempt, and what core decided should follow."""

    run_id: str
    token: int
    outcome: AttemptOutcome
    state: State
    """`succeeded`, `failed`, `cancelled`, `skipped`; or `pending` for a retry after `delay`."""
    reason: str = ""
    delay: Duration = 0
    result: str | None = None
    error: str | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None


class Attempt(msgspec.Struct, frozen=True):
    """One real start of a run by one worker."""

    run_id: str
    attempt: int
    token: int
    worker: str
    outcome: AttemptOutcome
    started_at: Instant | None
    finished_at: Instant
    reason: str = ""
    error: str | None = None


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line that a run wrote."""

    run_id: str
    attempt: int
    at: Instant
    stream: str
    text: str


class Progress(msgspec.Struct, frozen=True, gc=False):
    """How far a running attempt says it has come."""

    run_id: str
    token: int
    fraction: float
    note: str


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the ledger. A row with `count` > 1 (or 0: uncounted) covers the missed instants from `fire_at` to
    `last_at`."""

    job_id: str
    fire_at: Instant
    region: str = DEFAULT
    idx: int = 0
    kind: FiringKind = "scheduled"
    outcome: FiringOutcome = "fired"
    reason: str = ""
    run_id: str | None = None
    request_id: str | None = None
    last_at: Instant | None = None
    count: int = 1
    created_at: Instant = 0
    finished_at: Instant | None = None


class Edge(msgspec.Struct, frozen=True):
    """What an `after` job knows of one upstream job."""

    job_id: str
    upstream_id: str
    upstream: str
    consumed_at: Instant = 0
    """The fire time of the newest upstream firing that this job has used."""
    latest_at: Instant = 0
    latest_outcome: FiringOutcome = "fired"


class TaskNotice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker announces of a task: how it is called, and how its runs are executed unless they say otherwise."""

    name: str
    module: str = ""
    """Where the function is defined: two of one name from two modules are two tasks."""
    code: str = ""
    """A digest of the function: modules of two programs may have one name, too."""
    signature: str = ""
    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    rest: bool = False
    """Whether the task takes arguments of any name."""
    priority: int = 5
    queue: str = DEFAULT
    limit: int | None = None
    rate: Pace | None = None
    options: RunOptions = RunOptions()


class Amendment(msgspec.Struct, frozen=True, gc=False):
    """A claim to be given back unstarted, and what is to be different about the run from then on."""

    run_id: str
    token: int
    reason: str
    options: str
    delay: Duration = 0
    """How much later the run is due."""
    priority: int | None = None
    gate: Gate | None = None
    """A limit of its task that it has to obey from now on."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A process that executes runs, as it announced itself."""

    id: str
    namespace: str = DEFAULT
    app: str = DEFAULT
    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] = (DEFAULT,)
    regions: tuple[str, ...] = (DEFAULT,)
    tasks: tuple[str, ...] = ()
    concurrency: int = 1
    running: int = 0
    state: Literal["active", "draining", "stopped", "dead"] = "active"
    started_at: Instant = 0
    heartbeat_at: Instant = 0
    drain_requested_at: Instant | None = None
    """Since when the worker is asked to finish what it holds and to end."""
    version: str = ""
    """The version of the program that it runs; empty for a worker over HTTP."""
    priorities: tuple[int, ...] = PRIORITIES
    """The priorities that the worker takes now. Not announced, since it changes with the use of the worker's pools."""
    notices: tuple[TaskNotice, ...] = ()
    """What it knows of its tasks. Only `WorkStore.announced` gives them back."""
    pools: tuple[tuple[int, int], ...] = ()
    """How its places are divided: a priority, and how many places are kept for it. See `core.runs.pools`."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Something that happened, recorded in the transaction in which it happened."""

    kind: str
    at: Instant
    namespace: str = DEFAULT
    run_id: str | None = None
    job_id: str | None = None
    job: str | None = None
    task: str | None = None
    worker: str | None = None
    fire_at: Instant | None = None
    attempt: int | None = None
    reason: str = ""
    duration: Duration | None = None
    count: int | None = None
    priority: int | None = None
    late: Duration | None = None
    """How long after it was due an attempt started."""
    queue: str | None = None
    """The queue of the run, where it is another than `default`: the usual run pays nothing for it."""


def named_queue(queue: str) -> str | None:
    """What an event says of the queue of its run."""
    return None if queue == DEFAULT else queue


class EventBatch(msgspec.Struct, frozen=True):
    """The events of one transaction; the first has public position `position`, the next `position + 1`, and so on."""

    position: int
    events: list[Event]

    def since(self, position: int) -> EventBatch:
        """The part of it that is not before a position."""
        skipped = max(position - self.position, 0)
        return EventBatch(self.position + skipped, self.events[skipped:]) if skipped else self


class Hold(msgspec.Struct, frozen=True):
    """What a lease gives: the right to act as `name` until it expires, unless renewed."""

    name: str
    owner: str
    token: int
    ttl: Duration
    expires_at: Instant


class Term(msgspec.Struct, frozen=True):
    """A period of leadership, numbered by the store."""

    name: str
    number: int
    owner: str


class Node(msgspec.Struct, frozen=True):
    """A process that schedules, as it checks in."""

    name: str
    coordination: str
    every: Duration
    """How often it checks in."""
    started_at: Instant = 0
    checked_in_at: Instant = 0
    skew: Duration = 0
    """How far its clock is ahead of the store's."""
    loops: Mapping[str, str] = {}
    """What is wrong with each of its loops; empty for one that is well."""

    def is_alive(self, now: Instant) -> bool:
        """Whether the node has missed at most two check-ins."""
        return now < self.checked_in_at + 3 * self.every


class TermRecord(msgspec.Struct, frozen=True):
    """A term in the history of its name."""

    name: str
    number: int
    owner: str
    began_at: Instant
    ended_at: Instant | None
    """None while it lasts, as far as the store knows."""
    reason: str
    """Why it ended; empty while it lasts."""
