"""etcd, ZooKeeper and the Kubernetes Lease below the SDK: locks of users, firings that nodes contend for, shards."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from typing import Unpack

import pytest

from electors import KINDS, Elector, started
from mainspring import Mainspring, every
from mainspring.cli.main import run
from mainspring.core.instants import SECOND
from mainspring.errors import LockLost, LockRefused
from mainspring.sdk.setting_words import SettingWords

BOUND_S = 60
LONG = "10m"
"""The first renewal of a lock of this time to live is due long after `BOUND_S`, on every elector."""


@pytest.fixture(scope="module", params=KINDS)
def elector(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elector]:
    with started(request.param, tmp_path_factory.mktemp(request.param)) as elector:
        yield elector


@pytest.fixture
def space() -> str:
    return f"test-{os.urandom(4).hex()}"


@asynccontextmanager
async def two_apps(folder: Path, url: str) -> AsyncIterator[tuple[Mainspring, Mainspring]]:
    apps = (make_app(folder, lease=url), make_app(folder, lease=url))
    try:
        yield apps
    finally:
        for app in apps:
            await app.close()


def make_app(folder: Path, **settings: Unpack[SettingWords]) -> Mainspring:
    app = Mainspring(f"sqlite:///{folder / 'x.db'}", name="elected", **settings)

    @app.job(every("200ms"), misfire="all", grace="60s")
    async def tick() -> None: ...

    return app


def ask(folder: Path, query: str) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(folder / "x.db", timeout=20)) as connection:
        return connection.execute(query).fetchall()


def firings(folder: Path) -> list[int]:
    return [int(instant) for instant, _ in ask(folder, "SELECT fire_at, '' FROM firings ORDER BY fire_at")]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_lock_has_one_holder_and_is_kept_beyond_its_time_to_live(
    elector: Elector, space: str, tmp_path: Path
) -> None:
    async with two_apps(tmp_path, elector.url(space)) as (one, other):
        metrics = (await one.open()).metrics
        await other.open()  # Now: a loaded machine takes longer for this than the lock lives.
        async with one.lock("payroll", ttl="2s") as lock:
            first = lock.token
            await until(lambda: metrics.counts["leases", "renewed"] >= 4)
            with pytest.raises(LockRefused, match="held by another"):
                await other.lock("payroll", wait=0).acquire()
            lock.check()
        async with other.lock("payroll", wait=BOUND_S) as lock:
            assert lock.token > first


async def test_a_lock_is_lost_as_soon_as_the_elector_reports_it(elector: Elector, space: str, tmp_path: Path) -> None:
    """Not only at the next renewal, which is minutes away."""
    app = make_app(tmp_path, lease=elector.url(space))
    metrics, lock = (await app.open()).metrics, app.lock("payroll", ttl=LONG)

    async def work() -> None:
        async with lock:
            elector.rob(space, lock.lease_name)
            await asyncio.wait_for(asyncio.Event().wait(), BOUND_S)

    with pytest.raises(LockLost):
        await work()
    assert lock.lost.is_set()
    assert metrics.counts["locks", "lost"] == 1
    assert metrics.counts["leases", "renewed"] == 0
    await app.close()


async def test_nodes_contend_for_each_firing(elector: Elector, space: str, tmp_path: Path) -> None:
    """While another holds the lease of a job, no node fires it; afterwards every instant is there, once."""
    apps = [make_app(tmp_path, lease=elector.url(space), coordination="lock") for _ in range(2)]

    async with apps[0].running(), apps[1].running():
        lease, counts = await apps[0].lock("any").lease(), [(await app.open()).metrics.counts for app in apps]

        async def refuse_each_node() -> None:
            refused = [count["leases", "refused"] for count in counts]
            await until(
                lambda: all(count["leases", "refused"] > old for count, old in zip(counts, refused, strict=True))
            )

        await until(lambda: len(firings(tmp_path)) >= 3)
        async with asyncio.timeout(BOUND_S):
            while True:
                while (hold := await lease.acquire("firing:default:tick", "another", 300 * SECOND)) is None:
                    await asyncio.sleep(0.005)
                await refuse_each_node()  # What a node began to fire before is committed when it asks again.
                fired = firings(tmp_path)
                await refuse_each_node()
                await refuse_each_node()
                fired_meanwhile = firings(tmp_path)
                if await lease.renew(hold) is not None:  # On a busy machine a session ends, and its lease with it.
                    break
        assert fired_meanwhile == fired
        await lease.release(hold)
        await until(lambda: len(firings(tmp_path)) > len(fired) + 3)
    assert {later - earlier for earlier, later in pairwise(firings(tmp_path))} == {200_000}


async def test_two_nodes_lead_a_shard_each_and_one_takes_over_the_other(
    elector: Elector, space: str, tmp_path: Path
) -> None:
    url = elector.url(space)

    def leaders() -> dict[str, str]:
        return dict(ask(tmp_path, "SELECT name, owner FROM terms"))

    one, other = (make_app(tmp_path, lease=url, shards=2, lease_ttl="2s", lease_renew="300ms") for _ in range(2))
    async with one.running():
        await until(lambda: len(leaders()) == 2)
        alone = set(leaders().values())
        assert len(alone) == 1
        async with other.running():
            await until(lambda: len(set(leaders().values())) == 2)
        await until(lambda: set(leaders().values()) == alone)
        fired = len(firings(tmp_path))
        await until(lambda: len(firings(tmp_path)) > fired + 3)


def test_the_doctor_takes_renews_and_releases_a_lease(
    elector: Elector, space: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, away = elector.url(space), elector.url(space, ports=[1], timeout="500ms")
    for url, code, state in ((good, 0, "good"), (away, 1, "failed")):
        assert run(["doctor", "--json", "--store", f"sqlite:///{tmp_path / 'x.db'}", "--lease", url]) == code
        found = {each["part"]: each for each in json.loads(capsys.readouterr().out)}["lease"]
        assert found["state"] == state, found
        names = {"etcd": "etcd", "zookeeper": "ZooKeeper", "kubernetes": "Kubernetes"}
        assert code or re.match(rf"{names[elector.kind]} v?\d+\.\d+\.\d+", found["version"]), found
        if code:
            assert "127.0.0.1:1" in found["where"] + found["detail"]
            assert found["remedy"]
