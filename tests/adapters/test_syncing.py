"""A program may declare more jobs than fit into one transaction, or into its memory twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mainspring.core.answers import Saved
from mainspring.core.model import Job
from mainspring.core.planning.declaring import PAGE
from mainspring.core.schedules.triggers import manual
from mainspring.stores.rows.syncing import NAMES, add_up, sync_in_pages

COUNT = 3 * PAGE + 1


class Store:
    """Records how much each transaction is about."""

    def __init__(self, stored: Sequence[str]) -> None:
        self._stored = stored
        self.looked: list[int] = []
        self.written: list[int] = []
        self.read: list[int] = []

    async def look(self, page: Sequence[Job], declared: Collection[str]) -> Collection[str]:
        self.looked.append(len(page))
        return {job.name for job in page}

    async def write(self, page: Sequence[Job], so_far: Saved) -> Saved:
        self.written.append(len(page))
        return add_up(so_far, Saved(created=tuple(job.name for job in page)))

    async def of_code(self, after: str, limit: int) -> tuple[Sequence[str], str | None]:
        names = [name for name in self._stored if name > after][:limit]
        self.read.append(len(names))
        return names, names[-1] if names else None


async def test_no_transaction_is_about_more_than_a_page_of_jobs() -> None:
    jobs = {name: Job(name, name, "t", manual(), "default") for name in (f"j{n:05}" for n in range(COUNT))}
    store = Store(stored=[f"old{n:06}" for n in range(2 * NAMES + 1)])
    saved = await sync_in_pages(store, jobs)
    assert store.looked == store.written == [PAGE, PAGE, PAGE, 1]
    assert store.read == [NAMES, NAMES, 1, 0]
    assert (len(saved.created), len(saved.undeclared)) == (COUNT, 2 * NAMES + 1)
