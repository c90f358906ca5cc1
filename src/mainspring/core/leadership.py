"""How long a holder may trust what a lease told it.

The store's clock decides when a lease or claim ends; the holder knows only when it asked. It may trust the answer
until the moment before it *sent* the request plus the time to live, less a margin for the two clocks running at
different speeds. Past that it must act as if it had lost: somebody else may already have it.
"""

from __future__ import annotations

from mainspring.core.instants import SECOND, Duration

MARGIN = 0.1
"""The share of the time to live that is not trusted."""


def trusted_until(sent_at: float, ttl: Duration) -> float:
    """The monotonic second until which an answer to a request sent at `sent_at` may be trusted."""
    return sent_at + ttl / SECOND * (1 - MARGIN)
