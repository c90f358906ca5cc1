"""What follows when an attempt ends, however it ends: success, failure, deadline, cancel, loss, hand-back, a late
word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mainspring.core.ids import fraction_of
from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant, format_duration, format_instant
from mainspring.core.model import AttemptOutcome, RunOptions
from mainspring.core.runs.retry import Again, decide
from mainspring.core.states import CANCELLED, FAILED, PENDING, SKIPPED, State


class Next(NamedTuple):
    """The state that a run goes to, why, and, for `pending`, after how long."""

    state: State
    reason: str
    delay: Duration = 0


def after_failure(
    run_id: str,
    attempt: int,
    losses: int,
    options: RunOptions,
    summary: str,
    error_types: Sequence[str],
    asked: Duration | None = None,
) -> Next:
    """An attempt failed by itself: retry it later, or give the run up.

    `attempt` counts the attempts that ended before this one; lost ones do not use up retries.
    """
    failures = attempt + 1 - losses
    verdict = decide(options.retry, failures, error_types, fraction_of("retry", run_id, attempt), asked)
    if isinstance(verdict, Again):
        left = f"retry {failures} of {options.retry.retries} in {_about(verdict.delay)}"
        return Next(PENDING, f"{summary}; {left}", verdict.delay)
    return Next(FAILED, f"{summary}; {verdict.reason}" if verdict.reason else summary)


def _about(delay: Duration) -> str:
    """For people: without the microseconds that jitter leaves."""
    for unit in (SECOND, 100 * MILLISECOND, MILLISECOND):
        if delay >= 10 * unit:
            return format_duration(round(delay / unit) * unit)
    return format_duration(delay)


def after_loss(losses: int, options: RunOptions, worker: str, cancel_reason: str | None) -> Next:
    """The claim ran out: its worker died, hung or lost its way. `losses` counts this one."""
    if cancel_reason is not None:
        return Next(CANCELLED, cancel_reason)
    if losses > options.max_losses:
        return Next(FAILED, f"its worker was lost {losses} times, last {worker}; it may be what kills them")
    return Next(PENDING, f"worker {worker} was lost; loss {losses} of at most {options.max_losses}")


def is_suspect(losses: int, options: RunOptions) -> bool:
    """Whether a run may be what its workers die of, so that it has to be alone at the next: it was lost twice, or this
    is its last chance. Once is nothing: all runs of a worker that is killed were lost, and would wait for each other.
    """
    return losses >= max(1, min(2, options.max_losses))


def too_late(expires_at: Instant) -> Next:
    """No worker started the run before its starting deadline."""
    return Next(SKIPPED, f"not started by {format_instant(expires_at)}")


def settle(proposed: Next, cancel_reason: str | None) -> Next:
    """The final decision, in the transaction: a failure after a request to cancel ends cancelled, never retried; a
    success stands."""
    if cancel_reason is not None and proposed.state in (PENDING, FAILED):
        return Next(CANCELLED, cancel_reason)
    return proposed


def attempt_outcome(state: State, outcome: AttemptOutcome) -> AttemptOutcome:
    """How the attempt itself is remembered once the run's state is settled."""
    return "cancelled" if state == CANCELLED and outcome not in ("succeeded", "lost") else outcome
