"""Layers around a store: a class that passes every method of the port on, one by one, and the layer that counts.

Each method is bound by name, so that mypy sees every call, and a method that is new to the port is missing here until
it is bound. A layer that does something with every call overrides `_pass`; one that does something with a certain call
binds its own method in place of the store's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from operator import ne
from typing import Any, ParamSpec, TypeVar

from mainspring.core.instants import Duration
from mainspring.core.model import Claim, FiringOutcome, Hold, NewRun, Report, Term, Worker
from mainspring.core.planning.plans import Plan, PlannedFiring
from mainspring.core.runs.priority import Ordering
from mainspring.core.states import CANCELLED, FINAL, PENDING, SKIPPED, State
from mainspring.errors import StoreError, TermPassed
from mainspring.process.metrics import Metrics
from mainspring.store import Audit, Fired, Reaped, StandingClaim, Store, Verdict

P = ParamSpec("P")
T = TypeVar("T")


class StoreLayer:
    """See `store.Store`: all of it is the store's own, by way of `_pass`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.metrics = store.metrics
        self.joining = store.joining
        self.now = store.now
        self.surely_now = store.surely_now
        self.on_change = store.on_change
        self.on_accepted = store.on_accepted
        self.announce = store.announce
        self.leave_claim = store.leave_claim
        self.strain = store.strain
        self.close = self._pass(store.close)
        self._bind_definitions(store)
        self._bind_runs(store)
        self._bind_work(store)
        self._bind_upkeep(store)
        self._bind_events(store)
        self._bind_insight(store)

    def _bind_definitions(self, store: Store) -> None:
        self.create_job = self._pass(store.create_job)
        self.sync_jobs = self._pass(store.sync_jobs)
        self.edit_job = self._pass(store.edit_job)
        self.get_job = self._pass(store.get_job)
        self.find_jobs = self._pass(store.find_jobs)
        self.list_jobs = self._pass(store.list_jobs)
        self.pause_jobs = self._pass(store.pause_jobs)
        self.remove_job = self._pass(store.remove_job)
        self.trigger = self._pass(store.trigger)
        self.backfill = self._pass(store.backfill)
        self.list_firings = self._pass(store.list_firings)
        self.newest_firings = self._pass(store.newest_firings)
        self.missed_firings = self._pass(store.missed_firings)
        self.firing_of_run = self._pass(store.firing_of_run)
        self.count_jobs = self._pass(store.count_jobs)
        self.ordered_jobs = self._pass(store.ordered_jobs)
        self.list_edges = self._pass(store.list_edges)
        self.save_calendar = self._pass(store.save_calendar)
        self.remove_calendar = self._pass(store.remove_calendar)
        self.list_calendars = self._pass(store.list_calendars)
        self.due_jobs = self._pass(store.due_jobs)
        self.changed_jobs = self._pass(store.changed_jobs)
        self.adopt_zones = self._pass(store.adopt_zones)
        self.fire = self._pass(store.fire)

    def _bind_runs(self, store: Store) -> None:
        self.submit = self._pass(store.submit)
        self.get_run = self._pass(store.get_run)
        self.find_runs = self._pass(store.find_runs)
        self.list_runs = self._pass(store.list_runs)
        self.count_runs = self._pass(store.count_runs)
        self.count_matching = self._pass(store.count_matching)
        self.count_each = self._pass(store.count_each)
        self.list_attempts = self._pass(store.list_attempts)
        self.list_logs = self._pass(store.list_logs)
        self.count_logs = self._pass(store.count_logs)
        self.have_written = self._pass(store.have_written)
        self.upstream_runs = self._pass(store.upstream_runs)
        self.gate_holders = self._pass(store.gate_holders)
        self.request_cancel = self._pass(store.request_cancel)
        self.finished = self._pass(store.finished)

    def _bind_insight(self, store: Store) -> None:
        self.pause_queue = self._pass(store.pause_queue)
        self.paused_queues = self._pass(store.paused_queues)
        self.list_gates = self._pass(store.list_gates)
        self.list_lines = self._pass(store.list_lines)
        self.dependants = self._pass(store.dependants)
        self.lines_of = self._pass(store.lines_of)
        self.dependent_jobs = self._pass(store.dependent_jobs)
        self.add_tallies = self._pass(store.add_tallies)
        self.tallied = self._pass(store.tallied)
        self.uncounted_since = self._pass(store.uncounted_since)
        self.list_tallies = self._pass(store.list_tallies)
        self.newest_tallies = self._pass(store.newest_tallies)
        self.list_errors = self._pass(store.list_errors)
        self.get_error = self._pass(store.get_error)
        self.runs_of_error = self._pass(store.runs_of_error)

    def _bind_work(self, store: Store) -> None:
        self.due_runs = self._pass(store.due_runs)
        self.claim_these = self._pass(store.claim_these)
        self.register = self._pass(store.register)
        self.list_workers = self._pass(store.list_workers)
        self.request_drain = self._pass(store.request_drain)
        self.claim = self._pass(store.claim)
        self.next_due = self._pass(store.next_due)
        self.look = self._pass(store.look)
        self.renew = self._pass(store.renew)
        self.cancels = self._pass(store.cancels)
        self.report = self._pass(store.report)
        self.hand_back = self._pass(store.hand_back)
        self.amend = self._pass(store.amend)
        self.announced = self._pass(store.announced)
        self.record = self._pass(store.record)

    def _bind_upkeep(self, store: Store) -> None:
        self.recover = self._pass(store.recover)
        self.clean = self._pass(store.clean)
        self.backlog = self._pass(store.backlog)
        self.shed = self._pass(store.shed)
        self.hurry = self._pass(store.hurry)
        self.acquire = self._pass(store.acquire)
        self.renew_hold = self._pass(store.renew_hold)
        self.release = self._pass(store.release)
        self.holders = self._pass(store.holders)
        self.begin_term = self._pass(store.begin_term)
        self.end_term = self._pass(store.end_term)
        self.terms = self._pass(store.terms)
        self.check_in = self._pass(store.check_in)
        self.leave = self._pass(store.leave)
        self.nodes = self._pass(store.nodes)

    def _bind_events(self, store: Store) -> None:
        self.number_events = self._pass(store.number_events)
        self.events_since = self._pass(store.events_since)
        self.position_at = self._pass(store.position_at)
        self.next_position = self._pass(store.next_position)
        self.heard = self._pass(store.heard)
        self.note_heard = self._pass(store.note_heard)
        self.record_events = self._pass(store.record_events)
        self.reserve_reply = self._pass(store.reserve_reply)
        self.keep_reply = self._pass(store.keep_reply)
        self.spend = self._pass(store.spend)
        self.revoke = self._pass(store.revoke)
        self.revocations = self._pass(store.revocations)
        self.note_changes = self._pass(store.note_changes)
        self.schema = self._pass(store.schema)
        self.list_changes = self._pass(store.list_changes)

    def _pass(self, call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """What is bound in place of a method of the store."""
        return call


class MeasuredStore(StoreLayer):
    """A store that counts what passes through: of every method the errors, of some what they did."""

    def __init__(self, store: Store, metrics: Metrics | None = None) -> None:
        """`metrics`: where to count; the store's own unless given."""
        super().__init__(store)
        self.metrics = metrics or store.metrics
        self.submit = self._submit
        self.fire = self._pass(self._fire)
        self.claim = self._claim
        self.claim_these = self._claim_these
        self.leave_claim = self._leave_claim
        self.report = self._report
        self.request_cancel = self._pass(self._request_cancel)
        self.recover = self._pass(self._recover)
        self.hurry = self._pass(self._hurry)
        self.shed = self._pass(self._shed)
        self.acquire = self._pass(self._acquire)
        self.renew_hold = self._pass(self._renew_hold)
        self.release = self._pass(self._release)
        self.begin_term = self._pass(self._begin_term)
        self.end_term = self._pass(self._end_term)

    def _pass(self, call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        name = getattr(call, "__name__", "other").lstrip("_")

        async def measured(*args: P.args, **words: P.kwargs) -> T:
            try:
                return await call(*args, **words)
            except StoreError:
                self.metrics.count("store_errors", name)
                raise

        return measured

    async def _submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        try:
            ids = await self._store.submit(runs, audit=audit)
        except StoreError:
            self.metrics.count("store_errors", "submit")
            raise
        self.metrics.count("submissions", "", len(runs))
        if ids != (own := [run.id for run in runs]):
            self.metrics.count("duplicates", "submission", sum(map(ne, ids, own)))
        return ids

    async def _fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        metrics = self.metrics
        try:
            fired = await self._store.fire(plans, term)
        except TermPassed:
            metrics.count("terms_passed")
            raise
        now = self._store.now()
        with metrics.lock:
            for plan, what in zip(plans, fired, strict=True):
                for firing, outcome in _outcomes(plan, what) if what.applied else ():
                    metrics.counts["firings", outcome] += max(firing.count, 1)
                    if outcome == "fired":
                        metrics.firing_delay.add(max(now - firing.fire_at, 0))
        return fired

    async def _claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        try:
            claims = await self._store.claim(worker, limit, ttl, ordering, ahead=ahead)
        except StoreError:
            self.metrics.count("store_errors", "claim")
            raise
        if claims:
            self._count(claims)
        return claims

    async def _claim_these(self, worker: Worker, runs: Sequence[tuple[str, int]], ttl: Duration) -> list[Claim]:
        try:
            claims = await self._store.claim_these(worker, runs, ttl)
        except StoreError:
            self.metrics.count("store_errors", "claim")
            raise
        if claims:
            self._count(claims)
        return claims

    def _leave_claim(self, standing: StandingClaim | None) -> None:
        if standing is not None:
            standing = standing._replace(take=partial(self._take, standing.take))
        self._store.leave_claim(standing)

    def _take(self, take: Callable[[Sequence[Claim], float], None], claims: Sequence[Claim], sent_at: float) -> None:
        self._count(claims)
        take(claims, sent_at)

    def _count(self, claims: Sequence[Claim]) -> None:
        now, metrics = self._store.now(), self.metrics
        with metrics.lock:
            metrics.counts["claims", ""] += len(claims)
            delays = [max(now - claim.due_at, 0) for claim in claims]
            metrics.run_delay.add(*delays)
            for claim, delay in zip(claims, delays, strict=True):
                if (target := metrics.targets.get(claim.priority)) is not None:
                    priority = str(claim.priority)
                    metrics.counts["starts", priority] += 1
                    metrics.counts["starts_late", priority] += delay > target

    async def _report(self, reports: Sequence[Report]) -> list[Verdict]:
        try:
            verdicts = await self._store.report(reports)
        except StoreError:
            self.metrics.count("store_errors", "report")
            raise
        accepted = [each for each, verdict in zip(reports, verdicts, strict=True) if verdict == "accepted"]
        with self.metrics.lock:
            self._add("reports", verdicts)
            self._add("duplicates", [f"{verdict}_result" for verdict in verdicts if verdict != "accepted"])
            self._add("attempts", [report.outcome for report in accepted])
            states = [report.state for report in accepted]
            self._add("runs_finished", [state for state in states if state in FINAL])
            self.metrics.counts["retries", ""] += states.count(PENDING)
            self.metrics.run_seconds.add(
                *[max(it.finished_at - it.started_at, 0) for it in accepted if it.started_at and it.finished_at]
            )
        return verdicts

    def _add(self, name: str, labels: Sequence[str]) -> None:
        """Counted together, since there may be thousands a second."""
        for label, number in Counter(labels).items():
            self.metrics.counts[name, label] += number

    async def _request_cancel(
        self, namespace: str, run_id: str, reason: str, *, audit: Audit[State] | None = None
    ) -> State:
        state = await self._store.request_cancel(namespace, run_id, reason, audit=audit)
        if state == CANCELLED:
            self.metrics.count("runs_finished", CANCELLED)
        return state

    async def _recover(self, dead_after: Duration, limit: int) -> Reaped:
        reaped = await self._store.recover(dead_after, limit)
        if reaped.lost or reaped.expired or reaped.dead_workers:
            self.metrics.count("runs_lost", "", reaped.lost)
            self.metrics.count("runs_finished", SKIPPED, reaped.expired)
            with self.metrics.lock:
                self._add("runs_finished", reaped.ended)
            self.metrics.count("workers_dead", "", len(reaped.dead_workers))
        return reaped

    async def _hurry(self, namespace: str | None, reason: str, limit: int) -> int:
        hurried = await self._store.hurry(namespace, reason, limit)
        if hurried:
            self.metrics.count("hurried", "", hurried)
        return hurried

    async def _shed(self, namespace: str, reason: str, limit: int) -> int:
        shed = await self._store.shed(namespace, reason, limit)
        if shed:
            self.metrics.count("runs_shed", "", shed)
            self.metrics.count("runs_finished", SKIPPED, shed)
        return shed

    async def _acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        hold = await self._store.acquire(name, owner, ttl)
        self.metrics.count("leases", "taken" if hold else "refused")
        return hold

    async def _renew_hold(self, hold: Hold) -> Hold | None:
        renewed = await self._store.renew_hold(hold)
        self.metrics.count("leases", "renewed" if renewed else "lost")
        return renewed

    async def _release(self, hold: Hold) -> None:
        await self._store.release(hold)
        self.metrics.count("leases", "released")

    async def _begin_term(self, name: str, owner: str) -> Term:
        term = await self._store.begin_term(name, owner)
        self.metrics.count("leadership", "elected")
        return term

    async def _end_term(self, term: Term, reason: str) -> None:
        await self._store.end_term(term, reason)
        self.metrics.count("leadership", "resigned")


def _outcomes(plan: Plan, what: Fired) -> Iterator[tuple[PlannedFiring, FiringOutcome]]:
    """The outcome of each firing of a plan. The store skips some that were to fire: where the runs before them have not
    ended, or no worker knows the task."""
    left = what.runs
    for firing in plan.firings:
        is_skipped = firing.outcome == "fired" and left <= 0
        left -= len(firing.runs)
        yield firing, "skipped" if is_skipped else firing.outcome
