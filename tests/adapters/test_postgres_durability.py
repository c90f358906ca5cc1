"""What was answered outlives the server, also one that writes nothing down before it must."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from mainspring.clock import SystemClock
from mainspring.conformance.store_samples import TTL, a_run, a_worker, success
from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.chaos.postgres import Postgres, find_programs
from missing import miss

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """Its log goes to the disk when somebody waits for that, or after ten seconds."""
    if find_programs() is None:
        miss("PostgreSQL is not installed: `make services` does", asked="MAINSPRING_TEST_POSTGRES" in os.environ)
    server = Postgres(settings={"wal_writer_delay": "10s"})
    try:
        server.make()
        yield server
    finally:
        server.close()


@pytest.fixture
async def store(server: Postgres) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(server.url, CLOCK)
    yield store
    await store.close()


def lose_power(server: Postgres) -> None:
    server.kill()
    server.start()


async def test_a_lone_submission_that_was_answered_is_there(server: Postgres, store: PostgresStore) -> None:
    run = a_run(CLOCK)
    await store.submit([run])
    lose_power(server)
    assert (await store.get_run("default", run.id)).state == "pending"


async def test_a_claim_that_was_given_stands_and_so_does_what_is_reported(
    server: Postgres, store: PostgresStore
) -> None:
    run = a_run(CLOCK, priority=1)
    await store.submit([run])
    [claim] = await store.claim(a_worker(), 1, TTL, "strict")
    lose_power(server)
    found = await store.get_run("default", run.id)
    assert (found.id, found.state, found.token) == (claim.run_id, "running", claim.token)
    assert await store.report([success(claim)]) == ["accepted"]
    lose_power(server)
    assert (await store.get_run("default", run.id)).state == "succeeded"
