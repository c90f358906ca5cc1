"""The lease on the API server of Kubernetes, or its stand-in: rights, tokens, throttling.
See also `test_elector_leases`."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from electors import held, make_certificate
from kubernetes_standin import StandInServer, make_server
from mainspring.adapter import AdapterContext
from mainspring.core.instants import SECOND
from mainspring.core.model import Hold
from mainspring.drivers.kubernetes.config import find_access
from mainspring.errors import InvalidInput, LeaseUnavailable
from mainspring.leases.kubernetes import KubernetesLease
from mainspring.testing.servers.proxy import Proxy
from servers.kubernetes import ACCOUNT, KubernetesServer

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"
MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base" / "rbac.yaml"
_names = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesServer]:
    server = make_server(tmp_path_factory.mktemp("kubernetes"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def url(server: KubernetesServer, tmp_path: Path) -> str:
    """Objects that no other test uses."""
    config = server.write_kubeconfig(tmp_path / "config")
    return f"kubernetes://default/test-{next(_names)}?timeout=10s&kubeconfig={config}"


def name_in(url: str) -> str:
    return url.rpartition("/test-")[2].partition("?")[0]


def ask(server: KubernetesServer, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    answer = server.ask(method, path, body)
    assert answer.status_code < 300, answer.text
    return answer.json()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[KubernetesLease]:
    lease = KubernetesLease(url, AdapterContext())
    try:
        yield lease
    finally:
        await lease.close()


async def test_the_object_reads_as_that_of_any_other_client(url: str, server: KubernetesServer) -> None:
    path = f"{LEASES}/test-{name_in(url)}-scheduler"
    async with opened(url) as lease:
        hold = await held(lease, "host:17:abcd", 2 * SECOND)
        spec = ask(server, "GET", path)["spec"]
        assert spec["holderIdentity"].startswith("host:17:abcd_")
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (2, 0)
        await lease.release(hold)
        spec = ask(server, "GET", path)["spec"]
        assert (spec.get("holderIdentity", ""), spec["leaseDurationSeconds"]) == ("", 1)
        await lease.release(await held(lease, "b"))
        assert ask(server, "GET", path)["spec"]["leaseTransitions"] == 1


async def test_a_lock_leaves_no_object_behind(url: str, server: KubernetesServer) -> None:
    async with opened(url) as lease:
        await lease.release(await held(lease, name="user:default:order ☃ 17"))
    left = [each["metadata"]["name"] for each in ask(server, "GET", LEASES)["items"]]
    assert [name for name in left if name.startswith(f"test-{name_in(url)}-")] == []


async def test_the_clock_of_the_holder_does_not_count(url: str, server: KubernetesServer) -> None:
    """A renewal that claims to be of the last century is one: it was seen just now."""
    path = f"{LEASES}/test-{name_in(url)}-scheduler"
    async with opened(url) as lease, opened(url) as other:
        hold = await held(lease, ttl=2 * SECOND)
        found = ask(server, "GET", path)
        found["spec"] |= {"renewTime": "1999-12-31T00:00:00.000000Z", "acquireTime": "1999-12-31T00:00:00.000000Z"}
        ask(server, "PUT", path, found)
        assert await other.acquire("scheduler", "b", SECOND) is None
        began = time.monotonic()
        assert (await held(other, "b")).token > hold.token
        assert time.monotonic() - began > 1.5
        assert await lease.renew(hold) is None


async def test_a_renewal_whose_reply_was_lost_is_repeated(url: str, server: KubernetesServer) -> None:
    path = f"{LEASES}/test-{name_in(url)}-scheduler"
    async with opened(url) as lease:
        hold = await held(lease)
        ask(server, "PUT", path, ask(server, "GET", path))
        found = ask(server, "GET", path)
        found["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
        ask(server, "PUT", path, found)
        assert await lease.renew(hold) is not None


async def test_a_renew_deadline_shortens_what_the_holder_trusts(url: str) -> None:
    async with opened(url) as lease, opened(f"{url}&renew_deadline=3s") as other:
        assert (await held(lease, ttl=15 * SECOND)).ttl == 10 * SECOND
        assert (await held(other, ttl=4 * SECOND, name="another")).ttl == 3 * SECOND


@pytest.fixture
def account(server: KubernetesServer, tmp_path: Path) -> tuple[str, Callable[..., None]]:
    """A URL for the service account, and what gives it the rights of the manifest, without some verbs."""
    _, role, binding = yaml.safe_load_all(MANIFEST.read_text())

    def grant(*without: str) -> None:
        server.ask("DELETE", f"{RBAC}/roles/{role['metadata']['name']}")
        (rule,) = role["rules"]
        rules = [{**rule, "verbs": [verb for verb in rule["verbs"] if verb not in without]}]
        ask(server, "POST", f"{RBAC}/roles", {**role, "rules": rules})

    grant()
    server.ask("POST", f"{RBAC}/rolebindings", binding)
    config = server.write_kubeconfig(tmp_path / "account", ACCOUNT)
    return f"kubernetes://default/account-{next(_names)}?timeout=10s&kubeconfig={config}", grant


async def taken(lease: KubernetesLease, name: str) -> Hold:
    """Ask until it is free; what the API server refuses is raised."""
    while (hold := await lease.acquire(name, "a", 4 * SECOND)) is None:
        await asyncio.sleep(0.02)
    return hold


async def use_all(lease: KubernetesLease) -> None:
    hold = await taken(lease, "scheduler")
    assert await lease.renew(hold) is not None
    await lease.release(hold)
    await lease.release(await taken(lease, "user:default:payroll"))
    async for _ in lease._link.watch(lease._path, "0", fieldSelector=f"metadata.name={lease._object('scheduler')}"):
        break


async def test_the_rights_of_the_manifest_are_enough(account: tuple[str, Callable[..., None]]) -> None:
    async with opened(account[0]) as lease:
        await eventually(lambda: use_all(lease))


@pytest.mark.parametrize("verb", ["get", "create", "update", "watch", "delete"])
async def test_with_one_right_fewer_it_fails_and_names_it(account: tuple[str, Callable[..., None]], verb: str) -> None:
    url, grant = account
    grant(verb)
    async with opened(url) as lease, asyncio.timeout(20):
        while True:  # The authoriser learns of a changed role a moment later.
            try:
                await use_all(lease)
            except LeaseUnavailable as error:
                said = str(error)
                if f"cannot {verb} resource" in said:
                    break
            await asyncio.sleep(0.05)
    assert "a Role of deploy/kubernetes" in said
    grant()


async def eventually(attempt: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await attempt()
            except LeaseUnavailable:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_server_that_throttles_is_left_alone_and_one_that_fails_is_asked_again(tmp_path: Path) -> None:
    """On the stand-in, also where the real one runs: that cannot be brought to do either to one user at will."""
    server = StandInServer(tmp_path)
    server.start()
    _, role, binding = yaml.safe_load_all(MANIFEST.read_text())
    ask(server, "POST", f"{RBAC}/roles", role)
    ask(server, "POST", f"{RBAC}/rolebindings", binding)
    config = server.write_kubeconfig(tmp_path / "account", ACCOUNT)
    try:
        async with opened(f"kubernetes://default/throttled?timeout=10s&kubeconfig={config}") as lease:
            hold = await held(lease, ttl=30 * SECOND)
            ask(server, "POST", f"{FLOWS}/flowschemas", {"metadata": {"name": "broken"}})
            with pytest.raises(LeaseUnavailable, match="unable to handle the request"):
                await lease.renew(hold)
            ask(server, "DELETE", f"{FLOWS}/flowschemas/broken")
            assert await lease.renew(hold) is not None
            ask(server, "POST", f"{FLOWS}/flowschemas", {"metadata": {"name": "closed"}})
            with pytest.raises(LeaseUnavailable, match="throttled: Too many requests"):
                await lease.renew(hold)
            ask(server, "DELETE", f"{FLOWS}/flowschemas/closed")
            with pytest.raises(LeaseUnavailable, match="throttles: it is asked again in"):
                await lease.renew(hold)
            await eventually(lambda: lease.renew(hold))
    finally:
        server.stop()


async def test_a_token_that_was_replaced_is_read_again(server: KubernetesServer, tmp_path: Path) -> None:
    config = server.write_kubeconfig(tmp_path / "config")
    token = tmp_path / "token"
    token.write_text("expired")
    written = json.loads(config.read_text())
    good, written["users"][0]["user"] = written["users"][0]["user"]["token"], {"tokenFile": str(token)}
    config.write_text(json.dumps(written))
    async with opened(f"kubernetes://default/rotated?timeout=10s&kubeconfig={config}") as lease:
        with pytest.raises(LeaseUnavailable, match="the token is not accepted"):
            await lease.acquire("scheduler", "a", SECOND)
        token.write_text(good)
        await lease.release(await held(lease))


async def test_a_credential_plugin_issues_tokens(server: KubernetesServer, tmp_path: Path) -> None:
    config = server.write_kubeconfig(tmp_path / "config")
    written = json.loads(config.read_text())
    said = {"status": {"token": written["users"][0]["user"]["token"], "expirationTimestamp": "2099-01-01T00:00:00Z"}}
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "echo", "args": [json.dumps(said)]}
    written["users"][0]["user"] = {"exec": plugin}
    config.write_text(json.dumps(written))
    async with opened(f"kubernetes://default/plugin?timeout=10s&kubeconfig={config}") as lease:
        await lease.release(await held(lease))


@pytest.mark.usefixtures("account")
async def test_a_pod_uses_its_service_account(
    server: KubernetesServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in has no TLS, so there only what would be used is shown."""
    real = server.server.startswith("https:")
    authority = server.authority.read_text() if real else make_certificate(tmp_path)[0].read_text()
    for name, text in (("token", ACCOUNT), ("namespace", "default\n"), ("ca.crt", authority)):
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    monkeypatch.setattr("mainspring.drivers.kubernetes.config.ACCOUNT", tmp_path)
    access = find_access({})
    assert (access.server, access.namespace) == (f"https://127.0.0.1:{server.port}", "default")
    assert access.token(False) == ACCOUNT
    if real:
        async with opened("kubernetes:///pod?timeout=10s") as lease:
            await eventually(lambda: use_all(lease))


async def test_a_server_that_is_slow_or_away_is_unavailable_in_time(server: KubernetesServer, tmp_path: Path) -> None:
    proxy = Proxy(server.port, Random(1))
    proxy.start()
    config = server.write_kubeconfig(tmp_path / "config", port=proxy.port)
    try:
        async with opened(f"kubernetes://default/slow?timeout=1s&kubeconfig={config}") as lease:
            hold = await held(lease, ttl=30 * SECOND)
            proxy.block()
            began = time.monotonic()
            with pytest.raises(LeaseUnavailable, match=str(proxy.port)):
                await lease.renew(hold)
            assert time.monotonic() - began < 5
            proxy.unblock(forget=True)
            await eventually(lambda: lease.renew(hold))
    finally:
        proxy.close()


def test_without_access_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidInput, match="set KUBECONFIG"):
        KubernetesLease(f"kubernetes://default/x?kubeconfig={tmp_path / 'none'}", AdapterContext())
    with pytest.raises(InvalidInput, match="has an option 'x'"):
        KubernetesLease("kubernetes://default/x?x=1", AdapterContext())
