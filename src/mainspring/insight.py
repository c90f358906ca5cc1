"""The part of the store port that serves pages: queues, gates, relations of runs and jobs, tallies and errors.

Every answer is bounded and every query uses an index, so that its cost does not grow with the number of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

from mainspring.core.answers import Change, ErrorGroup, GateRow, LineRow, PausedQueue, RunFilter, SeenFailure
from mainspring.core.instants import Instant
from mainspring.core.model import Firing, Job, Run
from mainspring.core.runs.tallies import Kind, Tally, TallyKey

T = TypeVar("T")
Audit: TypeAlias = Callable[[T], Sequence[Change]]
"""Computes the rows of the audit trail from the answer of a write. The store calls it inside the transaction of the
write, before the commit: there is no change without its row, and no row without its change. If it raises, nothing is
written. The store may call it again when it repeats a transaction."""


JobOrder = Literal["next", "last", "paused"]
"""The orders of jobs besides that of names."""


class OverviewStore(Protocol):
    """For pages that show a whole namespace."""

    async def count_matching(self, where: RunFilter) -> int:
        """How many runs `list_runs` would give: counted up to the limit of the filter."""

    async def count_each(self, filters: Sequence[RunFilter]) -> list[int]:
        """The same for several filters, in their order and as of one instant. It costs less than one after another."""

    async def missed_firings(self, namespace: str, since: Instant, limit: int) -> list[tuple[str, Firing]]:
        """The instants of a namespace's jobs that were recorded as missed since an instant, newest first, each with the
        name of its job; among the latest `limit` rows of the ledger that have no run."""

    async def firing_of_run(self, namespace: str, run_id: str, limit: int) -> tuple[str, Firing] | None:
        """The row of the ledger that has a run, with the name of its job, also if the run is no longer kept. It is
        searched in the ledgers of the first `limit` jobs of the namespace."""

    async def count_jobs(self, namespace: str, limit: int) -> tuple[int, int]:
        """How many jobs a namespace has, and how many of its jobs are paused; each counted up to a limit."""

    async def ordered_jobs(
        self, namespace: str, order: JobOrder, *, beyond: tuple[Instant, str] | None = None, limit: int = 50
    ) -> list[Job]:
        """Jobs in another order than that of names, beyond a place (the instant that orders, and the id): `next` are
        unpaused jobs with a next fire time, soonest first; `last` those that have fired, the latest first; `paused`
        those that are paused, the latest first."""


class QueueStore(Protocol):
    """Queues, gates and lines."""

    async def pause_queue(
        self,
        namespace: str,
        queue: str,
        *,
        paused: bool,
        reason: str,
        audit: Audit[PausedQueue | None] | None = None,
    ) -> PausedQueue | None:
        """Pause a queue, or resume it. From the commit on no claim of any kind takes a run of a paused queue; what runs
        goes on. A second pause keeps the instant of the first and takes the new reason. None if the queue is not paused
        afterwards."""

    async def paused_queues(self, namespace: str) -> list[PausedQueue]:
        """The queues of a namespace that are paused, by name."""

    async def list_gates(self, namespace: str, limit: int) -> list[GateRow]:
        """Gates in order of name, each with how many runs wait at it, counted up to `limit`."""

    async def list_lines(self, namespace: str, limit: int) -> list[LineRow]:
        """Lines, the longest first, of the first `limit` places in lines."""


class RelationStore(Protocol):
    """What belongs to a run or a job."""

    async def dependants(self, run_id: str, limit: int) -> list[str]:
        """The unfinished runs that wait for a run."""

    async def lines_of(self, run_id: str) -> list[LineRow]:
        """The lines that a run stands in, each with how many are before it in place of its length."""

    async def dependent_jobs(self, job_id: str, limit: int) -> list[str]:
        """The names of the jobs that fire after a job, in order."""


class TallyStore(Protocol):
    """Counters by period. See `core.runs.tallies` and `core.runs.errors`."""

    async def add_tallies(
        self,
        expected: int | None,
        position: int,
        tallies: Mapping[TallyKey, Tally],
        failures: Sequence[SeenFailure],
    ) -> bool:
        """Add to the tallies and to the error groups, and record that all events before `position` are counted. False,
        and nothing is written, if the recorded position is not `expected` (None: none was recorded yet)."""

    async def tallied(self) -> int | None:
        """The position up to which events are counted; None if none ever were."""

    async def uncounted_since(self) -> Instant | None:
        """When the oldest event that is not counted yet was recorded, also if it has no number yet; None if all events
        are counted."""

    async def list_tallies(
        self,
        namespace: str,
        kind: Kind,
        since: Instant,
        until: Instant,
        *,
        name: str | None = None,
        limit: int = 10_000,
    ) -> list[tuple[TallyKey, Tally]]:
        """Tallies of periods that begin from `since` to before `until`, in order of period and name."""

    async def newest_tallies(
        self, namespace: str, kind: Kind, names: Collection[str], since: Instant, each: int
    ) -> list[tuple[TallyKey, Tally]]:
        """The latest `each` tallies of every name, of periods that begin at `since` or later, in order of name; those
        of one name newest first."""

    async def list_errors(
        self, namespace: str, *, since: Instant = 0, before: tuple[Instant, str] | None = None, limit: int = 50
    ) -> list[ErrorGroup]:
        """Error groups, the one that failed last first."""

    async def get_error(self, namespace: str, error: str) -> ErrorGroup:
        """The error group with this id; NotFound if there is none."""

    async def runs_of_error(
        self, namespace: str, error: str, *, since: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[Run]:
        """The failed runs of a group that are kept, newest first, those before an id."""
