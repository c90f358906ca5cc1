"""What a worker did, as events, from its own loops: it need not read them back among those of the whole fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainspring.core.instants import Instant
from mainspring.core.model import Event, Report
from mainspring.core.runs.outcome import Next, settle
from mainspring.core.states import PENDING
from mainspring.executor import AttemptContext
from mainspring.store import Verdict

Tell = Callable[[Event, str], None]
"""Given an event, and the arguments of the run that it is about."""


class Story:
    """Calls `tell`, from whatever thread, for each start and each accepted end of an attempt of one worker."""

    def __init__(self, worker: str, tell: Tell, now: Callable[[], Instant]) -> None:
        self._worker = worker
        self._tell = tell
        self._now = now

    def began(self, attempt: AttemptContext) -> None:
        """An attempt has started."""
        self._tell(self._event("run.running", attempt, attempt.started_at), attempt.claim.args)

    def ended(
        self, reports: Sequence[Report], verdicts: Sequence[Verdict], attempt_of: Callable[[str], AttemptContext | None]
    ) -> None:
        """The store has answered to these reports."""
        for report, verdict in zip(reports, verdicts, strict=True):
            attempt = attempt_of(report.run_id)
            if verdict != "stale" and attempt is not None:
                self._tell(self._end(report, attempt), attempt.claim.args)

    def handed_back(self, attempts: Sequence[AttemptContext]) -> None:
        """These were given back without an end."""
        for attempt in attempts:
            self._tell(self._event("run.handed_back", attempt, self._now()), attempt.claim.args)

    def _end(self, report: Report, attempt: AttemptContext) -> Event:
        asked = attempt.context is not None and attempt.context.cancelled
        proposed = Next(report.state, report.reason, report.delay)
        final = settle(proposed, (attempt.stop_reason or "cancelled") if asked else None)
        kind = "run.retrying" if final.state == PENDING else f"run.{final.state}"
        took = report.finished_at - report.started_at if report.started_at and report.finished_at else None
        return self._event(kind, attempt, report.finished_at or self._now(), final.reason, took)

    def _event(
        self, kind: str, attempt: AttemptContext, at: Instant, reason: str = "", duration: int | None = None
    ) -> Event:
        claim = attempt.claim
        return Event(
            kind, at, claim.namespace, claim.run_id, None, claim.job, claim.task, self._worker, claim.fire_at,
            claim.attempt + 1, reason, duration,
        )  # fmt: skip
