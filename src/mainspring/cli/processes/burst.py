"""`mainspring worker --burst`: work until the queues are empty."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mainspring.core.answers import RunFilter
from mainspring.core.model import Worker
from mainspring.core.states import RUNNING
from mainspring.errors import StoreUnavailable
from mainspring.store import Store

LOOK_S = 0.2
LOOKS = 2
"""How many looks in a row must find nothing: between the queries of one look, a run may end and make another due."""


async def until_empty(store: Store, worker: Callable[[], Worker]) -> None:
    """Return when no run is due that this worker may take, and none runs in its queues and regions."""
    found_nothing = 0
    while found_nothing < LOOKS:
        await asyncio.sleep(LOOK_S)
        try:
            found_nothing = found_nothing + 1 if await _is_empty(store, worker()) else 0
        except StoreUnavailable:
            found_nothing = 0  # The loops of the worker report it, and go on when the store is back.


async def _is_empty(store: Store, worker: Worker) -> bool:
    """Runs under way count wherever they run: their end may make others due."""
    for queue in worker.queues:
        for region in worker.regions:
            where = RunFilter(worker.namespace, states=(RUNNING,), queue=queue, region=region, limit=1)
            if await store.list_runs(where):
                return False
    due_at = await store.next_due(worker)
    return due_at is None or due_at > store.now()
