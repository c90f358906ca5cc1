"""The PostgreSQL store under the conformance suite: directly, and through PgBouncer in transaction mode."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from postgres_server import PATIENT

from mainspring.conformance import StoreConformance
from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.clock import ManualClock


class TestPostgres(StoreConformance):
    """On a server, in the time of the test's clock."""

    @pytest.fixture
    def store(self, postgres: PostgresStore) -> PostgresStore:
        return postgres


class TestThroughPgBouncer(StoreConformance):
    """Where each transaction may meet another session."""

    @pytest.fixture
    async def store(self, pooled_url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
        store = await PostgresStore.open(pooled_url, clock, given_time=True, limits=PATIENT)
        yield store
        await store.close()
