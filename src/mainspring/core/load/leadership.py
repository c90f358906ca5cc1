"""How long a holder may trust the answer of a lease.

The store's clock decides when a lease or claim ends; the holder knows only when it asked. It may trust the answer
until the moment before it *sent* the request plus the time to live, less a margin for the two clocks running at
different speeds. Past that it must act as if it had lost: another node may already hold it.
"""

from __future__ import annotations

from zlib import crc32

from mainspring.core.instants import DAY, SECOND, Duration

MARGIN = 0.1
"""The share of the time to live that is not trusted."""


LEASE = "scheduler"
"""Its holder plans all jobs."""


def lease_names(shards: int) -> list[str]:
    """The leases of the leaders that share the jobs, one for each shard.

    The number of shards is part of the names: nodes with different settings elect separate leaders, and each of
    these groups plans all jobs. That costs some guarded updates in vain while the number is being changed; with the
    same names some jobs would have no planner.
    """
    return [LEASE] if shards == 1 else [f"{LEASE}:{number + 1}/{shards}" for number in range(shards)]


def shard_of(job_id: str, shards: int) -> int:
    """Which of the leaders plans a job."""
    return crc32(job_id.encode()) % shards


def trusted_until(sent_at: float, ttl: Duration) -> float:
    """The monotonic second until which an answer to a request sent at `sent_at` may be trusted."""
    return sent_at + ttl / SECOND * (1 - MARGIN)


NODES_KEPT = DAY
"""How long a node that no longer checks in stays in the list."""
TERMS_KEPT = 1_000
"""The length of the history of terms, for each name."""
OVERTAKEN = "its owner gave no sign before the next term began"
"""Why a term ended whose owner did not say."""
