"""A sync in pages: jobs that code declares are compared by reading, and only those that differ are written.

Everything that can be refused is refused before the first page is written. A sync that changes at most a page is one
transaction; a longer one that is cut off is completed by the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

import msgspec

from mainspring.core.answers import Saved
from mainspring.core.model import Job
from mainspring.core.planning.declaring import PAGE, pages_of

NAMES = 10_000
"""How many names are compared at once to find jobs that are no longer declared."""


class SyncingStore(Protocol):
    """The store's part of a sync. Each method is a transaction."""

    async def look(self, page: Sequence[Job], declared: Collection[str]) -> Collection[str]:
        """The names of those that have to be written. Conflict or InvalidInput for one that cannot be."""

    async def write(self, page: Sequence[Job], so_far: Saved) -> Saved:
        """Store these; what was done, added to `so_far`."""

    async def of_code(self, after: str, limit: int) -> tuple[Sequence[str], str | None]:
        """Which of the next names after one are of jobs that the same code declared; and the last of the names that
        were looked at, None if there were no more."""


async def sync_in_pages(store: SyncingStore, declared: dict[str, Job]) -> Saved:
    """See `store.JobStore.sync_jobs`."""
    jobs = list(declared.values())
    changed: set[str] = set()
    for start in range(0, len(jobs), PAGE):
        changed.update(await store.look(jobs[start : start + PAGE], declared.keys()))
    unchanged = tuple(name for name in declared if name not in changed)
    undeclared = await _collect(lambda after: store.of_code(after, NAMES), declared)
    saved = Saved(unchanged=unchanged, undeclared=undeclared)
    # At least once: a sync leaves its trail, whether or not anything had to be written.
    for page in [*pages_of([job for job in jobs if job.name in changed])] or [()]:
        saved = await store.write(page, saved)
    return saved


async def _collect(
    find: Callable[[str], Awaitable[tuple[Sequence[str], str | None]]], declared: Collection[str]
) -> tuple[str, ...]:
    found: list[str] = []
    last: str | None = ""
    while last is not None:
        names, last = await find(last)
        found += [name for name in names if name not in declared]
    return tuple(found)


def add_up(so_far: Saved, page: Saved) -> Saved:
    """What was done so far, and for one page more."""
    both = {name: getattr(so_far, name) + getattr(page, name) for name in Saved.__struct_fields__}
    return msgspec.convert(both, Saved)
