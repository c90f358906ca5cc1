"""What both stores report of terms."""

from __future__ import annotations

from mainspring.core.instants import Instant
from mainspring.core.model import Event, Term


def resigned(term: Term, reason: str, now: Instant) -> Event:
    """The event of a term that its owner has ended."""
    return Event("leader.resigned", now, worker=term.owner, count=term.number, reason=f"{term.name}: {reason}")
