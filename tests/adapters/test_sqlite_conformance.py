"""The SQLite store under the store port's conformance suite, on its own threads and inline."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.conformance import StoreConformance
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class TestThreaded(StoreConformance):
    """As a program uses it."""

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(str(tmp_path / "mainspring.db"), clock, durable=False)
        yield store
        await store.close()


class TestInline(StoreConformance):
    """As the simulator uses it."""

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(str(tmp_path / "mainspring.db"), clock, durable=False, inline=True)
        yield store
        await store.close()


def test_no_guarantee_of_one_part_hides_one_of_another() -> None:
    names = Counter(name for part in StoreConformance.__mro__ for name in vars(part) if name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []
