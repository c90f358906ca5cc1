"""The public records of pages: see `operations.records` for those of jobs and runs."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mainspring.core.model import FiringOutcome
from mainspring.operations.records import Event, ListedRun, Moment, Page, Term

RunAction = Literal["cancel", "retry"]
JobAction = Literal["pause", "resume", "trigger"]


class ActedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an action on many runs."""

    action: RunAction
    dry_run: bool
    matched: int
    """How many runs this call looked at; with `dry_run`, how many there are, counted up to 10,000."""
    done: int
    runs: dict[str, str]
    """Run to the state that it is in now, or to the run that repeats it. With `dry_run`, a sample with their states."""
    refused: dict[str, str]
    next: str | None
    """Give it as `cursor` to go on; null when all that match are done."""


class ActedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an action on many jobs."""

    action: JobAction
    dry_run: bool
    matched: int
    done: int
    jobs: list[str]
    """The names of those that it was done to. With `dry_run`, those that match."""
    refused: dict[str, str]
    next: str | None
    """Give it as `cursor` to go on; null when all that match are done."""


class LinePlace(msgspec.Struct, frozen=True):
    """A line that a run stands in, how many are before it, and the first of them."""

    name: str
    capacity: int
    before: int
    head: str


class RunRelations(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to a run; at most 200 of each."""

    upstream: list[ListedRun]
    """The unfinished runs that it waits for."""
    downstream: list[ListedRun]
    """The runs that wait for it."""
    siblings: list[ListedRun]
    """The other runs of the same firing."""
    retries: list[ListedRun]
    """What it repeats, and what repeats it, oldest first."""
    lines: list[LinePlace]
    gate: str | None
    """The gate that it waits at."""


class RelatedJob(msgspec.Struct, frozen=True):
    """A job that another one follows, or is followed by."""

    name: str
    how: Literal["after", "dependency"]
    latest_at: Moment | None = None
    """The instant of its newest firing that ended."""
    latest_outcome: FiringOutcome | None = None


class JobRelations(msgspec.Struct, frozen=True):
    """The jobs before and after a job; at most 200 of each."""

    upstream: list[RelatedJob]
    downstream: list[RelatedJob]


class EventPage(msgspec.Struct, frozen=True):
    """Stored events in order."""

    items: list[Event]
    next: int | None
    """Give it as `after` for those beyond; null when there are no more so far. A page may be empty and not the last."""


class QueueRegion(msgspec.Struct, frozen=True):
    """A queue in one region."""

    region: str
    due: int
    oldest_due: Moment | None
    workers: int
    slots: int


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: what waits in it, and which workers serve it. Counts end at 10,000."""

    queue: str
    due: int
    oldest_due: Moment | None
    running: int
    blocked: int
    workers: int
    slots: int
    busy: int
    priorities: dict[str, int]
    """Due runs by priority."""
    regions: list[QueueRegion]
    paused_at: Moment | None
    paused_why: str
    accepted_per_minute: float = 0.0
    """How many runs came in, over the last five to ten minutes: as they are counted, a moment late."""
    ended_per_minute: float = 0.0


class Queues(msgspec.Struct, frozen=True):
    """All queues that have runs, workers or a pause, by name."""

    items: list[Queue]


class GateUse(msgspec.Struct, frozen=True):
    """A gate: how many are in, and how many wait."""

    name: str
    used: int
    capacity: int
    waiting: int


class LineUse(msgspec.Struct, frozen=True):
    """A line: how many stand in it, and which run is first."""

    name: str
    capacity: int
    length: int
    head: str


class Gates(msgspec.Struct, frozen=True):
    """Gates by name, and the longest lines."""

    gates: list[GateUse]
    lines: list[LineUse]


class TaskSummary(msgspec.Struct, frozen=True):
    """A task that live workers know."""

    task: str
    workers: list[str]
    queues: list[str]


class Tasks(msgspec.Struct, frozen=True):
    """All tasks that live workers know, by name."""

    items: list[TaskSummary]


class TaskStory(msgspec.Struct, frozen=True, kw_only=True):
    """A task, as workers announced it."""

    task: str
    signature: str
    arguments: dict[str, Any]
    """JSON Schema of its arguments: names, and which are required. Workers announce no types."""
    queue: str
    priority: int
    limit: int | None
    workers: list[str]


class Facets(msgspec.Struct, frozen=True):
    """Values that a filter may have."""

    items: list[str]


class JobCounts(msgspec.Struct, frozen=True):
    """How many jobs a namespace has."""

    jobs: int
    active: int
    paused: int
    at_least: bool
    """Whether there are more: they are counted up to a bound."""


class TallyBucket(msgspec.Struct, frozen=True, kw_only=True):
    """What ended in a period. Lateness and duration are in seconds, to the next half power of two."""

    at: Moment
    name: str
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0
    missed: int = 0
    late_p50: float | None = None
    late_p99: float | None = None
    took_p50: float | None = None
    took_p95: float | None = None
    accepted: int | None = None
    """How many runs were accepted in the period; None unless tallies are of queues."""


class Tallies(msgspec.Struct, frozen=True):
    """What ended, by period; and up to which event it is counted."""

    items: list[TallyBucket]
    bucket: str
    counted_to: int | None
    counted_until: Moment | None
    """What was recorded from this instant on is not counted yet; None: everything is counted."""
    partial: bool
    """Whether there are more than were read: ask for a shorter span, or for larger buckets."""
    total: TallyBucket | None = None
    """All of it together; None where each job, task or queue is counted (`by`), or nothing ended."""


class ServiceLevel(msgspec.Struct, frozen=True, kw_only=True):
    """How punctually attempts of a priority started. The percentiles are in seconds, to the next half power of two."""

    priority: int
    within: str | None
    """How long after it is due an attempt starts at the latest; None: this priority has no service level."""
    starts: int
    late: int
    """How many started later than that."""
    met: float | None
    """The share of starts that were in time, from 0 to 1; None if the priority has no service level."""
    late_p50: float | None
    late_p99: float | None


class ServiceLevels(msgspec.Struct, frozen=True):
    """Service levels by priority, over a span; and up to which event they are counted."""

    items: list[ServiceLevel]
    since: Moment
    until: Moment
    counted_to: int | None
    counted_until: Moment | None
    """What was recorded from this instant on is not counted yet; None: everything is counted."""


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of failure."""

    error: str
    type: str
    message: str
    """The message with what varies replaced by `*`."""
    place: str
    count: int
    """How many runs failed so, of all that were counted."""
    first_at: Moment
    last_at: Moment
    last_run: str
    trend: list[int]
    """How many in each of the last 24 periods, the newest last. A period is an hour; in a list since more than a day
    ago it is longer, so that the periods reach back about as far, but not further than 30 days."""
    job_count: int
    """How many jobs the latest of these runs belong to: at most 500 failures are looked at."""


class ErrorGroups(Page[ErrorGroup], frozen=True):
    """Some of the kinds of failure, and up to when failures are counted."""

    counted_until: Moment | None
    """What was recorded from this instant on is not counted yet; None: everything is counted."""


class ErrorStory(ErrorGroup, frozen=True, kw_only=True):
    """A kind of failure, with what it affects."""

    jobs: list[str]
    tasks: list[str]
    """Those of its newest 200 runs."""
    sample: Any
    """The error of its newest run that is kept, whole."""


class LoadBucket(msgspec.Struct, frozen=True):
    """What starts in a period."""

    at: Moment
    starts: int
    busy: float
    """Slots that are expected to be busy on average."""


class QuietPeriod(msgspec.Struct, frozen=True):
    """A stretch of time in which little starts."""

    at: Moment
    until: Moment
    starts: int


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load ahead: what is planned to start, by period."""

    items: list[LoadBucket]
    bucket: str
    capacity: int
    """Slots of the live workers."""
    jobs: int
    peak: LoadBucket | None
    quiet: list[QuietPeriod] = []
    """The longest stretches in which little starts, at most three."""
    partial: bool
    """Whether it was cut short: by time, or by the number of instants."""


class LoadJob(msgspec.Struct, frozen=True):
    """A job that starts in a period."""

    name: str
    starts: int
    first: Moment
    movable: bool
    """Whether it may start a little later: a fixed minute or an interval, and not tagged `pinned`."""


class LoadAt(msgspec.Struct, frozen=True):
    """The jobs that start in a period, most starts first."""

    items: list[LoadJob]
    starts: int


class Terms(msgspec.Struct, frozen=True):
    """Terms, newest first."""

    items: list[Term]


class Span(msgspec.Struct, frozen=True):
    """When a run was executed, and by which worker."""

    run_id: str
    name: str
    """Its job, or its task."""
    worker: str | None
    began_at: Moment
    ended_at: Moment | None
    state: str
    attempt: int | None
    queue: str | None = None
    """The queue of its job, where that was asked for; null of a run without a job."""
    tags: list[str] = []
    """The tags of its job, where they were asked for."""


class Spans(msgspec.Struct, frozen=True):
    """Attempts on a time axis, oldest first."""

    items: list[Span]
    partial: bool
    """Whether the span has more events than are read. Then the events are a sample, taken evenly over the span, and
    the runs that failed are added, newest first."""
    events: int = 0
    """How many events the span has, those of other namespaces included."""
    left_out: int = 0
    """How many of them were not read: 0 unless `partial`."""


class LedgerRow(msgspec.Struct, frozen=True):
    """What the firings of a job came to in each period that has any."""

    job: str
    cells: dict[str, dict[str, int]]
    """Beginning of the period (RFC 3339) to counts by outcome."""


class Ledger(msgspec.Struct, frozen=True):
    """Jobs by periods."""

    items: list[LedgerRow]
    bucket: str
    next: str | None


class FiringCell(msgspec.Struct, frozen=True, kw_only=True):
    """A due instant of a job: what became of it, or that it is planned."""

    fire_at: Moment
    last_at: Moment | None
    count: int
    outcome: FiringOutcome | Literal["planned", "excluded"]
    reason: str
    kind: str
    run_id: str | None
    region: str
    index: int
    late_s: float | None
    """From the instant to the start of its last attempt."""
    took_s: float | None
    attempts: int | None
    note: str
    """What the clocks of its zone do at it."""


class FiringBucket(msgspec.Struct, frozen=True):
    """A period of a job's ledger."""

    at: Moment
    counts: dict[str, int]


class FiringWindow(msgspec.Struct, frozen=True, kw_only=True):
    """A span of a job's ledger: rows newest first, or buckets where they are too many or were asked for."""

    items: list[FiringCell]
    buckets: list[FiringBucket]
    bucket: str | None
    next: str | None
    """Give it as `cursor` for the rows before."""
    partial: bool
