"""The lease on a real ZooKeeper: its line of candidates, sessions, users and TLS. See also `test_elector_leases`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest

from certificates import make_certificates
from electors import administrator, held, opened, renewed, until
from mainspring.adapter import Describes
from mainspring.core.instants import MILLISECOND, SECOND
from mainspring.core.model import Hold
from mainspring.errors import LeaseUnavailable
from mainspring.lease import Lease
from mainspring.testing.servers.proxy import Proxy
from servers.zookeeper import ZooKeeperServer

TTL = 600 * MILLISECOND
_roots = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")).start()
    yield server
    server.kill()


@pytest.fixture
def url(server: ZooKeeperServer) -> str:
    """A root node that no other test uses."""
    return f"{server.url}/test-{next(_roots)}?timeout=10s"


def root_of(url: str) -> str:
    return "/" + url.rpartition("/")[2].partition("?")[0]


async def test_the_node_is_ephemeral_and_names_its_holder(url: str, server: ZooKeeperServer) -> None:
    async with opened(url) as lease:
        hold = await held(lease, "host:17:abcd", TTL)
        with administrator(server.port) as client:
            data, stat = client.get(f"{root_of(url)}/leases/scheduler")
        assert data.startswith(b"host:17:abcd ")
        assert stat.ephemeralOwner
        assert stat.czxid == hold.token


async def test_a_hold_lasts_no_longer_than_the_session_that_the_servers_grant(url: str) -> None:
    """At ticks of 0.2 s no session is longer than 4 s."""
    async with opened(url) as lease:
        assert (await held(lease, ttl=30 * SECOND)).ttl == 4 * SECOND


async def test_candidates_stand_in_line_and_one_at_a_time_is_woken(url: str, server: ZooKeeperServer) -> None:
    async with opened(url) as leader, opened(url) as second, opened(url) as third:
        hold = await held(leader, ttl=TTL)
        woken: list[str] = []
        line = f"{root_of(url)}/line"
        with administrator(server.port) as client:
            second.on_free("scheduler", lambda: woken.append("second"))
            await until(lambda: bool(client.exists(line)) and len(client.get_children(line)) == 1)
            third.on_free("scheduler", lambda: woken.append("third"))
            await until(lambda: len(client.get_children(line)) == 2)
            renewing = asyncio.create_task(keep(leader, hold))
            await asyncio.sleep(0.3)
            assert woken == []
            renewing.cancel()
            await leader.release(hold)
            await until(lambda: woken == ["second"])
            hold = await held(second, "b", TTL)
            renewing = asyncio.create_task(keep(second, hold))
            await until(lambda: [place[-1] for place in client.get_children(line)] == ["1"])
            assert woken == ["second"], "the candidate behind it hears nothing"
            renewing.cancel()
            await second.release(hold)
            await until(lambda: woken == ["second", "third"])


async def keep(lease: Lease, hold: Hold) -> None:
    while True:
        await lease.renew(hold)
        await asyncio.sleep(0.1)


async def test_a_suspended_session_is_pushed_and_its_holder_may_go_on(tmp_path: Path, server: ZooKeeperServer) -> None:
    proxy = Proxy(server.port, Random(1))
    proxy.start()
    try:
        async with opened(f"zookeeper://127.0.0.1:{proxy.port}/suspended?timeout=10s") as lease:
            hold, lost = await held(lease, ttl=4 * SECOND), list[str]()
            lease.on_lost(hold, lost.append)
            proxy.cut()
            await until(lambda: lost == ["the ZooKeeper session is suspended"])
            assert await renewed(lease, hold) is not None, "the session was there again before it expired"
    finally:
        proxy.close()


async def test_a_partition_is_pushed_before_anyone_else_can_have_the_lease(server: ZooKeeperServer) -> None:
    proxy = Proxy(server.port, Random(1))
    proxy.start()
    there, direct = f"zookeeper://127.0.0.1:{proxy.port}/cut?timeout=10s", f"{server.url}/cut?timeout=10s"
    try:
        async with opened(there) as leader, opened(direct) as candidate:
            hold, lost_at = await held(leader, ttl=2 * SECOND), list[float]()
            leader.on_lost(hold, lambda _: lost_at.append(time.monotonic()))
            proxy.block()
            taken = await held(candidate, "b", TTL)
            taken_at = time.monotonic()
            assert taken.token > hold.token
            assert lost_at
            assert lost_at[0] < taken_at
            proxy.unblock(forget=False)
    finally:
        proxy.close()


async def test_an_acquisition_that_its_caller_gave_up_leaves_nothing_behind(url: str) -> None:
    async with opened(url) as lease, opened(url) as other:
        await lease.release(await held(lease, ttl=TTL))
        for _ in range(20):
            asking = asyncio.create_task(lease.acquire("scheduler", "a", 4 * SECOND))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        await other.release(await held(other, "b", TTL))


async def test_a_server_that_is_away_is_named_in_time(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path).start()
    async with opened(f"{server.url}?timeout=500ms") as lease:
        hold = await held(lease, ttl=TTL)
        server.pause()
        began = time.monotonic()
        with pytest.raises(LeaseUnavailable, match=str(server.port)):
            await lease.renew(hold)
        assert time.monotonic() - began < 5
        server.kill()
        server.start()
        assert (await held(lease, "b", TTL)).token > 0
    server.kill()


async def test_a_user_owns_its_nodes(url: str, server: ZooKeeperServer) -> None:
    mine = url.replace("zookeeper://", "zookeeper://maker:wheel@")
    async with opened(mine) as lease:
        await held(lease, ttl=TTL)
        async with opened(url) as stranger:
            with pytest.raises(LeaseUnavailable, match=r"NoAuth|auth"):
                await stranger.acquire("another", "b", TTL)


async def test_sasl_logs_in(tmp_path: Path) -> None:
    jaas = tmp_path / "jaas.conf"
    jaas.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_maker="wheel"; };\n')
    provider = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    server = ZooKeeperServer(tmp_path, provider)
    server.java = (f"-Djava.security.auth.login.config={jaas}",)
    server.start()
    try:
        async with opened(f"zookeeper://maker:wheel@127.0.0.1:{server.port}?auth=sasl&timeout=10s") as lease:
            hold = await held(lease, ttl=TTL)
            assert await lease.renew(hold) is not None
        async with opened(f"zookeeper://maker:spoke@127.0.0.1:{server.port}?auth=sasl&timeout=3s") as lease:
            with pytest.raises(LeaseUnavailable) as refused:
                await lease.acquire("scheduler", "a", TTL)
            assert "spoke" not in str(refused.value)
    finally:
        server.kill()


async def test_tls_with_a_user(tmp_path: Path) -> None:
    authority, certificate = make_certificates(tmp_path, "localhost", "127.0.0.1")
    server = ZooKeeperServer(tmp_path, tls=certificate).start()
    there = f"zookeepers://maker:wheel@127.0.0.1:{server.tls_port}/tls?timeout=10s"
    try:
        async with opened(f"{there}&ssl_ca_certs={authority}") as lease, opened(f"{server.url}/tls") as plain:
            hold = await held(lease, ttl=4 * SECOND)
            assert await lease.renew(hold) is not None
            with pytest.raises(LeaseUnavailable, match=r"NoAuth|auth"):
                await plain.acquire("another", "b", TTL)
            await lease.release(hold)
            assert (await held(lease, "b", TTL)).token > hold.token
            assert isinstance(lease, Describes)
            assert (await lease.describe()).version.startswith("ZooKeeper 3.")
        async with opened(there.replace("10s", "3s")) as lease:
            with pytest.raises(LeaseUnavailable, match="certificate verify failed"):
                await lease.acquire("scheduler", "a", TTL)
        async with opened(f"{there.replace('10s', '3s').replace('zookeepers:', 'zookeeper:')}") as lease:
            with pytest.raises(LeaseUnavailable, match=str(server.tls_port)):
                await lease.acquire("scheduler", "a", TTL)
    finally:
        server.kill()
