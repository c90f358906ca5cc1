"""Values that stores return, and the filters that they take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from mainspring.core.instants import DAY, HOUR, MINUTE, Duration, Instant
from mainspring.core.model import Job
from mainspring.core.runs.errors import ErrorKind
from mainspring.core.states import State


class ServerFacts(msgspec.Struct, frozen=True):
    """What the server behind an adapter says of itself."""

    version: str = ""
    """Product and version, such as `RabbitMQ 3.10.8`."""
    now: Instant | None = None
    """The server's clock, if its protocol reports it."""
    behind: str = ""
    """Which of its copies are not in sync, for people; empty if all are, or if it keeps none."""


class Renewal(msgspec.Struct, frozen=True):
    """The answer to a heartbeat: which claims are still held, which runs should be cancelled, and whether the worker
    should end."""

    held: frozenset[tuple[str, int]]
    cancels: Mapping[str, str]
    """Run id -> the caller that asked, and the reason."""
    drain: bool = False
    """Whether the worker is asked to finish what it holds and to end."""


class Fired(msgspec.Struct, frozen=True):
    """The store's answer to one plan."""

    job_id: str
    applied: bool
    """Whether the plan was written. If not, the job had changed or fired meanwhile."""
    job: Job | None
    """The job as stored now, for the next plan; None if it no longer exists or is paused."""
    runs: int = 0


class Reaped(msgspec.Struct, frozen=True):
    """What one pass of recovery found."""

    lost: int
    expired: int
    dead_workers: tuple[str, ...]
    idle: bool = False
    """Whether nothing runs, waits at a gate, or must begin by some instant. A store may leave it False."""
    moved: int = 0
    """How many runs moved to another region."""
    ended: tuple[State, ...] = ()
    """The final states of those lost runs that do not run again."""
    postponed: bool = False
    """Whether dependants of runs that have ended are left to judge."""


Delay = Literal["1m", "10m", "1h", "1d"]
DELAYS: Final[Mapping[Delay, Duration]] = {"1m": MINUTE, "10m": 10 * MINUTE, "1h": HOUR, "1d": DAY}
"""The delays by which runs are listed. Indexes of the stores have these steps, so that no list reads the others."""


class RunFilter(msgspec.Struct, frozen=True):
    """Which runs to list: newest first, after `before` (an id) if given. Each field narrows the list; whatever they
    are, an index answers, also where nothing matches."""

    namespace: str = "default"
    states: tuple[State, ...] = ()
    job: str | None = None
    task: str | None = None
    tag: str | None = None
    before: str | None = None
    limit: int = 50
    queue: str | None = None
    worker: str | None = None
    """The worker that holds the run; only running runs have one. A finished run's workers are in its attempts."""
    since: str | None = None
    """The smallest id: `core.ids.encode_time` of an instant."""
    region: str | None = None
    """The region in which the run waits, runs or ran; after a move, the new one."""
    key: str | None = None
    late: Delay | None = None
    """The last attempt began at least this long after it was due."""
    took: Delay | None = None
    """The run has ended, and its last attempt took at least this long."""
    submitted_by: str | None = None
    """The subject that submitted the run over HTTP."""


class Saved(msgspec.Struct, frozen=True):
    """What a sync did with the jobs that an app declares."""

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    undeclared: tuple[str, ...] = ()
    """Jobs that this code declared earlier and no longer does; they were not changed."""
    resumed: tuple[str, ...] = ()
    """Declared jobs that had been paused because they were not declared."""


class Reply(msgspec.Struct, frozen=True):
    """A stored response."""

    status: int
    body: str


class Reserved(msgspec.Struct, frozen=True):
    """What is stored of an idempotency key."""

    since: Instant
    """When the key was first seen."""
    reply: Reply | None = None
    """The response, if there is one."""
    busy: bool = False
    """Whether another caller computes the response now. If not, and there is no response, this caller must compute
    it."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the audit trail: the actor and the change. Before and after are JSON."""

    namespace: str
    subject: str
    action: str
    target: str
    before: str | None = None
    after: str | None = None
    request_id: str = ""
    at: Instant = 0
    """Set by the store."""


class Backlog(msgspec.Struct, frozen=True):
    """Due runs that no worker has claimed: of one namespace and priority in one queue and region."""

    namespace: str
    queue: str
    region: str
    priority: int
    count: int
    oldest_at: Instant


class Connections(msgspec.Struct, frozen=True):
    """The connection pool of a process: its size, and how many connections are in which state."""

    size: int = 0
    in_use: int = 0
    idle: int = 0
    waiters: int = 0
    """Callers that wait for a connection."""
    leaks: int = 0
    """How often a connection was found to be in use for too long."""


class Strain(msgspec.Struct, frozen=True):
    """Waits, failures and pool use of this process's calls to the store, since it was opened."""

    waits: int = 0
    waited_s: float = 0.0
    longest_s: float = 0.0
    skew: Duration = 0
    """How far the host's clock is ahead of the store's."""
    pool: Connections = Connections()
    standbys: int = 0
    """Standby servers, as reported when the backlog was last read."""
    lag: Duration = 0
    """The lag of the standby that is furthest behind."""
    troubles: Mapping[str, str] = {}
    """Threads of the store that should run and do not, by name, with the reason."""


class PausedQueue(msgspec.Struct, frozen=True):
    """A queue whose runs are not claimed."""

    queue: str
    paused_at: Instant
    reason: str


class GateRow(msgspec.Struct, frozen=True):
    """How full a gate is, and how many runs wait at it."""

    name: str
    used: int
    capacity: int
    waiting: int


class LineRow(msgspec.Struct, frozen=True):
    """A line of runs that execute one after the other: its length, and its first run."""

    name: str
    capacity: int
    length: int
    head: str


class SeenFailure(msgspec.Struct, frozen=True):
    """A failure that ended a run, with its error group."""

    run_id: str
    namespace: str
    at: Instant
    kind: ErrorKind


class ErrorGroup(msgspec.Struct, frozen=True):
    """A kind of failure, and how often it was seen."""

    id: str
    type: str
    message: str
    place: str
    first_at: Instant
    last_at: Instant
    count: int
    last_run: str
