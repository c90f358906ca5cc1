"""The status cache port: a copy of the statuses of runs and workers, so that readers need not ask the store.

The cache is never the truth. The leader puts into it what events say, in order, and then moves the mark: all events
before the mark are in the cache. A reader that misses a status asks the store and puts the answer into the cache, at
the mark that it saw before. Positions decide between two versions of a status, so an older one never replaces a newer
one, however slow its writer is.

A cache that was emptied, or whose mark was not moved for a while, begins a new epoch. Entries of an earlier epoch no
longer count, since events in between may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mainspring.core.runs.status import Posting, Status


class Mark(NamedTuple):
    """All events before a position are in the cache, since this epoch began."""

    epoch: str
    position: int
    late: bool = False
    """Whether the cache is far behind, so that readers ask the store."""


class StatusCache(Protocol):
    """All methods may be repeated, and raise CacheUnavailable if the cache cannot do it."""

    async def read(self, subject: str) -> tuple[Mark | None, Status | None]:
        """The mark, and the status of a subject in its epoch. The mark is None if it was not moved lately."""

    async def write(self, epoch: str, postings: Sequence[Posting]) -> None:
        """Store each posting unless the cache has a newer one of its epoch."""

    async def advance(self, before: Mark | None, after: Mark) -> Mark | None:
        """Move the mark if it is `before` (None: if there is none). The answer is the mark that is there now."""

    async def close(self) -> None:
        """Close all connections."""
