"""However many workers have nothing to do, few of them are woken: see `stores/postgres/offers`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Any, cast

import asyncpg
import pytest

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.model import Claim, NewRun, Worker
from mainspring.process.ids import IdSource
from mainspring.services.chores import relay
from mainspring.services.chores.chores import Chores
from mainspring.services.node import Node
from mainspring.settings import Settings
from mainspring.store import Outlook, StandingClaim, Store
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.postgres.submissions import idle_workers as offers
from mainspring.stores.postgres.submissions.idle_workers import MOST_STANDING
from mainspring.wiring import build_scheduler, build_worker, describe_worker

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
PATIENCE_S = 20.0
FLEET = 5


class Member:
    """A worker with nothing to do, in a process of its own, as the server sees it."""

    def __init__(self, store: PostgresStore, name: str) -> None:
        self.store, self.worker = store, Worker(id=name, tasks=("t",))
        self.claims: list[Claim] = []
        store.on_change(lambda: None, remote=False)

    def stand(self, limit: int = 10) -> None:
        self.store.leave_claim(StandingClaim(self.worker, limit, MINUTE, "strict", self._take))

    def _take(self, claims: Sequence[Claim], sent_at: float) -> None:
        self.claims += claims

    async def look(self) -> Outlook:
        """What its claimer does once a second."""
        outlook = await self.store.look(self.worker, idle=True)
        self.stand()
        await until(lambda: self.store._offers._saying is None)
        return outlook


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(int(PATIENCE_S * 200)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")


async def until_true(condition: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(int(PATIENCE_S * 20)):
        if await condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come about")


async def is_ready(member: Member) -> None:
    """It has offered; if others did before, it need not stand by any more."""
    await until(lambda: member.store._offers._offered_at > 0)
    await until(lambda: member.store._offers._saying is None)


@pytest.fixture
async def server(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def members(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Member]]:
    """Workers that have just been started: each stands by. No offer runs out meanwhile."""
    monkeypatch.setattr(offers, "GOOD", MINUTE)
    stores = [await PostgresStore.open(postgres_url, CLOCK) for _ in range(FLEET)]
    members = [Member(store, f"w{number}") for number, store in enumerate(stores)]
    for member in members:
        await member.store.register(member.worker)
        member.stand()
        await is_ready(member)
    yield members
    for store in stores:
        await store.close()


async def offering(server: asyncpg.Connection) -> list[str]:
    return [row[0] for row in await server.fetch("SELECT worker FROM mainspring.offers ORDER BY worker")]


async def listening(server: asyncpg.Connection) -> int:
    return int(
        await server.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'mainspring listener'"
        )
    )


async def test_of_many_idle_workers_few_stand_by_and_only_they_listen(
    members: list[Member], server: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "ADDRESS_KEPT_S", 0.1)
    outlooks = [await member.look() for member in members]
    first = [f"w{number}" for number in range(MOST_STANDING)]
    assert [outlook.goes_first for outlook in outlooks] == [member.worker.id in first for member in members]

    async def settled() -> bool:
        return await listening(server) == MOST_STANDING

    for member in members:
        await member.look()
    assert await offering(server) == first
    await until_true(settled)


async def test_a_worker_that_has_no_room_is_replaced_at_the_next_look_of_another(
    members: list[Member], server: asyncpg.Connection
) -> None:
    for member in members:
        await member.look()
    members[0].stand(limit=0)
    await until(lambda: members[0].store._offers._out is None)
    await until(lambda: members[0].store._offers._saying is None)
    assert (await members[-1].look()).goes_first

    async def replaced() -> bool:
        return await offering(server) == ["w1", "w4"]

    await until_true(replaced)
    run = NewRun(id=IDS.new(), task="t", due_at=0, created_at=CLOCK.now())
    await members[2].store.submit([run])
    await until(lambda: members[1].claims or members[4].claims)


async def test_a_worker_of_other_tasks_is_not_kept_from_standing_by(members: list[Member], postgres_url: str) -> None:
    for member in members:
        await member.look()
    other = Member(members[-1].store, "x")
    other.worker = Worker(id="x", tasks=("t", "u"))
    assert (await other.look()).goes_first


async def test_a_look_says_what_will_be_due_and_is_a_heartbeat(
    members: list[Member], server: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "HEARTBEAT", 0)
    member = members[0]
    query = "SELECT heartbeat_at FROM mainspring.workers WHERE id = 'w0'"
    before = await server.fetchval(query)
    assert (await member.look()).due_at is None
    due_at = CLOCK.now() + HOUR
    await member.store.submit([NewRun(id=IDS.new(), task="t", due_at=due_at, created_at=CLOCK.now())])
    outlook = await member.look()
    assert (outlook.due_at, outlook.alive) == (due_at, True)
    assert await server.fetchval(query) > before


async def test_what_comes_due_later_is_known_from_a_claim_that_found_nothing(
    members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    member, due_at = members[0], CLOCK.now() + HOUR
    await member.store.submit([NewRun(id=IDS.new(), task="t", due_at=due_at, created_at=CLOCK.now())])
    assert await member.store.claim(member.worker, 10, MINUTE, "strict") == []
    monkeypatch.setattr(member.store._offers, "look", None)  # A further read would fail.
    assert (await member.store.look(member.worker, fresh=False)).due_at == due_at


@pytest.fixture
async def counted(new_database: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to a database of which the server counts every statement, but for those of this connection."""
    connection = await asyncpg.connect(new_database)
    await connection.execute("CREATE EXTENSION pg_stat_statements")
    await connection.execute(f"ALTER DATABASE {new_database.rpartition('/')[2]} SET pg_stat_statements.track = 'top'")
    yield connection
    await connection.close()


async def statements(counted: asyncpg.Connection) -> int:
    return int(
        await counted.fetchval(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid"
            " WHERE d.datname = current_database()"
        )
    )


class Fleet:
    """Workers, each with a store of its own, as in processes of their own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.app = Mainspring(url)
        self.ran = 0
        self.nodes: list[Node] = []
        self.stores: list[Store] = []

        @self.app.task
        async def t() -> None:
            self.ran += 1

        self.t = t

    async def start(self, count: int) -> None:
        for number in range(count):
            store: Store = cast(Store, await PostgresStore.open(self.url, CLOCK))
            row = describe_worker(self.app, self.app.settings, f"w{number}")
            loop = asyncio.get_running_loop()
            worker = build_worker(self.app, store, row, loop, self.app.settings, Random(number))
            self.nodes.append(Node(store, None, worker))
            self.stores.append(store)
            await self.nodes[-1].start()

    def has_run(self, count: int) -> bool:
        return self.ran == count

    def standing(self) -> int:
        return sum(node.worker.claimer._goes_first for node in self.nodes if node.worker is not None)

    async def stop(self) -> None:
        for node, store in zip(self.nodes, self.stores, strict=True):
            await node.stop(0.0)
            await store.close()
        await self.app.close()


@pytest.fixture
async def a_fleet(new_database: str, counted: asyncpg.Connection) -> AsyncIterator[Fleet]:
    fleet = Fleet(new_database)
    yield fleet
    await fleet.stop()


async def test_an_idle_worker_asks_one_thing_a_second(a_fleet: Fleet, counted: asyncpg.Connection) -> None:
    await a_fleet.start(3)
    await until(lambda: a_fleet.standing() == min(MOST_STANDING, len(a_fleet.nodes)))

    async def settled() -> bool:
        return await listening(counted) == MOST_STANDING

    await until_true(settled)
    before, began = await statements(counted), CLOCK.monotonic()
    await asyncio.sleep(3)
    asked, seconds = await statements(counted) - before, CLOCK.monotonic() - began
    # One for each worker and second; one more for each that has just begun; and the server's time, now and then.
    assert asked <= 3 * (seconds + 1) + seconds


async def test_what_is_submitted_wakes_few_however_many_could_take_it(
    a_fleet: Fleet, counted: asyncpg.Connection
) -> None:
    workers, few, times = 12, 2, 30
    await a_fleet.start(workers)
    await until(lambda: a_fleet.standing() == few)
    before, began = await statements(counted), CLOCK.monotonic()
    for number in range(1, times + 1):
        await a_fleet.t.submit_many([{}, {}])
        await until(partial(a_fleet.has_run, 2 * number))
    asked, seconds = await statements(counted) - before, CLOCK.monotonic() - began
    # Submitting (in a transaction) and telling, a claim of each that stands by, one that finds no more, a report for
    # each of the two; and the looks of the others. If all were woken, it would be a claim of each.
    assert asked <= times * 18 + workers * (seconds + 2)


async def test_workers_that_are_woken_all_the_time_leave_the_work_to_few(
    a_fleet: Fleet, counted: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that has just started stands by. If it left only when nothing had woken it for a second, all workers of
    a fleet that starts under load would be woken for ever, and claim what one of them takes."""
    monkeypatch.setattr(offers, "DUTY_S", 0.5)
    monkeypatch.setattr(offers, "ADDRESS_KEPT_S", 0.1)
    ending = asyncio.Event()

    async def submit() -> int:
        count = 0
        while not ending.is_set():
            await a_fleet.t.submit_many([{}, {}])  # More than one is announced, and not handed over.
            await asyncio.sleep(0.02)
            count += 2
        return count

    submitting = asyncio.create_task(submit())
    await a_fleet.start(FLEET)
    stores = cast(list[PostgresStore], a_fleet.stores)

    def stood() -> int:
        return sum(store._offers._offered_at > 0 for store in stores)

    try:
        async with asyncio.timeout(60):
            # More have stood by than should: one that began late may never have been among them.
            while not (stood() > MOST_STANDING and await listening(counted) == MOST_STANDING):
                await asyncio.sleep(0.1)
    finally:
        ending.set()
        count = await submitting
    await until(lambda: a_fleet.has_run(count))


async def test_an_idle_scheduler_asks_little_beside_renewing_its_lease(
    new_database: str, counted: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By counts alone: the renewals are the clock, so a busy machine slows both."""
    monkeypatch.setattr(relay, "QUIET_AFTER_S", 0.0)

    async def calls(part: str) -> int:
        query = (
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid"
            " WHERE d.datname = current_database() AND strpos(s.query, $1) > 0"
        )
        return int(await counted.fetchval(query, part))

    async def renewed(times: int) -> bool:
        return await calls(renewal) >= times

    async def uncounted() -> bool:
        """This connection is not counted."""
        return await statements(counted) == await statements(counted)

    async def cleaned() -> bool:
        return await calls("used = $2 AND (name LIKE") > 0 and await calls(renewal) > 0

    renewal, settings = "UPDATE mainspring.leases SET expires_at", Settings()
    store = cast(Store, await PostgresStore.open(new_database, CLOCK))
    scheduler = build_scheduler(store, "s", settings, CLOCK, Random(0))
    node = Node(store, scheduler, None, Chores(store, "s", settings, CLOCK, Random(0), leads=scheduler.leads))
    await node.start()
    try:
        await until_true(cleaned)  # What is done once, at the start, and then every minute.
        await until_true(uncounted)
        for _ in range(3):  # A busy machine may hold up the renewals alone.
            renewals, before = await calls(renewal), await statements(counted)
            await until_true(partial(renewed, renewals + 15))
            asked, renewals = await statements(counted) - before, await calls(renewal) - renewals
            if asked - renewals <= 1.1 * renewals:
                return
    finally:
        await node.stop(0.0)
        await store.close()
    raise AssertionError(f"{asked - renewals} other statements beside {renewals} renewals")
