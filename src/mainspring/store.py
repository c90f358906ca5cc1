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
    "Standing",
    "Store",
    "Strain",
    "SubmissionListener",
    "TallyStore",
    "Verdict",
    "WorkStore",
]

MOST_CHANGED = 10_000
MOST_COUNTED = 100_000
"""Unfinished runs in one state are counted up to this number: a count takes no longer, however many wait."""

Verdict = Literal["accepted", "repeated", "stale"]
"""What became of a report: taken now, already taken before, or refused because its token has been overtaken."""


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

        What is refused is refused before anything is written. Up to `core.declaring.PAGE` changes are one transaction,
        more are written page by page: none takes long, and what was cut off is completed when it is repeated. The audit
        trail gets its rows with each page, of all that was saved so far; a sync without changes leaves them too."""

    async def edit_job(self, job: Job, expected_version: int, *, audit: Audit[Job] | None = None) -> Job:
        """Replace a definition. Conflict if the version has moved on."""

    async def get_job(self, namespace: str, name: str) -> Job:
        """By name or id; NotFound otherwise."""

    async def find_jobs(self, namespace: str, names: Collection[str]) -> list[Job]:
        """Those of the names that exist, in any order. For at most `core.declaring.PAGE` names."""

    async def list_jobs(
        self, namespace: str, *, app: str | None = None, after: str | None = None, limit: int = 1000
    ) -> list[Job]:
        """In order of name, those after the name `after`."""

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
        """Forget the definition. Unfinished runs go on; the ledger stays. Conflict if another job fires after it, or if
        it has another version than was expected."""

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
        """Fire past instants of a job that have no run: new to the ledger, or missed or skipped in it (then the new
        row takes that one's place). Ids of the new runs. Conflict unless the job has still the version planned from."""

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
        """The first `each` rows that `list_firings` gives of each of these jobs, job by job: one question for a whole
        page of jobs."""

    async def list_edges(self, job_id: str) -> list[Edge]:
        """What an `after` job knows of its upstream jobs."""


class CalendarStore(Protocol):
    """Calendars."""

    async def save_calendar(self, namespace: str, calendar: Calendar, *, audit: Audit[None] | None = None) -> None:
        """Create or replace."""

    async def remove_calendar(self, namespace: str, name: str, *, audit: Audit[None] | None = None) -> None:
        """Forget a calendar; NotFound if there is none. Conflict if a job or another calendar refers to it."""

    async def list_calendars(self, namespace: str) -> dict[str, Calendar]:
        """All calendars of a namespace by name."""


class PlanStore(Protocol):
    """For the planner."""

    async def due_jobs(self, until: Instant, limit: int) -> list[Job]:
        """Unpaused jobs whose next fire time is at or before `until`, earliest first, at most `limit`. Where more are
        due, each namespace has an equal share of them: one with very many does not hide what others have."""

    async def changed_jobs(self, since: int, limit: int = MOST_CHANGED) -> tuple[int, list[Job]]:
        """Jobs edited, paused or resumed after change number `since`, and the newest change number. One more than
        `limit` at most: then there may be more of them, which are not returned."""

    async def adopt_zones(self, version: str) -> int:
        """Note which zone data fire times are computed with; where it is other data than before, recompute those of
        cron jobs that are not yet due. How many jobs were recomputed."""

    async def fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        """Apply plans: move each job's next fire time, record its firings, insert their runs, which are due when they
        say, also if that is later. A plan whose job moved meanwhile is not applied. TermPassed, and nothing written, if
        `term` is given and is no longer the newest."""


class RunStore(Protocol):
    """For submitters and readers."""

    async def submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        """Accept runs, all or nothing, durable on return. The answer has one id per run: its own, or, for an
        idempotency key seen before, the id of then (Conflict if the request differs). A run whose id exists already
        is left alone."""

    async def get_run(self, namespace: str, run_id: str) -> Run:
        """NotFound otherwise."""

    async def find_runs(self, namespace: str, prefix: str, limit: int = 2) -> list[str]:
        """Ids that begin with a given text, or whose tails (`core.ids.TAIL`) do; if there are none, recent
        ones that end with it."""

    async def list_runs(self, where: RunFilter) -> list[Run]:
        """Newest first."""

    async def count_runs(self, namespace: str) -> dict[State, int]:
        """How many runs are in each state. Of an unfinished state, `MOST_COUNTED` stands for that many or more."""

    async def list_attempts(self, run_id: str) -> list[Attempt]:
        """In order; an attempt that is still running is not among them."""

    async def list_logs(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int = 1000
    ) -> list[tuple[int, LogLine]]:
        """Lines with a number greater than `after`: the first of them, or the last before a number. Numbers grow; they
        need not follow each other."""

    async def count_logs(self, run_id: str, most: int) -> int:
        """How many lines a run wrote, counted up to `most`."""

    async def have_written(self, after: Mapping[str, int]) -> list[str]:
        """Those of the runs that have lines with a number greater than the one given for each."""

    async def upstream_runs(self, run_id: str) -> list[str]:
        """The unfinished runs that a blocked run waits for: its dependencies, and the runs before it in its lines."""

    async def gate_holders(self, namespace: str, gate: str) -> tuple[int, int]:
        """Used and capacity of a gate."""

    async def request_cancel(
        self, namespace: str, run_id: str, reason: str, *, audit: Audit[State] | None = None
    ) -> State:
        """Cancel now (blocked, pending) or ask its worker to (running); the state it is in afterwards. Conflict if it
        has ended."""

    async def finished(self, run_ids: Collection[str]) -> list[Run]:
        """Those of the runs that have ended."""


class JoiningStore(Protocol):
    """For callers that submit in a transaction of their own. Only stores on a server have it: see `Store.joining`."""

    async def submit_within(self, connection: Any, runs: Sequence[NewRun]) -> list[str]:
        """As `submit`, in the transaction that the caller has open on a connection to the same database: accepted when
        that commits, or not at all. InvalidInput if it is no such connection, or has no transaction open."""


class SubmissionListener(Protocol):
    """Hears of what a store accepts."""

    def accepted(self, runs: Sequence[NewRun]) -> None:
        """These were submitted, and can be claimed. It must not wait."""

    async def close(self) -> None:
        """The store is about to be closed: finish what was begun."""


class Standing(NamedTuple):
    """A claim that a worker would make at once if there were anything for it."""

    worker: Worker
    limit: int
    """How many more the worker has room for; 0: none, so that nothing must be claimed for it."""
    ttl: Duration
    ordering: Ordering
    take: Callable[[Sequence[Claim], float], None]
    """Given the claims and a monotonic instant before they were made, on whatever thread heard of them first."""


class Outlook(NamedTuple):
    """What a worker with nothing to do has to know."""

    due_at: Instant | None
    """When the earliest pending run that it may take is due."""
    goes_first: bool = True
    """Whether it is among the few that the store wakes when there is work. The others look for what those leave."""
    alive: bool = False
    """Whether the store took the question for a heartbeat."""
    drain: bool = False
    """Whether the worker is asked to drain. A heartbeat says so, whichever way it was given."""


class DispatchStore(Protocol):
    """For the dispatcher, which hands due runs to a broker, and for workers that receive them there."""

    async def due_runs(self, limit: int) -> tuple[list[Notice], Instant | None]:
        """Pending runs that are due, of all namespaces: of each queue, region and priority the `limit` that are due
        longest; and when the next will be due."""

    async def claim_these(self, worker: Worker, runs: Sequence[tuple[str, int]], ttl: Duration) -> list[Claim]:
        """As `claim`, of these runs only, and only if they have these tokens. What is not in the answer was not to be
        had, or not now: what is due still is."""


class WorkStore(DispatchStore, Protocol):
    """For workers."""

    async def register(self, worker: Worker, *, audit: Audit[None] | None = None) -> None:
        """Announce a worker, or say that it is draining or has stopped."""

    async def list_workers(self, namespace: str, worker_id: str | None = None) -> list[Worker]:
        """Those seen lately; only the one with this id, if one is given."""

    async def request_drain(
        self, namespace: str, worker_id: str, *, audit: Audit[Worker | None] | None = None
    ) -> Worker | None:
        """Ask a worker to finish what it holds, to take no more, and to end: it learns of it with its next heartbeat.
        Asked again, it stays asked. None if there is no such worker, or it has stopped or died."""

    async def claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        """Take due runs of the worker's namespace, queues, regions, tasks and priorities, best first. Each claim raises
        its token, and no other worker has it until `claimed_until`. A run whose gate is full becomes blocked instead. A
        run that may be what its workers die of (`core.outcome.is_suspect`) is given alone.

        With `ahead`, also those that will be due within that time, unless they need a gate, may expire or were lost
        before; the worker must not start them earlier."""

    def stand(self, standing: Standing | None) -> None:
        """Leave a claim with the store, or take it back. The store may make it in the transaction that accepts a run,
        if the worker could start all that waits: once, where it was left in the same process, or for each of several
        submissions of any, where the store is a server. It need not: the worker looks for work all the same,
        and gives back what comes after it was taken back. None means that the worker looks for itself and will stand
        again in a moment, so a server need not know; a limit of 0 that it has no room."""

    async def next_due(self, worker: Worker) -> Instant | None:
        """When the earliest pending run that this worker may take is due."""

    async def look(self, worker: Worker, *, idle: bool = False, fresh: bool = True) -> Outlook:
        """`next_due`, for a worker that waits for work: all that it needs while there is none, in one question. An
        `idle` worker holds nothing, and the question may count as its heartbeat. If it is not to be `fresh`, the answer
        may be what a claim of this process saw that has just come back short."""

    async def renew(self, worker: Worker, claims: Collection[tuple[str, int]], ttl: Duration) -> Renewal:
        """Heartbeat and renewal in one: claims not in the answer are lost and must stop at once. Says
        whether the worker is asked to drain."""

    async def cancels(self, run_ids: Collection[str]) -> dict[str, str]:
        """Those of the running runs whose cancellation is requested."""

    async def report(self, reports: Sequence[Report]) -> list[Verdict]:
        """Record what attempts came to; free gates, lines and dependants; schedule retries on the store's clock. One
        bad row does not spoil the rest."""

    async def hand_back(self, claims: Sequence[tuple[str, int]]) -> int:
        """Give claims back unstarted: no attempt is counted, and they are due at once, or when they were."""

    async def amend(self, amendments: Sequence[Amendment]) -> int:
        """As `hand_back`, with what is to be different about each run from then on; how many still held."""

    async def announced(self, namespace: str, task: str) -> list[Worker]:
        """Workers that announced what they know of a task, live or not, heard of last first; each with that notice
        alone. At most 200."""

    async def record(self, lines: Sequence[LogLine], progress: Sequence[Progress]) -> None:
        """Output and progress of running attempts."""


class MaintenanceStore(Protocol):
    """For reaper and cleaner."""

    async def recover(self, dead_after: Duration, limit: int) -> Reaped:
        """Find expired claims, runs past their starting deadline, silent workers and runs that their region does not
        take, and apply core's decision to each."""

    async def clean(self, keep_runs: Duration, keep_firings: Duration, keep_events: Duration, limit: int) -> int:
        """Delete history past its retention or its job's limits, at most `limit` rows of a kind; how many went."""


class PressureStore(Protocol):
    """For observers of the backlog."""

    async def backlog(self, limit: int) -> list[Backlog]:
        """What waits, of all namespaces; at most `limit` of each is counted."""

    async def shed(self, namespace: str, reason: str, limit: int) -> int:
        """End due runs of a namespace that were never tried and matter least (`core.degradation`) as skipped; how
        many."""

    async def hurry(self, namespace: str | None, reason: str, limit: int) -> int:
        """Let due runs of a namespace (None: of all), and `after` jobs of which an upstream has ended, that allow it
        (`under_pressure`) go on without waiting for the rest of what they follow; how many. Keys, limits and overlap
        hold for them as before."""

    def strain(self) -> Strain:
        """How hard this process has it."""


class LeaseStore(Protocol):
    """The lease port on the database, and terms."""

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        """The lease, if it is free or expired; its token is greater than every earlier one of that name."""

    async def renew_hold(self, hold: Hold) -> Hold | None:
        """The same hold with a later expiry; None if it has passed to another or was released."""

    async def release(self, hold: Hold) -> None:
        """Free it, if it is still ours."""

    async def holders(self, name: str) -> list[str]:
        """The holders of leases whose names begin with a prefix: for information, not for decisions."""

    async def begin_term(self, name: str, owner: str) -> Term:
        """A new term, greater than every earlier one. Repeated by the owner of the newest term, it answers that. The
        history of the name closes every earlier term."""

    async def end_term(self, term: Term, reason: str) -> None:
        """Note in the history why a term has ended; nothing if it is closed already. The number stays the newest, so
        its owner may go on with it by `begin_term`."""

    async def terms(self, name: str | None, limit: int) -> list[TermRecord]:
        """The latest terms of a name, or of all names, newest first."""

    async def check_in(self, node: Node) -> None:
        """Note that a node is alive, as it describes itself; the store sets the instants. Nodes that have not checked
        in for a day are forgotten."""

    async def leave(self, name: str) -> None:
        """Forget a node that stops."""

    async def nodes(self) -> list[Node]:
        """All nodes that checked in within the last day, by name."""


class EventStore(Protocol):
    """For the relay and followers of events."""

    async def number_events(self, limit: int) -> int:
        """Give the events of the next transactions, at most `limit`, their public positions in commit order; how many
        transactions that were."""

    async def events_since(self, position: int, limit: int) -> list[EventBatch]:
        """Numbered events from a position on."""

    async def position_at(self, instant: Instant) -> int:
        """The position of the first kept event that was relayed at an instant or later; that of the next event if there
        is none."""

    async def next_position(self) -> int:
        """The position that the next event will have."""

    async def heard(self, listener: str) -> int | None:
        """The position that a listener noted: of the first event that it has not dealt with; None if it never did."""

    async def note_heard(self, listener: str, position: int) -> None:
        """Note that a listener has dealt with all events before a position. A note never moves back."""

    async def record_events(self, events: Sequence[Event]) -> None:
        """Append events that belong to no other write."""


class ApiStore(Protocol):
    """For the API: what its instances must agree on."""

    async def reserve_reply(
        self, scope: str, key: str, fingerprint: str, *, hold: Duration, keep: Duration
    ) -> Reserved:
        """Ask for the answer to a key, or take it on to give one within `hold`. Of several callers at once one takes it
        on; once its hold has passed without an answer, the next does, with the same `since`. Conflict if the key was
        used with another fingerprint. Forgotten after `keep`."""

    async def keep_reply(
        self, scope: str, key: str, fingerprint: str, reply: Reply | None, *, keep: Duration = 0
    ) -> None:
        """Give the answer to a key, and how long to keep it; None gives the key back unanswered."""

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        """Admit a spending within a pace, by `core.load.rate_limits`; a refusal costs nothing."""

    async def revoke(self, name: str, keep: Duration, *, audit: Audit[None] | None = None) -> None:
        """Note that what has this name is no longer good from now on; remembered for `keep` at least."""

    async def revocations(self) -> dict[str, Instant]:
        """What is no longer good, and since when."""

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
        """The audit trail, newest first, with numbers that grow; those before a number."""


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
    """All of it, as adapters implement it."""

    @property
    def metrics(self) -> Metrics:
        """Where this process counts what passes between it and the store."""

    @property
    def joining(self) -> JoiningStore | None:
        """Submissions within a transaction of the caller; None where the store cannot join one."""

    def now(self) -> Instant:
        """The store's clock, as far as this process knows."""

    def surely_now(self) -> Instant:
        """An instant that the store's clock has reached for sure, close to `now`: what must not begin early waits for
        this."""

    def on_change(self, listener: Callable[[], None], *, remote: bool = True) -> Callable[[], None]:
        """Call `listener`, from any thread, soon after something that planners or workers wait for may have changed,
        by this process or another; the answer stops it. A hint: nothing may depend on it. One that is not `remote` can
        do without hints of other processes: a store that has to pay for each process that hears them may spare it."""

    def on_accepted(self, listener: SubmissionListener) -> None:
        """Call `listener.accepted`, on the submitter's loop, with the runs of each submission that adds any, as soon as
        they can be claimed: before `submit` returns, and maybe before they are durable (a claim makes them so). From
        then on a store that pays for each process that hears of changes leaves the word of submissions to `announce`.
        There is one listener; the store closes it before itself."""

    def announce(self) -> None:
        """Call the listeners to changes, here and in other processes, soon: there are new runs."""

    async def close(self) -> None:
        """Finish what was begun, and close all connections."""
