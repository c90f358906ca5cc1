"""Protection under load: the breaker around the store, and what is given up under pressure."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from door import open_door, problem, until

from mainspring.api.load import guard as guarding
from mainspring.api.load.guard import Burden, Guard, measure
from mainspring.api.load.guarded_store import GuardedStore
from mainspring.api.problems import Problem
from mainspring.conformance.store.samples import a_run, options, seen, states, submit
from mainspring.core.instants import DAY, SECOND
from mainspring.core.load import degradation
from mainspring.core.load.degradation import REFUSING, SLOW_HISTORY, Level, Load
from mainspring.core.model import EventBatch, NewRun, Run, Worker
from mainspring.errors import NotFound, StoreUnavailable
from mainspring.services.store_layers import StoreLayer
from mainspring.settings import Settings
from mainspring.store import Audit, Backlog, Store, Strain
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock

RUN = {"task": "elsewhere"}


class Switched(StoreLayer):
    """One of two stores."""

    def __init__(self, *stores: Store) -> None:
        super().__init__(stores[0])
        self.stores = stores
        self.which = 0
        self.calls = 0
        self.get_run = self._get_run

    async def _get_run(self, namespace: str, run_id: str) -> Run:
        self.calls += 1
        return await self.stores[self.which].get_run(namespace, run_id)


async def test_a_store_that_cannot_be_reached_is_not_called_until_it_may_have_come_back(tmp_path: Path) -> None:
    clock = ManualClock()
    gone, well = (SqliteStore(str(tmp_path / name), clock) for name in ("gone.db", "well.db"))
    await gone.close()
    switched = Switched(gone, well)
    guard = Guard(Settings(), clock)
    store = GuardedStore(switched, guard)
    for _ in range(15):
        with pytest.raises(StoreUnavailable):
            await store.get_run("default", "x")
    assert (switched.calls, guard.breaker.state) == (10, "open")
    switched.which = 1
    clock.advance(SECOND)
    for _ in range(3):  # That a run is not known is a good answer, as far as the store is concerned.
        with pytest.raises(NotFound):
            await store.get_run("default", "x")
    assert guard.breaker.state == "closed"
    await well.close()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels change as soon as they may."""
    monkeypatch.setattr(guarding, "LOOK_S", 0.02)
    monkeypatch.setattr(degradation, "ENTER_AFTER", 0)
    monkeypatch.setattr(degradation, "LEAVE_AFTER", 0)


def level_of(client: httpx.Client) -> str:
    return str(client.get("/health/ready").json()["degradation"])


def test_under_pressure_the_least_important_goes_first_and_new_work_last(tmp_path: Path, hasty: None) -> None:
    with open_door(tmp_path, most_waiting=4) as door:
        client = door.client("admin")
        runs = [client.post("/v1/runs", json=RUN).json()["run_id"] for _ in range(5)]
        until(lambda: level_of(client) == "shedding")
        low = client.post("/v1/runs", json={**RUN, "priority": 8}).json()["run_id"]
        shed = until(lambda: (run := client.get(f"/v1/runs/{low}").json())["state"] == "skipped" and run)
        assert shed["reason"] == "shed: 5 runs wait"
        assert client.get("/v1/overview").json()["given_up"] == "runs of priorities 8 to 10 are skipped"
        assert client.get(f"/v1/runs/{runs[0]}").json()["state"] == "pending"
        runs += client.post("/v1/runs:batch", json={"runs": [RUN] * 10}).json()["run_ids"]
        until(lambda: level_of(client) == "refusing")
        refused = client.post("/v1/runs", json=RUN)
        problem(refused, 503, "overloaded")
        assert refused.headers["retry-after"] == "10"
        for body in ({"name": "j", "manual": True, "task": "x"},):
            problem(client.post("/v1/jobs", json=body), 503, "overloaded")
        text = client.get("/metrics").text
        assert "mainspring_degradation_level 4.0" in text
        assert "mainspring_runs_shed_total 1.0" in text
        for run_id in runs:
            assert client.post(f"/v1/runs/{run_id}/cancel").status_code == 200
        until(lambda: level_of(client) == "normal")
        assert client.post("/v1/runs", json=RUN).status_code == 201


def test_what_only_looks_or_relieves_the_pressure_is_never_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "LOOK_S", 1_000.0)
    with open_door(tmp_path) as door:
        client = door.client("admin")
        made = client.post("/v1/jobs", json={"name": "j", "schedule": "0 * * * *", "task": "elsewhere"})
        run_id = client.post("/v1/runs", json=RUN).json()["run_id"]
        door.server.context.guard.tenants["default"] = Burden(Load(), Level(REFUSING))

        def status(path: str, **body: object) -> int:
            return client.post(path, json=body).status_code

        past = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-01T03:00:00Z"}
        backfill = f"/v1/jobs/{made.json()['job_id']}/backfill"
        for dry_run in (True, False):
            least = 200 if dry_run else 503
            assert status("/v1/runs:act", action="retry", job="j", dry_run=dry_run) == least
            assert status("/v1/jobs:act", action="trigger", jobs=["j"], dry_run=dry_run) == least
            assert status(backfill, **past, dry_run=dry_run) == least
            assert status("/v1/dead-letters:rerun", job="j", dry_run=dry_run) == least
        assert status("/v1/runs:act", action="retry", job="j") == 503
        assert status("/v1/jobs:act", action="pause", jobs=["j"]) == 200
        assert status("/v1/jobs:act", action="resume", jobs=["j"]) == 200
        assert client.post("/v1/runs:act", json={"action": "cancel", "run_ids": [run_id]}).json()["done"] == 1


async def test_each_level_is_entered_in_order_does_its_part_and_is_left_with_hysteresis(tmp_path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(str(tmp_path / "levels.db"), clock)
    guard = Guard(Settings(most_waiting=10), clock)
    waiting: list[NewRun] = []

    async def wait(count: int) -> None:
        """This many runs wait."""
        fresh = [a_run(clock) for _ in range(count - len(waiting))]
        await submit(store, *fresh)
        for run in waiting[count:]:
            await store.request_cancel("default", run.id, "")
        waiting[count:] = fresh

    async def after(seconds: int) -> str:
        """The level after this time."""
        for _ in range(seconds):
            clock.advance(SECOND)
            await guard.look(store)
        return guard.level.name

    first = a_run(clock, due_at=clock.now() + DAY)
    hasty = a_run(clock, after=(first.id,), options=options(under_pressure="run"))
    low = a_run(clock, priority=9)
    await submit(store, first, hasty, low)
    assert await after(60) == "normal"
    await wait(10)
    assert [await after(3), await after(1)] == ["normal", "shedding"], "three seconds of it are not yet a reason"
    assert (await seen(store, low)).reason == "shed: 10 runs wait"
    assert await after(60) == "shedding"
    await wait(15)
    assert [await after(3), await after(1), await after(60)] == ["shedding", "slow-history", "slow-history"]
    await wait(20)
    assert (await states(store, hasty), await after(4)) == (["blocked"], "no-waiting")
    assert await states(store, hasty) == ["pending"], "it does not wait for what is due tomorrow"
    guard.check_room("default", grows=True)
    await wait(29)
    assert await after(4) == "refusing", "with the one that did not wait, thirty are waiting"
    with pytest.raises(Problem, match="30 runs wait"):
        guard.check_room("default", grows=True)
    guard.check_room("default", grows=False)
    guard.check_room("other", grows=True)
    # Each is left below 70 % of where it was entered, fifteen seconds later.
    for left, level, name in ((21, "refusing", "no-waiting"), (14, "no-waiting", "slow-history"),
                              (11, "slow-history", "shedding"), (7, "shedding", "normal")):  # fmt: skip
        await wait(left - 1)
        assert await after(60) == level
        await wait(left - 2)
        assert [await after(15), await after(1)] == [level, name]
    kept = a_run(clock, priority=9)
    await submit(store, kept)
    assert (await after(60), await states(store, kept)) == ("normal", ["pending"])
    await store.close()


def test_under_pressure_history_is_served_to_few_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "LOOK_S", 1_000.0)
    with open_door(tmp_path) as door, ThreadPoolExecutor(6) as pool:
        clients = [door.client("viewer") for _ in range(6)]
        door.server.context.guard.tenants["default"] = Burden(Load(), Level(SLOW_HISTORY))
        answers = list(pool.map(lambda client: client.get("/v1/runs"), clients))
        assert sorted({answer.status_code for answer in answers}) == [200, 503]
        assert sum(answer.status_code == 200 for answer in answers) == guarding.HISTORY_AT_ONCE
        assert clients[0].get("/v1/jobs").status_code == 200
        door.server.context.guard.tenants.clear()
        assert all(answer.status_code == 200 for answer in pool.map(lambda client: client.get("/v1/runs"), clients))


def test_the_overview_of_a_namespace_has_its_own_pressure_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "LOOK_S", 1_000.0)
    with open_door(tmp_path) as door:
        client, tenants = door.client("viewer"), door.server.context.guard.tenants
        tenants["other"] = Burden(Load(), Level(SLOW_HISTORY))
        seen = client.get("/v1/overview").json()
        assert (seen["degradation"], seen["given_up"]) == ("normal", "")
        tenants["default"] = Burden(Load(), Level(SLOW_HISTORY))
        seen = client.get("/v1/overview").json()
        assert (seen["degradation"], seen["given_up"]) == ("slow-history", Level(SLOW_HISTORY).given_up)


def test_what_counts_as_pressure() -> None:
    def row(count: int = 7, priority: int = 5, queue: str = "default") -> Backlog:
        return Backlog("default", queue, "default", priority, count, 100)

    busy = Worker(id="w", concurrency=2, running=2)
    idle = Worker(id="v", concurrency=2, running=1)
    assert measure([row(), row(priority=9)], [busy], 150) == Load(0, 7, 50)
    assert measure([row()], [busy, idle], 150) == Load(0, 7, 0), "a worker has a hand free: it is not for want of them"
    assert measure([row(queue="nobody")], [busy], 150) == Load(0, 7, 0), "no worker serves it"


class Strained:
    """A store whose connections are waited for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.waited = Strain()

    def strain(self) -> Strain:
        return self.waited

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


async def test_the_tenant_that_causes_the_pressure_bears_it_alone(tmp_path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(str(tmp_path / "tenants.db"), clock)
    guard = Guard(Settings(most_waiting=10), clock)
    mine, theirs = a_run(clock, priority=9, namespace="loud"), a_run(clock, priority=9, namespace="quiet")
    await submit(store, mine, theirs, *(a_run(clock, namespace="loud") for _ in range(30)))
    for _ in range(30):
        clock.advance(SECOND)
        await guard.look(store)
    assert guard.level.name == "refusing"
    with pytest.raises(Problem, match="30 runs wait"):
        guard.check_room("loud", grows=True)
    guard.check_room("quiet", grows=True)
    assert (await store.get_run("loud", mine.id)).reason == "shed: 30 runs wait"
    assert (await store.get_run("quiet", theirs.id)).state == "pending"
    assert guard.count_levels() == {"shedding": 0, "slow-history": 0, "no-waiting": 0, "refusing": 1}
    await store.close()


async def test_what_all_wait_for_is_everybodys_and_the_longest_queue_gives_up_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarding, "SHED_AT_ONCE", 3)
    clock = ManualClock()
    inner = SqliteStore(str(tmp_path / "shared.db"), clock)
    store = Strained(cast(Store, inner))
    guard = Guard(Settings(most_pool_wait=SECOND), clock)
    loud = [a_run(clock, priority=9, namespace="loud") for _ in range(3)]
    quiet = a_run(clock, priority=9, namespace="quiet")
    await submit(inner, quiet, *loud)
    for number in range(1, 6):
        clock.advance(SECOND)
        store.waited = Strain(waits=10 * number, waited_s=15.0 * number)
        await guard.look(cast(Store, store))
    assert guard.shared.level.name in ("shedding", "slow-history")
    assert [(await inner.get_run("loud", run.id)).state for run in loud] == ["skipped"] * 3
    assert (await inner.get_run("quiet", quiet.id)).state == "skipped", "it comes next"
    shed = [event for batch in await _events(inner) for event in batch.events if event.kind == "run.skipped"]
    assert [event.namespace for event in shed] == ["loud"] * 3 + ["quiet"]
    await inner.close()


async def _events(store: SqliteStore) -> list[EventBatch]:
    while await store.number_events(100):
        pass
    return await store.events_since(0, 100)


class LockedEdges:
    """A store in which what runs wait for cannot be checked: another transaction holds a lock on it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.locked = True
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def submit(self, runs: list[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        if any(run.after for run in runs):
            self.asked += 1
            if self.locked:
                raise StoreUnavailable("not done within 5 s, so given up")
        return await self._store.submit(runs, audit=audit)


class TestDependencies:
    """The breaker around checks of what runs wait for: runs that allow it are accepted without, others are refused."""

    async def test_checks_that_fail_are_skipped_for_runs_that_allow_it(self, tmp_path: Path) -> None:
        clock = ManualClock()
        inner = SqliteStore(str(tmp_path / "store.db"), clock)
        locked, guard = LockedEdges(cast(Store, inner)), Guard(Settings(breaker_least=4), clock)
        store = GuardedStore(cast(Store, locked), guard)
        (first,) = await submit(store, a_run(clock))
        hasty = options(under_pressure="run")
        for _ in range(4):
            with pytest.raises(StoreUnavailable, match="not done"):
                await submit(store, a_run(clock, after=(first,), options=hasty))
        assert (guard.dependencies.state, guard.breaker.state) == ("open", "closed"), "others are not refused for it"
        await submit(store, a_run(clock))
        (skipped,) = await submit(store, a_run(clock, after=(first,), options=hasty))
        assert (await store.get_run("default", skipped)).state == "pending", "it does not wait"
        with pytest.raises(StoreUnavailable, match="under_pressure"):
            await submit(store, a_run(clock, after=(first,)))
        assert locked.asked == 4, "no more checks were tried meanwhile"
        await inner.number_events(100)
        reported = [event for batch in await inner.events_since(0, 100) for event in batch.events]
        (event,) = [event for event in reported if event.kind == "run.hurried"]
        assert (event.run_id, event.reason) == (skipped, degradation.hurried_why("dependency checks fail"))
        await inner.close()

    async def test_it_closes_when_checks_go_well_again(self, tmp_path: Path) -> None:
        clock = ManualClock()
        inner = SqliteStore(str(tmp_path / "store.db"), clock)
        locked, guard = LockedEdges(cast(Store, inner)), Guard(Settings(breaker_least=2), clock)
        store = GuardedStore(cast(Store, locked), guard)
        (first,) = await submit(store, a_run(clock))
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await submit(store, a_run(clock, after=(first,)))
        locked.locked = False
        clock.advance(2 * SECOND)
        for _ in range(3):
            await submit(store, a_run(clock, after=(first,)))
        assert guard.dependencies.state == "closed"
        await inner.close()
