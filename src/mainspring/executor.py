"""The executor port: run one attempt to its outcome.

An executor gets an attempt and answers how it ended; it never raises for what the task did. When its coroutine is
cancelled it ends the work (asking for `grace_s`, then killing) and only then lets the cancellation through; one that
cannot says so by `unstoppable`. The texts of an outcome are `plain`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from mainspring.context import RunContext
from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Failure, RunOptions

OutcomeKind = Literal["succeeded", "failed", "timed_out", "cancelled", "skipped"]


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended."""

    kind: OutcomeKind
    result: str | None = None
    failure: Failure | None = None
    error_types: tuple[str, ...] = ()
    """Qualified names of the exception's class and its bases, most special first."""
    asked: Duration | None = None
    """A delay that the failure itself asked for."""
    final: bool = False
    """Whether the same would happen again, so that a retry is pointless."""
    unfit: bool = False
    """Whether the function was not even called: the arguments are not those that this code takes."""


def plain(text: str) -> str:
    """Text that JSON can carry: what strangers' exceptions and programs say may hold half characters."""
    return text.encode("utf-8", "replace").decode()


class Write(Protocol):
    """Takes what the work wrote."""

    def __call__(self, stream: str, text: str, at: Instant | None = None, /) -> None:
        """One line, without its end."""


StopKind = Literal["timed_out", "cancelled", "fenced", "handed_back"]


class AttemptContext:
    """One attempt under way: what to run, until when, and why it is being stopped if it is."""

    __slots__ = (
        "behind",
        "claim",
        "context",
        "ends_by",
        "grace_s",
        "here",
        "now",
        "on_overdue",
        "options",
        "started_at",
        "stop_kind",
        "stop_reason",
        "unstoppable",
        "write",
    )

    def __init__(self, claim: Claim, options: RunOptions) -> None:
        self.claim = claim
        self.options = options
        self.started_at: Instant = 0
        self.context: RunContext | None = None
        self.now: Callable[[], Instant] = _no_time
        """The store's clock."""
        self.write: Write = _nowhere
        """Takes a stream and a line that the work wrote; and when it did, if that is not now."""
        self.behind: Callable[[], bool] = _never
        """Whether so many lines wait to be stored that whoever can should write no more for now."""
        self.on_overdue: Callable[[], None] = _nothing
        """Called at the soft deadline: an executor whose work has to be told puts here how."""
        self.stop_kind: StopKind | None = None
        self.stop_reason = ""
        self.grace_s = 2.0
        """How long work that is asked to end may take before it is killed."""
        self.here = False
        """Set if the work is done by this process itself, on its event loop or in a thread: then nothing can end it for
        sure but the end of this process."""
        self.unstoppable = False
        """Set while the work is in a thread, where it cannot even be asked to end."""
        self.ends_by: float | None = None
        """When, on the monotonic clock, its deadline is."""

    @property
    def deadline(self) -> Instant | None:
        """When the attempt must have ended."""
        return None if self.options.timeout is None else self.started_at + self.options.timeout

    @property
    def soft_deadline(self) -> Instant | None:
        """When the attempt should have ended."""
        return None if self.options.soft_timeout is None else self.started_at + self.options.soft_timeout


def _nothing() -> None:
    return None


def _nowhere(_stream: str, _text: str, _at: Instant | None = None) -> None:
    return None


def _no_time() -> Instant:
    return 0


def _never() -> bool:
    return False


class Executor(Protocol):
    """One verb."""

    async def run(self, attempt: AttemptContext) -> Outcome:
        """Run the attempt to its end. Cancellation of this coroutine means: end the work now, then raise."""
