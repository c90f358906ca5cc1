"""New zone data: fire times that are not yet due are computed anew, once."""

from mainspring.core.instants import HOUR
from mainspring.core.model import Job
from mainspring.core.schedules.triggers import cron
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock


async def open_with_job(clock: ManualClock) -> SqliteStore:
    store = SqliteStore(":memory:", clock, inline=True)
    assert await store.adopt_zones("2026a") == 0
    job = Job(id="1", name="report", task="t", trigger=cron("0 9 * * *", tz="Europe/Berlin"), created_at=clock.now())
    await store.create_job(job)
    return store


async def next_fire_at(store: SqliteStore) -> int | None:
    return (await store.get_job("default", "report")).next_fire_at


async def test_other_zone_data_moves_what_is_not_yet_due() -> None:
    clock = ManualClock("2026-01-01T00:00:00Z")
    store = await open_with_job(clock)
    right = clock.now() + 8 * HOUR
    assert await next_fire_at(store) == right

    def as_if_computed_with_other_data(tx: Transaction) -> None:
        tx.execute("UPDATE jobs SET next_fire_at = next_fire_at + ?", (HOUR,))

    await store._db.write(as_if_computed_with_other_data)
    assert await store.adopt_zones("2026a") == 0
    assert await next_fire_at(store) != right
    assert await store.adopt_zones("2026b") == 1
    assert await next_fire_at(store) == right
    assert await store.adopt_zones("2026b") == 0
    await store.close()


async def test_what_is_overdue_stays_due() -> None:
    clock = ManualClock("2026-01-01T00:00:00Z")
    store = await open_with_job(clock)
    due = await next_fire_at(store)
    clock.advance("20h")
    assert await store.adopt_zones("2026b") == 1
    assert await next_fire_at(store) == due
    await store.close()
