"""Errors as answers: problem documents (RFC 9457) with a stable type, the fields at fault and what would be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from mainspring.errors import (
    Conflict,
    InvalidInput,
    MainspringError,
    NotFound,
    PayloadTooLarge,
    RunGone,
    StoreError,
)

PREFIX = "urn:mainspring:problem:"
MEDIA_TYPE = "application/problem+json"
MOST_FAULTS = 100

TITLES: dict[str, tuple[int, str]] = {
    "malformed-body": (400, "The body is not JSON"),
    "bad-request": (400, "The request cannot be understood"),
    "unauthenticated": (401, "A valid token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "This cannot be done here"),
    "slow-body": (408, "The body did not arrive in time"),
    "conflict": (409, "It is in a state that forbids this"),
    "idempotency-conflict": (409, "The idempotency key was used for another request"),
    "in-progress": (409, "The same request is being worked on"),
    "stale-claim": (409, "The claim has been overtaken"),
    "precondition-failed": (412, "It was changed meanwhile"),
    "too-large": (413, "It is too large"),
    "unsupported-media-type": (415, "Only JSON is understood"),
    "invalid-input": (422, "Some fields are wrong"),
    "rate-limited": (429, "Too many requests"),
    "internal": (500, "Something unexpected happened"),
    "overloaded": (503, "The server is busy"),
    "unavailable": (503, "The store cannot be reached"),
}
"""Every type of problem: its status and title. Types are never renamed."""
_LISTS = frozenset({"after", "calendars", "jobs"})
"""A field that has several names: a fault says which of them was used."""


class Fault(msgspec.Struct, frozen=True):
    """One wrong field."""

    field: str
    fault: str
    remedy: str


class Problem(Exception):
    """An answer that is not a success."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        remedy: str = "",
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        firing: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.status, self.title = TITLES[kind]
        self.detail = detail
        self.remedy = remedy
        self.faults = tuple(faults)
        self.headers = dict(headers or {})
        self.firing = firing

    def document(self, request_id: str) -> bytes:
        """What is sent."""
        parts: dict[str, object] = {
            "type": PREFIX + self.kind,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
        }
        if self.remedy:
            parts["remedy"] = self.remedy
        if self.faults:
            parts["errors"] = self.faults[:MOST_FAULTS]
        if self.firing is not None:
            parts["firing"] = self.firing
        return msgspec.json.encode(parts)


def retry_after(seconds: int) -> dict[str, str]:
    """The header that says when to come again."""
    return {"Retry-After": str(max(seconds, 1))}


def fault_of(error: InvalidInput, names: Mapping[str, str] | None = None) -> Fault:
    """A refused value under the name by which the caller knows it."""
    head = error.field.replace("[", ".", 1).partition(".")[0]
    written = (names or {}).get(head, head)
    problem = f"{error.value!r} {error.problem}" if head in _LISTS and isinstance(error.value, str) else error.problem
    return Fault(written + error.field[len(head) :], problem, error.remedy)


def invalid(faults: Sequence[Fault]) -> Problem:
    """All that is wrong with a request, at once."""
    fields = ", ".join(dict.fromkeys(fault.field for fault in faults[:10]))
    count = f"{len(faults)} fields are wrong" if len(faults) > 1 else "one field is wrong"
    remedy = faults[0].remedy if len(faults) == 1 else "each of errors says what would be right for its field"
    return Problem("invalid-input", f"{count}: {fields}", remedy=remedy, faults=faults)


def to_problem(error: Exception, names: Mapping[str, str] | None = None) -> Problem | None:
    """The problem to answer for an error of Mainspring; None for an unexpected one."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, InvalidInput):
        fault = fault_of(error, names)
        if isinstance(error, PayloadTooLarge):
            return Problem("too-large", str(error), remedy=error.remedy, faults=[fault])
        return invalid([fault])
    if isinstance(error, StoreError):
        # Its message may name paths and hosts: those are for the log.
        return Problem("unavailable", "The store did not answer", remedy="try again soon", headers=retry_after(1))
    if isinstance(error, RecursionError):
        return Problem("malformed-body", "the body is nested too deep", remedy="send flatter data")
    kind = next((kind for family, kind in _KINDS if isinstance(error, family)), None)
    return None if kind is None else Problem(kind, str(error), firing=_firing_of(error))


def _firing_of(error: Exception) -> Mapping[str, object] | None:
    if not isinstance(error, RunGone):
        return None
    return {"job": error.job, "fire_at": error.fire_at, "outcome": error.outcome, "reason": error.reason}


_KINDS = ((NotFound, "not-found"), (Conflict, "conflict"), (MainspringError, "conflict"))


class Wrong(NamedTuple):
    """Faults found so far, and the caller's names of our fields."""

    faults: list[Fault]
    names: dict[str, str]

    def add(self, field: str, fault: str, remedy: str = "") -> None:
        """Add a fault."""
        self.faults.append(Fault(field, fault, remedy))

    def take(self, error: InvalidInput, prefix: str = "") -> None:
        """Count a fault."""
        fault = fault_of(error, self.names)
        self.faults.append(Fault(prefix + fault.field, fault.fault, fault.remedy))

    def settle(self) -> None:
        """Refuse the request if anything is wrong."""
        if self.faults:
            raise invalid(self.faults)


def nothing_wrong() -> Wrong:
    """No faults yet: the start of reading a request."""
    return Wrong([], {})
