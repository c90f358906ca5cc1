"""Electors on servers of a test's own, one interface for all: how each is started, named to clients, and robbed."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
from kazoo.client import KazooClient

from kubernetes_standin import make_server
from mainspring.adapter import AdapterContext, open_adapter
from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import Hold
from mainspring.drivers.etcd.client import encoded
from mainspring.errors import LeaseUnavailable
from mainspring.lease import Lease
from mainspring.leases.kubernetes import encoded as encoded_object
from mainspring.testing.servers.process import ServerProcess
from servers.etcd import EtcdServer, make_cluster
from servers.kubernetes import KubernetesServer
from servers.zookeeper import ZooKeeperServer, make_ensemble

KINDS = ("etcd", "zookeeper", "kubernetes")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class Elector:
    """Running servers of one kind. `space` keeps the leases of one test apart from those of others."""

    def __init__(self, kind: str, folder: Path, *, members: int = 1) -> None:
        # Locks of the tests ask for minutes: by default no session of ZooKeeper is longer than 20 ticks.
        makers: dict[str, Callable[[], Sequence[ServerProcess]]] = {
            "etcd": lambda: make_cluster(folder, members),
            "zookeeper": lambda: make_ensemble(folder, members, "maxSessionTimeout=600000"),
            "kubernetes": lambda: [make_server(folder)],
        }
        self.kind = kind
        self.members = makers[kind]()
        self.server = self.members[0]
        self._folder = folder

    def start(self) -> None:
        """Start all members that do not run; return once they answer."""
        for member in self.members:
            if not member.runs:
                member.begin()
        for member in self.members:
            member.wait()

    def kill(self) -> None:
        """Kill all members. They keep what they know, but for the stand-in."""
        for member in self.members:
            member.kill()

    def leader(self) -> ServerProcess:
        """The member that leads the others, once there is one."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for member in self.members:
                if isinstance(member, EtcdServer | ZooKeeperServer) and member.leads():
                    return member
            time.sleep(0.02)
        raise AssertionError(f"no member of {self.kind} leads")

    def url(self, space: str, *, ports: Sequence[int] = (), timeout: str = "10s") -> str:
        """The URL of the lease, perhaps through proxies on other ports."""
        ports = ports or [member.port for member in self.members]
        if isinstance(self.server, KubernetesServer):
            config = self.server.write_kubeconfig(self._folder / f"config-{ports[0]}", port=ports[0])
            return f"kubernetes://default/{space}?timeout={timeout}&kubeconfig={config}"
        return f"{self.kind}://{','.join(f'127.0.0.1:{port}' for port in ports)}/{space}?timeout={timeout}"

    def rob(self, space: str, name: str) -> None:
        """Delete a lease behind its holder's back, as an administrator can."""
        if isinstance(self.server, KubernetesServer):
            answer = self.server.ask("DELETE", f"{LEASES}/{space}-{encoded_object(name)}")
            assert answer.status_code < 300, answer.text
        elif self.kind == "etcd":
            key = {"key": encoded(f"{space}/leases/{name}")}
            answer = httpx.post(f"http://127.0.0.1:{self.server.port}/v3/kv/deleterange", json=key)
            assert answer.json()["deleted"] == "1"
        else:
            with administrator(self.server.port) as client:
                client.delete(f"/{space}/leases/{quote(name, safe='')}")

    def stop(self) -> None:
        """End all of its processes."""
        self.kill()
        if isinstance(self.server, KubernetesServer):
            self.server.stop()


@contextmanager
def administrator(port: int) -> Iterator[KazooClient]:
    """Another client of ZooKeeper, to look at nodes and to delete them."""
    client = KazooClient(f"127.0.0.1:{port}")
    client.start(20)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def started(kind: str, folder: Path, *, members: int = 1) -> Iterator[Elector]:
    """An elector that answers."""
    elector = Elector(kind, folder, members=members)
    try:
        elector.start()
        yield elector
    finally:
        elector.stop()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Lease]:
    """The lease that a URL names, until the block ends."""
    lease: Lease = open_adapter("lease", url, AdapterContext())
    try:
        yield lease
    finally:
        await lease.close()


async def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.01)


async def held(lease: Lease, owner: str = "a", ttl: Duration = SECOND, name: str = "scheduler") -> Hold:
    """Ask until it is given, also while no server answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                hold = await lease.acquire(name, owner, ttl)
            except LeaseUnavailable:
                hold = None
            if hold is not None:
                return hold
            await asyncio.sleep(0.02)


async def renewed(lease: Lease, hold: Hold) -> Hold | None:
    """The answer to a renewal, once a server gives one."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await lease.renew(hold)
            except LeaseUnavailable:
                await asyncio.sleep(0.02)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that is its own authority, and its key."""
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", "key", "-out", "cert"]
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    return folder / "cert", folder / "key"
