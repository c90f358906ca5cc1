"""A store in memory on a clock that stands still, unless a test wants another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from stage import JumpingClock

from mainspring.stores.sqlite.store import SqliteStore


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock()


@pytest.fixture
async def store(clock: JumpingClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(":memory:", clock, inline=True)
    yield store
    await store.close()
