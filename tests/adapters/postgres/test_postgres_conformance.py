"""The PostgreSQL store under the conformance suite: directly, and through PgBouncer in transaction mode."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.conformance import StoreConformance
from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.clock import ManualClock


class TestPostgres(StoreConformance):
    """On a server, in the time of the test's clock."""

    @pytest.fixture
    def store(self, postgres: PostgresStore) -> PostgresStore:
        return postgres


class TestThroughPgBouncer(StoreConformance):
    """Where each transaction may meet another session. Without what only takes many transactions, and long there."""

    test_a_long_chain_ends_with_its_head = None  # type: ignore[assignment]  # Not inherited.
    test_whatever_happens_a_gate_is_never_over_full_and_no_run_waits_for_ever = None  # type: ignore[assignment]  # Not inherited.
    test_whatever_happens_lines_keep_their_order_and_come_to_an_end = None  # type: ignore[assignment]  # Not inherited.

    @pytest.fixture
    async def store(self, pooled_url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
        store = await PostgresStore.open(pooled_url, clock, given_time=True)
        yield store
        await store.close()
