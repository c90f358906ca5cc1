"""The lease on a real etcd: under the suite of its port, over several endpoints, with users, and on slow expiries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainspring.adapter import AdapterContext
from mainspring.conformance.lease import Elapse, LeaseConformance
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.model import Hold
from mainspring.drivers.etcd.client import decoded, encoded
from mainspring.errors import InvalidInput, LeaseUnavailable
from mainspring.lease import Lease
from mainspring.leases.etcd import EtcdLease
from mainspring.testing.servers.etcd import EtcdServer, start_cluster

_folders = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.kill()


@pytest.fixture
def url(server: EtcdServer) -> str:
    """A folder of keys that no other test uses."""
    return f"{server.url}/test-{next(_folders)}?timeout=10s"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[EtcdLease]:
    lease = EtcdLease(url, AdapterContext())
    try:
        yield lease
    finally:
        await lease.close()


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


async def held(lease: Lease, owner: str = "a", ttl: Duration = SECOND, seconds: float = 20) -> Hold:
    """Ask until it is given, also while no server answers."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                hold = await lease.acquire("scheduler", owner, ttl)
            except LeaseUnavailable:
                hold = None
            if hold is not None:
                return hold
            await asyncio.sleep(0.02)


def ask(server: EtcdServer, path: str, body: dict[str, str]) -> Any:
    """As an administrator does."""
    return httpx.post(f"http://127.0.0.1:{server.port}/v3/{path}", json=body).raise_for_status().json()


class TestEtcd(LeaseConformance):
    pushes_free = True
    pushes_loss = True
    ttl = SECOND
    moment = 400 * MILLISECOND

    @pytest.fixture
    async def lease(self, url: str, server: EtcdServer) -> AsyncIterator[EtcdLease]:
        self.server, self.folder = server, url.rpartition("/")[2].partition("?")[0]
        async with opened(url) as lease:
            yield lease

    @pytest.fixture
    def elapse(self) -> Elapse:
        return elapse_really

    async def doubt(self, lease: Lease, hold: Hold) -> None:
        ask(self.server, "kv/deleterange", {"key": encoded(f"{self.folder}/leases/{hold.name}")})


async def elapse_really(duration: Duration) -> None:
    await asyncio.sleep(duration / SECOND)


async def test_the_key_is_bound_to_a_lease_and_names_its_holder(url: str, server: EtcdServer) -> None:
    async with opened(url) as lease:
        hold = await held(lease, "host:17:abcd")
        key = encoded(url.rpartition("/")[2].partition("?")[0] + "/leases/scheduler")
        found = ask(server, "kv/range", {"key": key})["kvs"][0]
        assert decoded(found["value"]) == '["host:17:abcd",1000,2]'
        assert int(found["lease"]) > 0
        assert int(found["create_revision"]) == hold.token


@pytest.mark.parametrize("timeout_ms", [500, 1000])
async def test_an_expiry_is_seen_in_time_whatever_the_server_grants(tmp_path: Path, timeout_ms: int) -> None:
    """At its default election timeout of 1 s, etcd grants no lease below 2 s."""
    server = EtcdServer(tmp_path, f"--election-timeout={timeout_ms}").start()
    try:
        async with opened(f"{server.url}?timeout=10s") as dead, opened(f"{server.url}?timeout=10s") as next_one:
            first = await held(dead)
            began = time.monotonic()
            second = await held(next_one, "b")
            took_s = time.monotonic() - began
            assert second.token > first.token
            assert 0.8 < took_s < 2.0
            assert await dead.renew(first) is None
    finally:
        server.kill()


async def test_a_revoked_lease_wakes_a_candidate_at_once(url: str) -> None:
    async with opened(url) as leader, opened(url) as candidate:
        hold = await held(leader, ttl=10 * SECOND)
        free = asyncio.Event()
        stop = candidate.on_free("scheduler", free.set)
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await leader.release(hold)
        await asyncio.wait_for(free.wait(), 10)
        assert time.monotonic() - began < 1.0
        stop()


async def test_a_member_that_dies_or_hangs_is_passed_over(tmp_path: Path) -> None:
    members = start_cluster(tmp_path)
    try:
        async with opened(f"{members[0].url}?timeout=3s") as lease:
            hold = await held(lease, ttl=10 * SECOND)
            for trouble in ("pause", "kill"):
                leader = next(member for member in members if member.leads())
                getattr(leader, trouble)()
                async with asyncio.timeout(20):
                    while True:
                        try:
                            assert await lease.renew(hold) is not None
                            break
                        except LeaseUnavailable:
                            await asyncio.sleep(0.05)
                if trouble == "pause":
                    leader.resume()
                    await until(lambda: any(member.leads() for member in members))
    finally:
        for member in members:
            member.kill()


async def test_a_cluster_without_a_majority_is_unavailable_and_comes_back(tmp_path: Path) -> None:
    members = start_cluster(tmp_path)
    try:
        async with opened(f"{members[0].url}?timeout=1s") as lease:
            first = await held(lease)
            members[0].kill()
            members[1].kill()
            with pytest.raises(LeaseUnavailable, match=f"127.0.0.1:{members[2].port}"):
                await lease.renew(first)
            members[0].start()
            assert (await held(lease, "b")).token > first.token
    finally:
        for member in members:
            member.kill()


async def test_a_user_logs_in_and_a_wrong_password_is_named(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path).start()
    for path, body in [
        ("auth/user/add", {"name": "root", "password": "wheel"}),
        ("auth/user/grant", {"user": "root", "role": "root"}),
        ("auth/enable", {}),
    ]:
        ask(server, path, body)
    try:
        async with opened(f"etcd://root:wheel@127.0.0.1:{server.port}?timeout=10s") as lease:
            hold, lost = await held(lease), list[str]()
            lease.on_lost(hold, lost.append)
            assert await lease.renew(hold) is not None
            server.kill()
            server.start()  # Tokens of the old process are worth nothing now.
            assert await lease.renew(hold) is not None
        async with opened(f"etcd://root:spoke@127.0.0.1:{server.port}?timeout=10s") as lease:
            with pytest.raises(LeaseUnavailable, match="authentication failed") as refused:
                await lease.acquire("scheduler", "a", SECOND)
            assert "spoke" not in str(refused.value)
    finally:
        server.kill()


async def test_a_foreign_key_is_not_taken_for_a_lease(url: str, server: EtcdServer) -> None:
    key = encoded(url.rpartition("/")[2].partition("?")[0] + "/leases/scheduler")
    ask(server, "kv/put", {"key": key, "value": encoded("something else")})
    async with opened(url) as lease:
        with pytest.raises(LeaseUnavailable, match="is not a lease of Mainspring"):
            await lease.acquire("scheduler", "a", SECOND)


@pytest.mark.parametrize(
    ("url", "problem"),
    [("etcd://", "names no host"), ("etcd://h:x", "names no host"), ("etcd://h?prefix=a", "has an option 'prefix'")],
)
def test_a_url_that_says_nothing_is_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        EtcdLease(url, AdapterContext())
