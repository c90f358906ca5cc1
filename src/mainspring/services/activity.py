"""What the loops of this process do: events as they happen, and counts for a summary a minute.

A process reports its own work only. It never reads the events of the fleet: `mainspring events --follow` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.core.model import Event, Report
from mainspring.core.planning.plans import Plan, runs_in
from mainspring.core.runs.outcome import Next, settle
from mainspring.core.states import FAILED, PENDING, SUCCEEDED
from mainspring.executor import AttemptContext
from mainspring.services.loop import Loop
from mainspring.store import Fired, Verdict

SUMMARY_S = 60.0
"""How often to summarize. Often enough for a reader of a log file, rare enough to cost nothing."""


class Summary(NamedTuple):
    """What a worker did since the last summary."""

    at: Instant
    worker: str
    seconds: int
    """How long ago the last summary was, or the start."""
    claimed: int
    succeeded: int
    failed: int
    retried: int
    in_hand: int
    """Claims that the worker holds now."""


class Listener(NamedTuple):
    """Receives the activity of one process, from any of its threads."""

    on_event: Callable[[Event, str], None]
    """Called with an event and the arguments of the run that it is about."""
    on_summary: Callable[[Summary], None]
    detailed: bool
    """Whether `on_event` is called for every start and end. Otherwise only for failed runs and missed firings."""
    on_end: Callable[[Event], None] | None = None
    """Called with every end of an attempt."""


SILENT = Listener(lambda event, args: None, lambda summary: None, detailed=False)
"""Hears nothing."""


class Activity(Loop):
    """Counts what one process does and passes it to a listener."""

    name = "activity"

    def __init__(
        self, worker: str, listener: Listener, now: Callable[[], Instant], clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._worker = worker
        self._listener = listener
        self._now = now
        self._succeeded = self._failed = self._retried = self._claimed_before = 0
        self._summarized_at = clock.monotonic()
        self.claimed: Callable[[], int] = lambda: 0
        """Returns how many runs the worker has claimed since its start."""
        self.in_hand: Callable[[], int] = lambda: 0
        """Returns how many claims the worker holds."""

    @property
    def detailed(self) -> bool:
        """Whether every start and end is reported."""
        return self._listener.detailed

    async def turn(self) -> float:
        if self.clock.monotonic() >= self._summarized_at + SUMMARY_S:
            self.summarize()
        return max(self._summarized_at + SUMMARY_S - self.clock.monotonic(), 0.0)

    def summarize(self) -> None:
        """Report the counts since the last summary, unless nothing happened."""
        claimed, in_hand, monotonic = self.claimed(), self.in_hand(), self.clock.monotonic()
        seconds, self._summarized_at = round(monotonic - self._summarized_at), monotonic
        counts = (claimed - self._claimed_before, self._succeeded, self._failed, self._retried)
        self._claimed_before = claimed
        self._succeeded = self._failed = self._retried = 0
        if any(counts) or in_hand:
            self._listener.on_summary(Summary(self._now(), self._worker, seconds, *counts, in_hand))

    def began(self, attempt: AttemptContext) -> None:
        """An attempt has started."""
        self._listener.on_event(self._event("run.running", attempt, attempt.started_at), attempt.claim.args)

    def ended(
        self, reports: Sequence[Report], verdicts: Sequence[Verdict], attempt_of: Callable[[str], AttemptContext | None]
    ) -> None:
        """The store has answered these reports."""
        for report, verdict in zip(reports, verdicts, strict=True):
            if verdict == "stale":
                continue
            if report.state == SUCCEEDED and not self.detailed and self._listener.on_end is None:
                self._succeeded += 1
            elif (attempt := attempt_of(report.run_id)) is not None:
                self._end(report, attempt)

    def handed_back(self, attempts: Sequence[AttemptContext]) -> None:
        """These were given back without an end."""
        if self.detailed:
            for attempt in attempts:
                self._listener.on_event(self._event("run.handed_back", attempt, self._now()), attempt.claim.args)

    def fired(self, plan: Plan, fired: Fired) -> None:
        """The store has applied a plan. It may have written fewer runs than planned, because an earlier run goes on."""
        fire_count = sum(each.outcome == "fired" for each in plan.firings)
        runs_per_firing = max(runs_in(plan) // fire_count, 1) if fire_count else 1
        left = fired.runs // runs_per_firing
        job, now = plan.job, self._now()
        for firing in plan.firings:
            outcome = firing.outcome
            if outcome == "fired":
                outcome, left = ("fired" if left > 0 else "skipped"), left - 1
            if self.detailed or outcome == "missed":
                event = Event(
                    f"firing.{outcome}", now, job.namespace, None, job.id, job.name, job.task, None, firing.fire_at,
                    reason=firing.reason, count=firing.count,
                )  # fmt: skip
                self._listener.on_event(event, job.args)

    def _end(self, report: Report, attempt: AttemptContext) -> None:
        # An attempt that exceeded its timeout is asked to stop, too, but its run was not cancelled.
        stopped = attempt.context is not None and attempt.context.cancelled
        asked = stopped and attempt.stop_kind in (None, "cancelled")
        proposed = Next(report.state, report.reason, report.delay)
        final = settle(proposed, (attempt.stop_reason or "cancelled") if asked else None)
        self._succeeded += final.state == SUCCEEDED
        self._failed += final.state == FAILED
        self._retried += final.state == PENDING
        on_end = self._listener.on_end
        shown = self.detailed or final.state == FAILED
        if shown or on_end is not None:
            kind = "run.retrying" if final.state == PENDING else f"run.{final.state}"
            took = report.finished_at - report.started_at if report.started_at and report.finished_at else None
            event = self._event(kind, attempt, report.finished_at or self._now(), final.reason, took)
            if shown:
                self._listener.on_event(event, attempt.claim.args)
            if on_end is not None:
                on_end(event)

    def _event(
        self, kind: str, attempt: AttemptContext, at: Instant, reason: str = "", duration: int | None = None
    ) -> Event:
        claim = attempt.claim
        return Event(
            kind, at, claim.namespace, claim.run_id, None, claim.job, claim.task, self._worker, claim.fire_at,
            claim.attempt + 1, reason, duration,
        )  # fmt: skip
