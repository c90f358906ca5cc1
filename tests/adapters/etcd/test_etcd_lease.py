"""The lease on a real etcd: its keys, slow expiries, users and TLS. See also `test_elector_leases`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from electors import held, make_certificate, opened
from mainspring.core.instants import SECOND
from mainspring.drivers.etcd.client import decoded, encoded
from mainspring.errors import LeaseUnavailable
from mainspring.leases.etcd import EtcdLease
from servers.etcd import EtcdServer

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


def ask(server: EtcdServer, path: str, body: dict[str, str]) -> Any:
    """As an administrator does."""
    with server.client() as client:
        return client.post(f"/v3/{path}", json=body).raise_for_status().json()


def add_root(server: EtcdServer) -> None:
    """A user; from now on nothing is allowed without one."""
    ask(server, "auth/user/add", {"name": "root", "password": "wheel"})
    ask(server, "auth/user/grant", {"user": "root", "role": "root"})
    ask(server, "auth/enable", {})


async def test_the_key_is_bound_to_a_lease_and_names_its_holder(url: str, server: EtcdServer) -> None:
    async with opened(url) as lease:
        hold = await held(lease, "host:17:abcd")
        key = encoded(url.rpartition("/")[2].partition("?")[0] + "/leases/scheduler")
        found = ask(server, "kv/range", {"key": key})["kvs"][0]
        assert decoded(found["value"]) == '["host:17:abcd",1000,2]'
        assert int(found["lease"]) > 0
        assert int(found["create_revision"]) == hold.token


async def test_an_attempt_whose_answer_was_lost_is_taken_up_by_its_owner_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as lease, opened(url) as other:
        assert isinstance(lease, EtcdLease)
        call, lost = lease._link.call, list[str]()

        async def lose_once(path: str, body: Mapping[str, object]) -> dict[str, Any]:
            answer = await call(path, body)
            if path == "/v3/kv/txn" and not lost:
                lost.append(path)
                raise LeaseUnavailable("the answer was lost")
            return answer

        monkeypatch.setattr(lease._link, "call", lose_once)
        with pytest.raises(LeaseUnavailable, match="the answer was lost"):
            await lease.acquire("scheduler", "a", 30 * SECOND)
        assert await lease.acquire("scheduler", "b", 30 * SECOND) is None
        assert await other.acquire("scheduler", "a", 30 * SECOND) is None
        assert await lease.acquire("scheduler", "a", 60 * SECOND) is None  # The key was not created for so long.
        hold = await lease.acquire("scheduler", "a", 30 * SECOND)
        assert hold is not None
        assert await lease.renew(hold) is not None
        assert await lease.acquire("scheduler", "a", 30 * SECOND) is None
        await lease.release(hold)
        assert await other.acquire("scheduler", "b", 30 * SECOND) is not None


async def test_a_key_that_is_created_by_the_first_of_two_requests_is_held(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url) as lease:
        assert isinstance(lease, EtcdLease)
        call = lease._link.call

        async def ask_twice(path: str, body: Mapping[str, object]) -> dict[str, Any]:
            if path == "/v3/kv/txn":
                await call(path, body)
            return await call(path, body)

        monkeypatch.setattr(lease._link, "call", ask_twice)
        hold = await lease.acquire("scheduler", "a", 30 * SECOND)
        assert hold is not None
        assert await lease.renew(hold) is not None


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


async def test_a_user_logs_in_and_a_wrong_password_is_named(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path).start()
    add_root(server)
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


async def test_tls_with_a_user(tmp_path: Path) -> None:
    server = EtcdServer(tmp_path, tls=make_certificate(tmp_path)).start()
    add_root(server)
    there = f"etcds://root:wheel@127.0.0.1:{server.port}?timeout=10s"
    try:
        async with opened(f"{there}&ssl_ca_certs={tmp_path / 'cert'}") as lease:
            hold = await held(lease, ttl=10 * SECOND)
            lost = asyncio.Event()
            lease.on_lost(hold, lambda _: lost.set())
            assert await lease.renew(hold) is not None
            await lease.release(hold)
            await asyncio.wait_for(lost.wait(), 60)
        async with opened(there) as lease:
            with pytest.raises(LeaseUnavailable, match="certificate verify failed"):
                await lease.acquire("scheduler", "a", SECOND)
        async with opened(there.replace("etcds:", "etcd:")) as lease:
            with pytest.raises(LeaseUnavailable, match=str(server.port)):
                await lease.acquire("scheduler", "a", SECOND)
    finally:
        server.kill()


async def test_a_foreign_key_is_not_taken_for_a_lease(url: str, server: EtcdServer) -> None:
    key = encoded(url.rpartition("/")[2].partition("?")[0] + "/leases/scheduler")
    ask(server, "kv/put", {"key": key, "value": encoded("something else")})
    async with opened(url) as lease:
        with pytest.raises(LeaseUnavailable, match="is not a lease of Mainspring"):
            await lease.acquire("scheduler", "a", SECOND)
