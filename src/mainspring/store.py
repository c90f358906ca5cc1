"""The store port: the truth about jobs, firings and runs. Split by caller.

What every adapter guarantees, whatever the method:

- **Atomic.** A method is one transaction: all of it happened, or nothing did, and its events are in the outbox of the
  same transaction.
- **Audited.** A write that takes `audit` adds the rows that it computes from the answer to the audit trail, in the same
  transaction.
- **Guarded.** A write takes effect only on the state it expects (`core.states`); a late or repeated one changes
  nothing and says so.
- **Idempotent where a reply can be lost.** Ids come from the caller; repeating a call whose reply was lost
  (StoreUnavailable) is safe and gives the same answer: `submit`, `fire`, `report`, `hand_back`, `begin_term`,
  `trigger`.
- **No policy.** What two stores would both compute lives in `core`; the adapter applies it inside its transaction.

Errors are those of `mainspring.errors`: driver exceptions never escape. Instants come from the store's clock (`now`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from mainspring.broker import Notice
from mainspring.core.answers import Backlog, Change, Fired, Reaped, Renewal, Reply, Reserved, RunFilter, Saved, Strain
from mainspring.core.instants import Duration, Instant
from mainspring.core.load.rate_limits import Allowance, Pace
from mainspring.core.model import (
    Amendment,
    Attempt,
    Claim,
    Edge,
    Event,
    EventBatch,
    Firing,
    Hold,
    Job,
    LogLine,
    NewRun,
    Node,
    Progress,
    Report,
    Run,
    Term,
    TermRecord,
    Worker,
)
from mainspring.core.planning.plans import Plan, PlannedFiring
from mainspring.core.planning.zone_data import ZoneStep
from mainspring.core.runs.priority import Ordering
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.states import State
from mainspring.insight import Audit, JobOrder, OverviewStore, QueueStore, RelationStore, TallyStore
from mainspring.process.metrics import Metrics

__all__ = [
    "MOST_CHANGED",
    "MOST_COUNTED",
    "ApiStore",
    "Audit",
    "Backlog",
    "CalendarStore",
    "Change",
    "DispatchStore",
    "EventStore",
    "Fired",
    "JobOrder",
    "JobStore",
    "JoiningStore",
    "LeaseStore",
    "MaintenanceStore",
    "OverviewStore",
    "PlanStore",
    "PressureStore",
    "QueueStore",
    "Reaped",
    "RelationStore",
    "Renewal",
    "Reply",
    "Reserved",
    "RunFilter",
    "RunStore",
    "Saved",
    "StandingClaim",
    "Store",
    "Strain",
    "SubmissionListener",
    "TallyStore",
    "Verdict",
    "WorkStore",
]

MOST_CHANGED = 10_000
"""A planner that has missed more changes of jobs than this loads all due jobs again instead."""
MOST_ENDED_WORKERS = 200
"""Of the workers of a namespace that ended within the last day, the newest are kept up to this number."""
MOST_COUNTED = 100_000
"""Unfinished runs in one state are counted up to this number, so that the time of a count is bounded."""

Verdict = Literal["accepted", "repeated", "stale"]
"""The store's answer to a report: accepted now, accepted before, or refused because the run has a newer token."""


class JobStore(Protocol):
    """Definitions: for the SDK, the CLI and the API."""

    async def create_job(self, job: Job, *, audit: Audit[Job] | None = None) -> Job:
        """Store a new job. Conflict if the namespace has the name; InvalidInput for an unknown upstream or calendar,
        or a cycle."""

    async def sync_jobs(
        self, app: str, namespace: str, jobs: Sequence[Job], *, source: str = "", audit: Audit[Saved] | None = None
    ) -> Saved:
        """Make the stored jobs of an app what the code declares. A changed definition raises the version; the next fire
        time moves only if trigger, start, end or calendars changed. A job that was paused because it was not declared
        goes on. Jobs that the same code (`source`) declared before and no longer does are named, not touched; those
        that were added otherwise are not even named. Conflict if another app owns a name.

        What is refused is refused before anything is written. Up to `core.planning.declaring.PAGE` changes are one
        transaction, more are written page by page: none takes long, and what was cut off is completed when it is
        repeated. The audit trail gets its rows with each page, of all that was saved so far; a sync without changes
        leaves them too."""

    async def edit_job(self, job: Job, expected_version: int, *, audit: Audit[Job] | None = None) -> Job:
        """Replace a definition. Conflict if the version has moved on."""

    async def get_job(self, namespace: str, name: str) -> Job:
        """The job with this name or id; NotFound if there is none."""

    async def find_jobs(self, namespace: str, names: Collection[str]) -> list[Job]:
        """The jobs with these names, in any order; unknown names are left out. At most `core.planning.declaring.PAGE`
        names."""

    async def list_jobs(
        self, namespace: str, *, app: str | None = None, after: str | None = None, limit: int = 1000
    ) -> list[Job]:
        """Jobs in order of name, beginning after the name `after`."""

    async def pause_jobs(
        self,
        namespace: str,
        names: Collection[str],
        *,
        paused: bool,
        reason: str,
        audit: Audit[list[Job]] | None = None,
    ) -> list[Job]:
        """Pause or resume, all or nothing. Runs that wait for an instant to come are skipped by a pause. A resumed job
        goes on with its next instant after now; instants that passed while it was paused are recorded as skipped, with
        the reason."""

    async def remove_job(
        self, namespace: str, name: str, expected_version: int | None = None, *, audit: Audit[None] | None = None
    ) -> None:
        """Delete the definition. Unfinished runs go on; the ledger stays. Conflict if another job fires after it, or if
        its version is not the expected one."""

    async def trigger(
        self,
        namespace: str,
        name: str,
        request_id: str,
        runs: Callable[[Job, Instant], Sequence[NewRun]],
        *,
        audit: Audit[Firing] | None = None,
    ) -> Firing:
        """Fire a job now, by hand; overlap policy applies. The same request id gives the same firing."""

    async def backfill(
        self, job: Job, firings: Sequence[PlannedFiring], *, audit: Audit[list[str]] | None = None
    ) -> list[str]:
        """Fire past instants of a job that have no run: new to the ledger, or missed or skipped in it (then the new row
        takes that one's place). Returns the ids of the new runs. Conflict if the job has changed since it was planned
        from."""

    async def list_firings(
        self,
        job_id: str,
        *,
        since: Instant | None = None,
        before: Instant | None = None,
        limit: int = 50,
        region: str | None = None,
    ) -> list[Firing]:
        """The ledger of a job, newest first: rows from `since` on, before `before`, of one region or of all."""

    async def newest_firings(self, job_ids: Collection[str], each: int = 1) -> list[Firing]:
        """The first `each` rows of `list_firings` for each of these jobs, job by job: one query for a whole page of
        jobs."""

    async def list_edges(self, job_id: str) -> list[Edge]:
        """What an `after` job knows of its upstream jobs."""


class CalendarStore(Protocol):
    """Calendars."""

    async def save_calendar(self, namespace: str, calendar: Calendar, *, audit: Audit[None] | None = None) -> None:
        """Create or replace a calendar."""

    async def remove_calendar(self, namespace: str, name: str, *, audit: Audit[None] | None = None) -> None:
        """Delete a calendar; NotFound if there is none. Conflict if a job or another calendar refers to it."""

    async def list_calendars(self, namespace: str) -> dict[str, Calendar]:
        """All calendars of a namespace by name."""


class PlanStore(Protocol):
    """For the planner."""

    async def due_jobs(self, until: Instant, limit: int) -> list[Job]:
        """Unpaused jobs whose next fire time is at or before `until`, earliest first, at most `limit`. If more are due,
        each namespace gets an equal share, so that one with very many does not hide the jobs of others."""

    async def changed_jobs(self, since: int, limit: int = MOST_CHANGED) -> tuple[int, list[Job]]:
        """Jobs edited, paused or resumed after change number `since`, and the newest change number. At most `limit` + 1
        jobs: if there are that many, more may be missing."""

    async def adopt_zones(self, version: str) -> ZoneStep:
        """Record the version of the time zone data. If it has changed, recompute the fire times of cron jobs that are
        not yet due, some of them in each call: one short transaction. The version counts as adopted once a call leaves
        none. Nothing is done for older data while planners with newer data live: see `core.planning.zone_data`."""

    async def fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        """Apply plans: move each job's next fire time, record its firings, insert their runs, which may be due later. A
        plan whose job has changed meanwhile is not applied. TermPassed, and nothing written, if `term` is given and is
        no longer the newest."""


class RunStore(Protocol):
    """For submitters and readers."""

    async def submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        """Accept runs, all or nothing, durable on return. Returns one id per run: its own, or, for an idempotency key
        seen before, that of the earlier run (Conflict if the request differs). A run whose id exists already is left
        alone."""

    async def get_run(self, namespace: str, run_id: str) -> Run:
        """The run with this id; NotFound if there is none."""

    async def find_runs(self, namespace: str, prefix: str, limit: int = 2) -> list[str]:
        """Ids that begin with a given text, or whose tails (`core.ids.TAIL`) do; if there are none, recent
        ones that end with it."""

    async def list_runs(self, where: RunFilter) -> list[Run]:
        """The runs that match, newest first."""

    async def count_runs(self, namespace: str) -> dict[State, int]:
        """How many runs are in each state. Of an unfinished state, `MOST_COUNTED` stands for that many or more."""

    async def list_attempts(self, run_id: str) -> list[Attempt]:
        """The ended attempts of a run, in order."""

    async def list_logs(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int = 1000
    ) -> list[tuple[int, LogLine]]:
        """Lines with a number greater than `after`: the first of them, or the last before a number. Numbers grow; they
        need not follow each other."""

    async def count_logs(self, run_id: str, most: int) -> int:
        """How many lines a run wrote, counted up to `most`."""

    async def have_written(self, after: Mapping[str, int]) -> list[str]:
        """The runs that have lines with a number greater than the one given for each."""

    async def upstream_runs(self, run_id: str) -> list[str]:
        """The unfinished runs that a blocked run waits for: its dependencies, and the runs before it in its lines."""

    async def gate_holders(self, namespace: str, gate: str) -> tuple[int, int]:
        """Used and capacity of a gate."""

    async def request_cancel(
        self, namespace: str, run_id: str, reason: str, *, audit: Audit[State] | None = None
    ) -> State:
        """Cancel a blocked or pending run at once, or ask the worker of a running one to; returns the state afterwards.
        Conflict if the run has ended."""

    async def finished(self, run_ids: Collection[str]) -> list[Run]:
        """The runs among these that have ended."""


class JoiningStore(Protocol):
    """For callers that submit in a transaction of their own. Only stores on a server have it: see `Store.joining`."""

    async def submit_within(self, connection: Any, runs: Sequence[NewRun]) -> list[str]:
        """As `submit`, in the transaction that the caller has open on a connection to the same database: accepted when
        that commits, or not at all. InvalidInput if it is no such connection, or has no transaction open."""


class SubmissionListener(Protocol):
    """Is called with what a store accepts."""

    def accepted(self, runs: Sequence[NewRun]) -> None:
        """Called with runs that were submitted and can be claimed. It must not block."""

    async def close(self) -> None:
        """Called before the store is closed: finish what was begun."""


class StandingClaim(NamedTuple):
    """A claim that a worker would make at once if there were anything for it."""

    worker: Worker
    limit: int
    """How many more runs the worker has room for; with 0, nothing may be claimed for it."""
    ttl: Duration
    ordering: Ordering
    take: Callable[[Sequence[Claim], float], None]
    """Called with the claims and a monotonic instant before they were made, on any thread."""


class Outlook(NamedTuple):
    """What an idle worker needs to know."""

    due_at: Instant | None
    """When the earliest pending run that it may take is due."""
    goes_first: bool = True
    """Whether it is among the few that the store wakes when there is work. The others poll for what those leave."""
    alive: bool = False
    """Whether the store counted the call as a heartbeat."""
    drain: bool = False
    """Whether the worker is asked to drain."""


class DispatchStore(Protocol):
    """For the dispatcher, which hands due runs to a broker, and for workers that receive them there."""

    async def due_runs(self, limit: int) -> tuple[list[Notice], Instant | None]:
        """Pending runs that are due, of all namespaces: of each queue, region and priority the `limit` oldest; and when
        the next will be due."""

    async def claim_these(self, worker: Worker, runs: Sequence[tuple[str, int]], ttl: Duration) -> list[Claim]:
        """As `claim`, of these runs only, and only if they have these tokens. A run that is not returned could not be
        claimed; if it is still pending, it stays due."""


class WorkStore(DispatchStore, Protocol):
    """For workers."""

    async def register(self, worker: Worker, *, audit: Audit[None] | None = None) -> None:
        """Store a worker: that it has started, is draining, or has stopped."""

    async def list_workers(self, namespace: str, worker_id: str | None = None) -> list[Worker]:
        """The workers seen recently, or only the one with this id."""

    async def request_drain(
        self, namespace: str, worker_id: str, *, audit: Audit[Worker | None] | None = None
    ) -> Worker | None:
        """Ask a worker to finish what it holds, to take no more, and to end: its next heartbeat says so. Repeating it
        changes nothing. None if there is no such worker, or it has stopped or died."""

    async def claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        """Take due runs of the worker's namespace, queues, regions, tasks and priorities, best first. Each claim raises
        its token, and no other worker has it until `claimed_until`. A run whose gate is full becomes blocked instead. A
        run that may be what its workers die of (`core.runs.outcome.is_suspect`) is given alone.

        With `ahead`, also runs that will be due within that time, unless they need a gate, may expire or were lost
        before; the worker must not start them before they are due."""

    def leave_claim(self, standing: StandingClaim | None) -> None:
        """Leave a claim with the store, or take it back. The store may make it in the transaction that accepts a run,
        if the worker could start all that waits: once, where it was left in the same process, or for each of several
        submissions of any, where the store is a server. It need not: the worker polls all the same, and gives back what
        comes after the claim was withdrawn. None means that the worker polls now and will leave a claim again in a
        moment, so a server need not know; a limit of 0 means that it has no room."""

    async def next_due(self, worker: Worker) -> Instant | None:
        """When the earliest pending run that this worker may take is due."""

    async def look(self, worker: Worker, *, idle: bool = False, fresh: bool = True) -> Outlook:
        """All that a waiting worker needs, in one query. An `idle` worker holds no claim, and the call may count as its
        heartbeat. Unless `fresh`, the answer may be what the latest claim of this process saw, if that found less than
        it asked for."""

    async def renew(self, worker: Worker, claims: Collection[tuple[str, int]], ttl: Duration) -> Renewal:
        """Heartbeat and renewal of claims in one. The work of a claim that is not in the answer is lost and must stop
        at once. The answer also says whether the worker is asked to drain."""

    async def cancels(self, run_ids: Collection[str]) -> dict[str, str]:
        """The runs among these whose cancellation is requested, with the reason."""

    async def report(self, reports: Sequence[Report]) -> list[Verdict]:
        """Record the outcomes of attempts; free gates, lines and dependants; schedule retries on the store's clock. A
        report that is refused does not affect the others."""

    async def hand_back(self, claims: Sequence[tuple[str, int]]) -> int:
        """Give claims back unstarted: no attempt is counted, and they are due at once, or when they were."""

    async def amend(self, amendments: Sequence[Amendment]) -> int:
        """As `hand_back`, and change each run as its amendment says; returns how many claims were still valid."""

    async def announced(self, namespace: str, task: str) -> list[Worker]:
        """Workers that announced a task, live or not, most recent heartbeat first, each with the notice of that task
        alone. At most 200."""

    async def record(self, lines: Sequence[LogLine], progress: Sequence[Progress]) -> None:
        """Store output and progress of running attempts."""


class MaintenanceStore(Protocol):
    """For reaper and cleaner."""

    async def recover(self, dead_after: Duration, limit: int) -> Reaped:
        """Find expired claims, runs past their starting deadline, silent workers and runs that their region does not
        take, and apply core's decision to each."""

    async def clean(self, keep_runs: Duration, keep_firings: Duration, keep_events: Duration, limit: int) -> int:
        """Delete history past its retention or its job's limits, at most `limit` rows of a kind, and workers that ended
        more than a day or `MOST_ENDED_WORKERS` ago; returns how many."""


class PressureStore(Protocol):
    """For observers of the backlog."""

    async def backlog(self, limit: int) -> list[Backlog]:
        """How many runs wait, by namespace, queue, region and priority; each is counted up to `limit`."""

    async def shed(self, namespace: str, reason: str, limit: int) -> int:
        """Skip due runs of a namespace that were never tried and have the lowest priorities (`core.load.degradation`);
        returns how many."""

    async def hurry(self, namespace: str | None, reason: str, limit: int) -> int:
        """Let due runs of a namespace (None: of all), and `after` jobs of which an upstream has ended, that allow it
        (`under_pressure`) start without waiting for the rest of what they follow; returns how many. Keys, limits and
        overlap policies still apply."""

    def strain(self) -> Strain:
        """How much strain the database puts on this process: waits and failures of its calls."""


class LeaseStore(Protocol):
    """The lease port on the database, and terms."""

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        """The lease, if it is free or expired; its token is greater than every earlier one of that name."""

    async def renew_hold(self, hold: Hold) -> Hold | None:
        """The same hold with a later expiry; None if it has passed to another or was released."""

    async def release(self, hold: Hold) -> None:
        """Free the lease if this hold still has it."""

    async def holders(self, name: str) -> list[str]:
        """The holders of leases whose names begin with a prefix: for information, not for decisions."""

    async def begin_term(self, name: str, owner: str) -> Term:
        """A new term, greater than every earlier one. Repeated by the owner of the newest term, it returns that term.
        Earlier terms of the name are closed in the history."""

    async def end_term(self, term: Term, reason: str) -> None:
        """Record in the history why a term has ended, unless it is closed already. The number stays the newest, so its
        owner may resume it by `begin_term`."""

    async def terms(self, name: str | None, limit: int) -> list[TermRecord]:
        """The latest terms of a name, or of all names, newest first."""

    async def check_in(self, node: Node) -> None:
        """Record that a node is alive, and its description; the store sets the instants. Nodes that have not checked in
        for a day are deleted."""

    async def leave(self, name: str) -> None:
        """Delete a node that stops."""

    async def nodes(self) -> list[Node]:
        """All nodes that checked in within the last day, by name."""


class EventStore(Protocol):
    """For the relay and followers of events."""

    async def number_events(self, limit: int) -> int:
        """Give the events of the next transactions, at most `limit`, their public positions in commit order; returns
        the number of transactions."""

    async def events_since(self, position: int, limit: int) -> list[EventBatch]:
        """Numbered events from a position on."""

    async def position_at(self, instant: Instant) -> int:
        """The position of the first kept event that was relayed at an instant or later; that of the next event if there
        is none."""

    async def next_position(self) -> int:
        """The position that the next event will have."""

    async def heard(self, listener: str) -> int | None:
        """The position of the first event that a listener has not processed; None if it never recorded one."""

    async def note_heard(self, listener: str, position: int) -> None:
        """Record that a listener has processed all events before a position. It never moves back."""

    async def record_events(self, events: Sequence[Event]) -> None:
        """Append events that belong to no other write."""


class ApiStore(Protocol):
    """For the API: what its instances must agree on."""

    async def reserve_reply(
        self, scope: str, key: str, fingerprint: str, *, hold: Duration, keep: Duration
    ) -> Reserved:
        """The stored response to an idempotency key, or the reservation to produce one within `hold`. One of several
        concurrent callers gets the reservation; if it expires without a response, the next caller gets it, with the
        same `since`. Conflict if the key was used with another fingerprint. Deleted after `keep`."""

    async def keep_reply(
        self, scope: str, key: str, fingerprint: str, reply: Reply | None, *, keep: Duration = 0
    ) -> None:
        """Store the response to a reserved key, for `keep`; None releases the reservation without a response."""

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        """Spend `cost` of a rate limit, by `core.load.rate_limits`; a refusal costs nothing."""

    async def revoke(self, name: str, keep: Duration, *, audit: Audit[None] | None = None) -> None:
        """Revoke a token or a subject from now on; kept for `keep` at least."""

    async def revocations(self) -> dict[str, Instant]:
        """All revocations: what is revoked, and since when."""

    async def note_changes(self, changes: Sequence[Change]) -> None:
        """Add to the audit trail, durably, at the time of the store."""

    async def schema(self) -> tuple[int, int]:
        """The version of the database's schema, and the newest that this program knows."""

    async def list_changes(
        self,
        namespace: str,
        *,
        subject: str | None = None,
        target: str | None = None,
        action: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[tuple[int, Change]]:
        """The audit trail, newest first, each change with its number: those before the number `before`."""


class Store(
    JobStore,
    CalendarStore,
    PlanStore,
    RunStore,
    OverviewStore,
    WorkStore,
    MaintenanceStore,
    PressureStore,
    LeaseStore,
    EventStore,
    QueueStore,
    RelationStore,
    TallyStore,
    ApiStore,
    Protocol,
):
    """The whole port, as adapters implement it."""

    @property
    def metrics(self) -> Metrics:
        """The counters of this process's calls."""

    @property
    def joining(self) -> JoiningStore | None:
        """Submissions within a transaction of the caller; None where the store cannot join one."""

    def now(self) -> Instant:
        """The store's clock, as this process estimates it."""

    def surely_now(self) -> Instant:
        """An instant, close to `now`, that the store's clock has certainly reached. Work that must not begin early
        waits for it."""

    def on_change(self, listener: Callable[[], None], *, remote: bool = True) -> Callable[[], None]:
        """Call `listener`, from any thread, soon after something that planners or workers wait for may have changed, by
        this process or another. The returned function unsubscribes it. It is a hint: nothing may depend on it. With
        `remote=False`, hints of other processes are optional: the store may save their cost."""

    def on_accepted(self, listener: SubmissionListener) -> None:
        """Call `listener.accepted`, on the submitter's loop, with the runs of each submission that adds any, as soon as
        they can be claimed: before `submit` returns, and maybe before they are durable (a claim makes them so). From
        then on, a store for which hints to other processes are expensive gives none of submissions by itself: the
        listener calls `announce`. There is one listener; the store closes it before itself."""

    def announce(self) -> None:
        """There are new runs: call the `on_change` listeners soon, here and in other processes."""

    async def close(self) -> None:
        """Finish what was begun, and close all connections."""
