"""What was answered outlives the server, also one that writes nothing down before it must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress

import asyncpg
import pytest
from listening import Listener

from mainspring.clock import SystemClock
from mainspring.conformance.store.samples import TTL, a_run, a_worker, success
from mainspring.core.model import NewRun
from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.servers.postgres import Postgres, find_programs

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """Its log goes to the disk when a commit waits for that, or after ten seconds."""
    if find_programs() is None:
        pytest.fail("PostgreSQL is not installed: `make services` does")
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


async def test_the_listener_hears_of_a_submission_that_can_be_claimed_before_it_is_safe_and_answered(
    server: Postgres, store: PostgresStore
) -> None:
    """Nothing counts as safe while a stand-by that does not exist has not confirmed it."""
    heard: asyncio.Queue[Sequence[NewRun]] = asyncio.Queue()
    store.on_accepted(Listener(heard.put_nowait))
    await store.submit([a_run(CLOCK)])
    await heard.get()
    run = a_run(CLOCK)
    admin = await asyncpg.connect(server.url)
    try:
        await confirmed_by(server, admin, "nobody")
        submitting = asyncio.ensure_future(store.submit([run]))
        assert await asyncio.wait_for(heard.get(), 20) == [run]
        assert not submitting.done()
        assert (await store.get_run("default", run.id)).state == "pending"
    finally:
        await confirmed_by(server, admin, "")
        await admin.close()
    assert await asyncio.wait_for(submitting, 20) == [run.id]
    assert heard.empty()


async def test_a_write_that_need_not_be_durable_waits_for_no_disk(server: Postgres) -> None:
    """The same server, on which nothing becomes safe."""
    hasty = await PostgresStore.open(server.url, CLOCK, durable=False)
    lone, *some = (a_run(CLOCK, priority=1) for _ in range(3))
    admin = await asyncpg.connect(server.url)
    try:
        await confirmed_by(server, admin, "nobody")
        async with asyncio.timeout(20):
            await hasty.submit([lone])
            await hasty.submit(some)
            claims = await hasty.claim(a_worker(), 3, TTL, "strict")
            assert {claim.run_id for claim in claims} == {run.id for run in (lone, *some)}
            assert await hasty.report([success(claim) for claim in claims]) == ["accepted"] * 3
    finally:
        await confirmed_by(server, admin, "")
        await admin.close()
        await hasty.close()


async def confirmed_by(server: Postgres, admin: asyncpg.Connection, stand_by: str) -> None:
    """The standby that has to confirm each commit; returns once commits wait for it, or no longer do."""
    await admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{stand_by}'")
    await admin.execute("SELECT pg_reload_conf()")
    async with asyncio.timeout(20):
        # A session reads the setting before the process that makes commits wait does.
        while await commits_wait(server, admin) != bool(stand_by):
            await asyncio.sleep(0.01)


async def commits_wait(server: Postgres, admin: asyncpg.Connection) -> bool:
    """Whether a commit waits for a standby. Then it is given up: the server keeps it, but a caller would not know."""
    other = await asyncpg.connect(server.url)
    try:
        committing = asyncio.ensure_future(other.execute("SELECT pg_logical_emit_message(true, 'a commit', '')"))
        waits = "SELECT wait_event = 'SyncRep' AND pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = $1"
        waited = False
        while not committing.done():
            waited = waited or bool(await admin.fetchval(waits, other.get_server_pid()))
            await asyncio.sleep(0.005)
        with suppress(asyncpg.QueryCanceledError):  # It no longer waited when it was to be given up.
            await committing
        return waited
    finally:
        await other.close()


async def test_a_lone_submission_that_the_listener_heard_of_and_that_was_answered_is_there(
    server: Postgres, store: PostgresStore
) -> None:
    run = a_run(CLOCK)
    store.on_accepted(Listener(lambda runs: None))
    await store.submit([run])
    lose_power(server)
    assert (await store.get_run("default", run.id)).state == "pending"
