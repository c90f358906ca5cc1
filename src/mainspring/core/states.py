"""The states of a run and the only ways between them. Every SQL write is guarded by the state that it expects."""

from __future__ import annotations

from typing import Final, Literal

State = Literal["blocked", "pending", "running", "succeeded", "failed", "cancelled", "skipped"]

BLOCKED: Final = "blocked"
PENDING: Final = "pending"
RUNNING: Final = "running"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
SKIPPED: Final = "skipped"

STATES: Final[tuple[State, ...]] = (BLOCKED, PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, SKIPPED)
FINAL: Final[frozenset[State]] = frozenset({SUCCEEDED, FAILED, CANCELLED, SKIPPED})
UNFINISHED: Final[frozenset[State]] = frozenset(STATES) - FINAL

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    # A blocked run is freed, is cancelled, or ends because what it waits for failed or because it expired.
    BLOCKED: frozenset({PENDING, CANCELLED, SKIPPED, FAILED}),
    # A pending run is claimed, finds its gate full, is cancelled, or expires before anyone could start it.
    PENDING: frozenset({RUNNING, BLOCKED, CANCELLED, SKIPPED}),
    # Back to pending: a retry, a hand-back, or the loss of its worker.
    RUNNING: frozenset({SUCCEEDED, FAILED, CANCELLED, SKIPPED, PENDING}),
    SUCCEEDED: frozenset(),
    FAILED: frozenset(),
    CANCELLED: frozenset(),
    SKIPPED: frozenset(),
}
