"""Figures: what a process counts of what passes between it and its store, wherever in the process it comes from.

Sums over processes are sums over the fleet. Nothing here is by job, task or run: the number of figures is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Any, Final, cast

from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import Claim, FiringOutcome, Hold, NewRun, Report, Term, Worker
from mainspring.core.planning.plans import Plan, PlannedFiring
from mainspring.core.runs.priority import Ordering
from mainspring.core.states import CANCELLED, FINAL, SKIPPED, State
from mainspring.errors import StoreError, TermPassed
from mainspring.store import Audit, Fired, Reaped, Standing, Store, Verdict

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0)
"""The bounds of all durations that are counted here."""
_BOUNDS = [int(seconds * SECOND) for seconds in SECONDS]


class Spread:
    """How often something took how long."""

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self.total_s = 0.0

    def add(self, *durations: Duration) -> None:
        """So many more."""
        counts = self._counts
        for duration in durations:
            counts[bisect_left(_BOUNDS, duration)] += 1
        self.total_s += sum(durations) / SECOND

    def buckets(self) -> list[tuple[str, int]]:
        """Upper bound to how many were within it, as Prometheus counts."""
        bounds = [*(f"{bound:g}" for bound in SECONDS), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))


class Figures:
    """Grow only."""

    def __init__(self, targets: Mapping[int, Duration] | None = None) -> None:
        """`targets`: how long after they are due runs of a priority start at the latest."""
        self.targets = targets or {}
        self.lock = Lock()
        self.counts: Counter[tuple[str, str]] = Counter()
        """By name and, where there is one, label."""
        self.breakers: dict[str, str] = {}
        """The state of each circuit breaker of this process, by name: closed, open or half-open."""
        self.run_seconds = Spread()
        self.run_delay = Spread()
        self.firing_delay = Spread()
        self.lock_wait = Spread()
        self.lock_held = Spread()

    def count(self, name: str, label: str = "", number: int = 1) -> None:
        """So many more."""
        with self.lock:
            self.counts[name, label] += number


class Measured:
    """A store that counts what passes through. All else is the store's own."""

    def __init__(self, store: Store, figures: Figures) -> None:
        self._store = store
        self.figures = figures
        self.now = store.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        try:
            ids = await self._store.submit(runs, audit=audit)
        except StoreError:
            self.figures.count("store_errors", "submit")
            raise
        self.figures.count("submissions", "", len(runs))
        if repeated := sum(run_id != run.id for run_id, run in zip(ids, runs, strict=True)):
            self.figures.count("duplicates", "submission", repeated)
        return ids

    async def fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        figures = self.figures
        try:
            fired = await self._store.fire(plans, term)
        except TermPassed:
            figures.count("terms_passed")
            raise
        now = self._store.now()
        with figures.lock:
            for plan, what in zip(plans, fired, strict=True):
                for firing, outcome in _outcomes(plan, what) if what.applied else ():
                    figures.counts["firings", outcome] += max(firing.count, 1)
                    if outcome == "fired":
                        figures.firing_delay.add(max(now - firing.fire_at, 0))
        return fired

    async def claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        try:
            claims = await self._store.claim(worker, limit, ttl, ordering, ahead=ahead)
        except StoreError:
            self.figures.count("store_errors", "claim")
            raise
        if claims:
            self._count(claims)
        return claims

    async def claim_these(self, worker: Worker, runs: Sequence[tuple[str, int]], ttl: Duration) -> list[Claim]:
        try:
            claims = await self._store.claim_these(worker, runs, ttl)
        except StoreError:
            self.figures.count("store_errors", "claim")
            raise
        if claims:
            self._count(claims)
        return claims

    def stand(self, standing: Standing | None) -> None:
        if standing is not None:
            standing = standing._replace(take=partial(self._take, standing.take))
        self._store.stand(standing)

    def _take(self, take: Callable[[Sequence[Claim], float], None], claims: Sequence[Claim], sent_at: float) -> None:
        self._count(claims)
        take(claims, sent_at)

    def _count(self, claims: Sequence[Claim]) -> None:
        now, figures = self._store.now(), self.figures
        with figures.lock:
            figures.counts["claims", ""] += len(claims)
            delays = [max(now - claim.due_at, 0) for claim in claims]
            figures.run_delay.add(*delays)
            for claim, delay in zip(claims, delays, strict=True):
                if (target := figures.targets.get(claim.priority)) is not None:
                    priority = str(claim.priority)
                    figures.counts["starts", priority] += 1
                    figures.counts["starts_late", priority] += delay > target

    async def report(self, reports: Sequence[Report]) -> list[Verdict]:
        try:
            verdicts = await self._store.report(reports)
        except StoreError:
            self.figures.count("store_errors", "report")
            raise
        accepted = [each for each, verdict in zip(reports, verdicts, strict=True) if verdict == "accepted"]
        with self.figures.lock:
            self._add("reports", verdicts)
            self._add("duplicates", [f"{verdict}_result" for verdict in verdicts if verdict != "accepted"])
            self._add("attempts", [report.outcome for report in accepted])
            self._add("runs_finished", [report.state for report in accepted if report.state in FINAL])
            self.figures.run_seconds.add(
                *[max(it.finished_at - it.started_at, 0) for it in accepted if it.started_at and it.finished_at]
            )
        return verdicts

    def _add(self, name: str, labels: Sequence[str]) -> None:
        """Counted in one go: there may be thousands a second."""
        for label, number in Counter(labels).items():
            self.figures.counts[name, label] += number

    async def request_cancel(
        self, namespace: str, run_id: str, reason: str, *, audit: Audit[State] | None = None
    ) -> State:
        state = await self._store.request_cancel(namespace, run_id, reason, audit=audit)
        if state == CANCELLED:
            self.figures.count("runs_finished", CANCELLED)
        return state

    async def recover(self, dead_after: Duration, limit: int) -> Reaped:
        reaped = await self._store.recover(dead_after, limit)
        if reaped.lost or reaped.expired or reaped.dead_workers:
            self.figures.count("runs_lost", "", reaped.lost)
            self.figures.count("runs_finished", SKIPPED, reaped.expired)
            self.figures.count("workers_dead", "", len(reaped.dead_workers))
        return reaped

    async def hurry(self, namespace: str | None, reason: str, limit: int) -> int:
        hurried = await self._store.hurry(namespace, reason, limit)
        if hurried:
            self.figures.count("hurried", "", hurried)
        return hurried

    async def shed(self, namespace: str, reason: str, limit: int) -> int:
        shed = await self._store.shed(namespace, reason, limit)
        if shed:
            self.figures.count("runs_shed", "", shed)
            self.figures.count("runs_finished", SKIPPED, shed)
        return shed

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        hold = await self._store.acquire(name, owner, ttl)
        self.figures.count("leases", "taken" if hold else "refused")
        return hold

    async def renew_hold(self, hold: Hold) -> Hold | None:
        renewed = await self._store.renew_hold(hold)
        self.figures.count("leases", "renewed" if renewed else "lost")
        return renewed

    async def release(self, hold: Hold) -> None:
        await self._store.release(hold)
        self.figures.count("leases", "released")


def _outcomes(plan: Plan, what: Fired) -> Iterator[tuple[PlannedFiring, FiringOutcome]]:
    """What became of each firing of a plan. The store skips some that were to fire: where the runs before them have not
    ended, or no worker knows the task."""
    left = what.runs
    for firing in plan.firings:
        is_skipped = firing.outcome == "fired" and left <= 0
        left -= len(firing.runs)
        yield firing, "skipped" if is_skipped else firing.outcome


def measured(store: Store, figures: Figures | None = None) -> Store:
    """The same store, counted: in `figures`, if others count there, too."""
    return cast(Store, Measured(store, figures or Figures()))


def figures_of(store: Store) -> Figures:
    """What a store counted; nothing, if it does not count."""
    return store.figures if isinstance(store, Measured) else Figures()
