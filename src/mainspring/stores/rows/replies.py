"""Stored responses to idempotency keys: what every store decides about them alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.core.answers import Reply, Reserved
from mainspring.core.instants import Instant
from mainspring.errors import Conflict


def reservation(row: Sequence[Any] | None, key: str, fingerprint: str, now: Instant) -> Reserved:
    """The response to a key, or that another caller computes it; otherwise the caller has to reserve the key. Conflict
    if the key was used with another fingerprint. `row` has fingerprint, since, held_until, status and body."""
    if row is None:
        return Reserved(now)
    seen, since, held_until, status, body = row
    if seen != fingerprint:
        raise Conflict(f"idempotency key {key!r} was used for another request: use a new key")
    if status is not None:
        return Reserved(since, Reply(status, body))
    return Reserved(since, busy=held_until > now)
