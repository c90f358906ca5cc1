"""What a running task can ask about its own run."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime

from mainspring.core.instants import Instant, to_datetime
from mainspring.core.model import Claim
from mainspring.errors import InvalidInput, MainspringError


class RunContext:
    """The run that a task is executing: `current_run()` gives it, in the task and in what it calls."""

    def __init__(
        self,
        claim: Claim,
        deadline: Instant | None,
        on_log: Callable[[str, str], None],
        on_progress: Callable[[float, str], None],
        soft_deadline: Instant | None = None,
        now: Callable[[], Instant] = lambda: 0,
    ) -> None:
        """Made by the worker. `on_log` takes a stream and a text, `on_progress` a fraction and a note; `now` is the
        clock by which deadlines are kept.

        All of them may be called from any thread.
        """
        self.id = claim.run_id
        self.task = claim.task
        self.job = claim.job
        """The name of its job; None for a submission."""
        self.attempt = claim.attempt + 1
        """1 for the first attempt."""
        self.token = claim.token
        """Greater each time the run is given to a worker: whoever is handed it can refuse those of before."""
        self.namespace = claim.namespace
        self.idx = claim.idx
        """Which of the job's completions it is, from 0."""
        self.fire_at: datetime | None = None if claim.fire_at is None else to_datetime(claim.fire_at)
        """The instant, in UTC, that the run stands for: not when it happened to start. None for a submission."""
        self.deadline: datetime | None = None if deadline is None else to_datetime(deadline)
        """When this attempt will be killed, in UTC."""
        self.soft_deadline: datetime | None = None if soft_deadline is None else to_datetime(soft_deadline)
        """When this attempt begins to be overdue, in UTC."""
        self._soft_deadline = soft_deadline
        self._now = now
        self._cancelled = False
        self._on_log = on_log
        self._on_progress = on_progress

    @property
    def cancelled(self) -> bool:
        """Whether somebody has asked the run to stop. A task that sees it should clean up and return soon."""
        return self._cancelled

    @property
    def overdue(self) -> bool:
        """Whether the attempt is past its soft deadline. A task that sees it should save what it has and return, for
        at its deadline it is killed."""
        return self._soft_deadline is not None and self._now() >= self._soft_deadline

    def cancel(self) -> None:
        """Let the task know that somebody has asked it to stop. Called by the worker."""
        self._cancelled = True

    def filter(self, mask: Callable[[str], str]) -> None:
        """Pass all that the run says through `mask` first. Called by the worker, before the run begins."""
        log, progress = self._on_log, self._on_progress
        self._on_log = lambda stream, text: log(stream, mask(text))
        self._on_progress = lambda fraction, note: progress(fraction, mask(note))

    def progress(self, fraction: float, note: str = "") -> None:
        """Say how far the run has come, from 0 to 1."""
        if not isinstance(fraction, int | float) or isinstance(fraction, bool) or not 0 <= fraction <= 1:
            raise InvalidInput("fraction", fraction, "is not a fraction", "give a number from 0 to 1")
        self._on_progress(float(fraction), str(note))

    def log(self, text: str) -> None:
        """Write to the run's log, as printing does."""
        self._on_log("log", str(text))


CURRENT: ContextVar[RunContext] = ContextVar("mainspring_run")
"""Set by the worker around each attempt."""


def current_run() -> RunContext:
    """The run that is being executed here; MainspringError outside of one."""
    context = CURRENT.get(None)
    if context is None:
        raise MainspringError(
            "current_run() was called outside of a run: it works in a task that a worker executes, and in what that "
            "task calls, but not in threads that it starts"
        )
    return context
