"""The lease on Redis, where Redis has trouble: paused, killed, empty; and on all kinds of Redis that a URL can name."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis import Redis
from redis_server import Start

from mainspring.adapter import AdapterContext, Describes
from mainspring.clock import SystemClock
from mainspring.core.instants import HOUR, MILLISECOND, SECOND
from mainspring.core.model import Hold
from mainspring.drivers.redis.client import read_url
from mainspring.errors import InvalidInput, LeaseUnavailable
from mainspring.lease import Lease
from mainspring.leases.redis import RedisLease
from mainspring.leases.redlock import RedlockLease
from mainspring.process.urls import show_url
from mainspring.services.store_layers import MeasuredStore
from mainspring.settings import Settings
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.servers.process import free_port
from mainspring.testing.servers.redis import PROGRAM, RedisServer
from mainspring.wiring import open_lease

TTL = 30 * SECOND


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Lease]:
    lease: Lease = (
        RedlockLease(url, AdapterContext()) if url.startswith("redlock") else RedisLease(url, AdapterContext())
    )
    try:
        yield lease
    finally:
        await lease.close()


async def held(lease: Lease, owner: str = "a", ttl: int = TTL) -> Hold:
    hold = await lease.acquire("scheduler", owner, ttl)
    assert hold is not None
    return hold


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if holds():
                return
            await asyncio.sleep(0.05)


async def until_held(lease: Lease, owner: str) -> Hold:
    """Ask until it is given, also while no server answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                hold = await lease.acquire("scheduler", owner, TTL)
            except LeaseUnavailable:
                hold = None
            if hold is not None:
                return hold
            await asyncio.sleep(0.02)


def redlock_of(*servers: RedisServer) -> str:
    return "redlock://" + ",".join(f"127.0.0.1:{server.port}" for server in servers) + "?timeout=20s"


async def test_the_key_names_the_holder_and_how_long_it_holds(start: Start) -> None:
    server = start()
    async with opened(server.url + "?timeout=20s") as lease:
        hold = await held(lease, "host:17:abcd")
    with Redis(port=server.port) as client:
        assert client.get("job:lock:scheduler") == f"host:17:abcd {hold.token}".encode()
        assert 0 < int(client.pttl("job:lock:scheduler")) <= TTL // MILLISECOND


async def test_a_lease_runs_out_by_itself(start: Start) -> None:
    async with opened(start().url + "?timeout=20s") as lease:
        first = await held(lease, "a", 50 * MILLISECOND)
        assert (await until_held(lease, "b")).token > first.token
        assert await lease.renew(first) is None


async def test_a_server_that_does_not_answer_is_reported_in_time(start: Start) -> None:
    server = start()
    async with opened(server.url + "?timeout=2s") as lease:
        hold = await held(lease)
        server.pause()
        with pytest.raises(LeaseUnavailable, match=str(server.port)):
            await asyncio.wait_for(lease.renew(hold), 20)
        server.resume()
        assert await lease.renew(hold) is not None


async def test_a_server_that_went_away_is_found_again(start: Start) -> None:
    server = start()
    async with opened(server.url + "?timeout=20s") as lease:
        hold = await held(lease)
        server.kill()
        with pytest.raises(LeaseUnavailable):
            await lease.renew(hold)
        server.start()
        await until_held(lease, "b")


async def test_the_token_grows_though_the_server_has_forgotten_all(start: Start) -> None:
    server = start()
    async with opened(server.url + "?timeout=20s") as lease:
        tokens = [(await held(lease)).token]
        server.kill()
        server.start()
        tokens.append((await until_held(lease, "b")).token)
        with Redis(port=server.port) as client:
            client.flushall()
        tokens.append((await until_held(lease, "c")).token)
    assert tokens == sorted(set(tokens))


async def test_a_hold_that_the_server_has_forgotten_is_not_renewed(start: Start) -> None:
    server = start()
    async with opened(server.url + "?timeout=20s") as lease:
        hold = await held(lease)
        with Redis(port=server.port) as client:
            client.flushall()
        assert await lease.renew(hold) is None


async def test_the_token_grows_though_the_clock_of_the_server_was_ahead(start: Start) -> None:
    server = start()
    async with opened(server.url + "?timeout=20s") as lease:
        first = await held(lease)
        ahead = first.token + HOUR
        with Redis(port=server.port) as client:
            client.set("{job:lock:scheduler}:token", ahead)
        await lease.release(first)
        assert (await held(lease)).token == ahead + 1


async def test_installations_with_their_own_prefix_do_not_meet(start: Start) -> None:
    server = start()
    async with opened(server.url + "?prefix=a:") as one, opened(server.url + "?prefix=b:") as other:
        await held(one)
        await held(other)


async def test_a_user_of_the_access_list_logs_in_and_a_stranger_does_not(start: Start) -> None:
    server = start("--user", "spring", "on", ">p@ss:word", "~job:*", "~{job:*", "+@all", "--user", "default", "off")
    async with opened(f"redis://spring:p%40ss%3Aword@127.0.0.1:{server.port}?timeout=20s") as lease:
        await held(lease)
    for url in (server.url, f"redis://spring:wrong@127.0.0.1:{server.port}"):
        async with opened(url) as stranger:
            with pytest.raises(LeaseUnavailable) as caught:
                await stranger.acquire("scheduler", "b", TTL)
            assert "wrong" not in str(caught.value).replace("WRONGPASS", "")


def make_certificate(key: Path, certificate: Path) -> None:
    words = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", *words, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True, timeout=60)


async def test_over_tls(start: Start, tmp_path: Path) -> None:
    key, certificate, port = tmp_path / "key.pem", tmp_path / "certificate.pem", free_port()
    make_certificate(key, certificate)
    files = ["--tls-cert-file", str(certificate), "--tls-key-file", str(key), "--tls-ca-cert-file", str(certificate)]
    start("--tls-port", str(port), *files, "--tls-auth-clients", "no")
    async with opened(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}&timeout=20s") as lease:
        assert await lease.renew(await held(lease)) is not None
    async with opened(f"rediss://127.0.0.1:{port}?timeout=20s") as distrustful:
        with pytest.raises(LeaseUnavailable, match=r"(?i)certificate"):
            await distrustful.acquire("scheduler", "b", TTL)


async def test_after_a_failover_by_sentinels_the_lease_is_had_from_the_new_master(start: Start, tmp_path: Path) -> None:
    master = start()
    replica = start("--replicaof", "127.0.0.1", str(master.port))
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
    )
    sentinel = SentinelServer(tmp_path, config).start()
    try:
        await _until_known(sentinel.port, replica.port)
        async with opened(f"redis+sentinel://127.0.0.1:{sentinel.port}/main?timeout=2s") as lease:
            first = await held(lease)
            master.kill()
            second = await until_held_or_renewed(lease, first)
            assert second.token >= first.token
        with Redis(port=replica.port) as client:
            assert client.exists("job:lock:scheduler")
    finally:
        sentinel.kill()


class SentinelServer(RedisServer):
    """A Sentinel is the same program."""

    def __init__(self, folder: Path, config: Path) -> None:
        super().__init__(folder)
        self._config = config

    def words(self) -> list[str]:
        return [PROGRAM, str(self._config), "--sentinel", "--port", str(self.port), "--dir", str(self.folder)]


async def _until_known(sentinel: int, replica: int) -> None:
    with Redis(port=sentinel, decode_responses=True) as client:
        await until(lambda: any(each["port"] == replica for each in client.sentinel_slaves("main")))


async def until_held_or_renewed(lease: Lease, hold: Hold) -> Hold:
    """Whether the replica knew of the hold or not, one of them can go on."""
    async with asyncio.timeout(60):
        while True:
            try:
                found = await lease.renew(hold) or await lease.acquire("scheduler", "b", TTL)
            except LeaseUnavailable:
                found = None
            if found is not None:
                return found
            await asyncio.sleep(0.05)


async def test_on_a_cluster(start: Start) -> None:
    server = start("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with Redis(port=server.port) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
    async with opened(f"redis+cluster://127.0.0.1:{server.port}?timeout=5s") as lease:
        hold = await held(lease)
        assert await lease.acquire("scheduler", "b", TTL) is None
        assert await lease.renew(hold) is not None
        await lease.release(hold)
        assert (await held(lease, "b")).token > hold.token
        assert isinstance(lease, Describes)
        assert re.fullmatch(r"Redis \d+\.\d+\.\d+", (await lease.describe()).version)


async def test_redlock_does_not_mind_a_minority_of_dead_servers(start: Start) -> None:
    servers = [start() for _ in range(3)]
    async with opened(redlock_of(*servers)) as lease:
        hold = await held(lease)
        servers[0].kill()
        assert isinstance(lease, Describes)
        assert re.fullmatch(r"Redis \d+\.\d+\.\d+ on 2 of 3 servers", (await lease.describe()).version)
        assert await lease.renew(hold) is not None
        assert await lease.acquire("scheduler", "b", TTL) is None
        await lease.release(hold)
        servers[0].start()
        servers[1].pause()
        again = await until_held(lease, "b")
        assert again.token > hold.token
        servers[1].resume()


async def test_redlock_says_so_where_most_servers_are_dead_and_gives_nothing(start: Start) -> None:
    servers = [start() for _ in range(3)]
    async with opened(redlock_of(*servers)) as lease:
        hold = await held(lease)
        servers[0].kill()
        servers[1].kill()
        for call in (lease.renew(hold), lease.acquire("scheduler", "b", TTL)):
            with pytest.raises(LeaseUnavailable, match="1 of 3"):
                await call
        await lease.release(hold)


async def test_a_minority_that_has_forgotten_gives_nobody_a_second_redlock(start: Start) -> None:
    servers = [start() for _ in range(5)]
    async with opened(redlock_of(*servers)) as one, opened(redlock_of(*servers)) as other:
        hold = await held(one)
        for server in servers[:2]:
            server.kill()
            server.start()
        assert await other.acquire("scheduler", "b", TTL) is None
        assert await one.renew(hold) is not None


async def test_a_redlock_that_most_have_forgotten_is_not_renewed_and_its_token_still_grows(start: Start) -> None:
    servers = [start() for _ in range(3)]
    async with opened(redlock_of(*servers)) as lease:
        hold = await held(lease)
        for server in servers[:2]:
            with Redis(port=server.port) as client:
                client.flushall()
        assert await lease.renew(hold) is None
        assert (await until_held(lease, "b")).token > hold.token


async def test_a_redlock_is_greater_than_every_token_that_one_server_knows_and_leaves_others_alone(
    start: Start,
) -> None:
    servers = [start() for _ in range(3)]
    with Redis(port=servers[0].port) as client:
        client.set("{job:lock:scheduler}:token", 2**52)
        client.set("job:lock:scheduler", "somebody 1")
    async with opened(redlock_of(*servers)) as lease:
        hold = await held(lease, "b")
        assert hold.token > 2**52
        await lease.release(hold)
    with Redis(port=servers[0].port) as client:
        assert client.get("job:lock:scheduler") == b"somebody 1"


async def test_a_redlock_has_no_time_left_where_asking_took_it_all(start: Start) -> None:
    servers = [start() for _ in range(3)]

    class SlowClock(SystemClock):
        def monotonic(self) -> float:
            self.asked = getattr(self, "asked", 0) + 1
            return self.asked * 60.0

    lease = RedlockLease(redlock_of(*servers), AdapterContext(clock=SlowClock()))
    assert await lease.acquire("scheduler", "a", TTL) is None
    await lease.close()
    for server in servers:
        with Redis(port=server.port) as client:
            assert not client.exists("job:lock:scheduler")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("redis://", "names no host"),
        ("redis://a,b", "several servers"),
        ("redis://host:99999", "names no host"),
        ("redis://host/x", "number of a database"),
        ("redis://host?colour=red", "option 'colour'"),
        ("redis+sentinel://a,b", "which master"),
        ("redis+cluster://a,b/3", "a cluster has one only"),
        ("memcached://a", "no kind of Redis"),
    ],
)
def test_a_url_that_cannot_be_is_refused_with_what_to_write(url: str, complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        read_url(url, "lease")


@pytest.mark.parametrize("url", ["redlock://a,b", "redlock://a", "redlock://a,a,a", "redlock://"])
def test_a_redlock_needs_several_servers(url: str) -> None:
    with pytest.raises(InvalidInput, match="three or five"):
        RedlockLease(url, AdapterContext())


def test_passwords_are_not_shown() -> None:
    for url in ("redis://u:hidden@h", "redis+sentinel://u:hidden@h,i/m?sentinel_password=hidden"):
        assert "hidden" not in read_url(url, "lease").shown
    assert "hidden" not in show_url("redlock://u:hidden@a,v:hidden@b,c")


@pytest.mark.parametrize("kind", ["redis", "redlock"])
async def test_what_becomes_of_a_lease_is_counted_with_those_of_the_store(
    start: Start, tmp_path: Path, kind: str
) -> None:
    url = start().url + "?timeout=20s" if kind == "redis" else redlock_of(*(start() for _ in range(3)))
    store = MeasuredStore(SqliteStore(str(tmp_path / "a.db"), SystemClock()))
    lease = open_lease(Settings(lease=url), store, SystemClock())
    hold = await held(lease)
    assert await lease.acquire("scheduler", "b", TTL) is None
    assert await lease.renew(hold) is not None
    await lease.release(hold)
    assert await lease.renew(hold) is None
    counts = {label: number for (name, label), number in store.metrics.counts.items() if name == "leases"}
    assert counts == {"taken": 1, "refused": 1, "renewed": 1, "released": 1, "lost": 1}
    await lease.close()
    await store.close()
