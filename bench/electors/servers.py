"""The electors that `bench.electors` compares: how each is started, named to nodes, and asked how busy it is."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from bench.harness.running import Failed
from mainspring.testing.servers.redis import RedisServer
from tests.servers.etcd import EtcdServer
from tests.servers.kubernetes import KubernetesServer, find_program
from tests.servers.zookeeper import ZooKeeperServer


class Elector(NamedTuple):
    """One way to coordinate."""

    environment: dict[str, str]
    led: bool = True
    """Whether one node leads, so that its term shows when the next one does."""
    kill_s: float = 2.0
    """The bound of the 99th percentile after kill -9."""
    requests: Callable[[], float] | None = None
    """How many requests the elector has answered so far."""


@contextmanager
def database(_folder: Path) -> Iterator[Elector]:
    """The job database itself."""
    yield Elector({})


@contextmanager
def cluster(_folder: Path) -> Iterator[Elector]:
    """All nodes fire; row locks decide."""
    yield Elector({"MAINSPRING_COORDINATION": "cluster"}, led=False)


@contextmanager
def lock(_folder: Path) -> Iterator[Elector]:
    """Nodes contend for the lease of each firing."""
    yield Elector({"MAINSPRING_COORDINATION": "lock"}, led=False)


@contextmanager
def redis(folder: Path) -> Iterator[Elector]:
    """One Redis."""
    server = RedisServer(folder).start()
    try:
        yield Elector({"MAINSPRING_LEASE": server.url}, requests=lambda: _redis_commands(server))
    finally:
        server.kill()


@contextmanager
def redlock(folder: Path) -> Iterator[Elector]:
    """Three Redis that know nothing of each other."""
    with ExitStack() as stack:
        servers = [RedisServer(folder).start() for _ in range(3)]
        for server in servers:
            stack.callback(server.kill)
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
        yield Elector(
            {"MAINSPRING_LEASE": f"redlock://{hosts}"}, requests=lambda: sum(_redis_commands(each) for each in servers)
        )


@contextmanager
def etcd(folder: Path) -> Iterator[Elector]:
    """One member of etcd."""
    server = EtcdServer(folder).start()

    def requests() -> float:
        text = httpx.get(f"http://127.0.0.1:{server.port}/metrics").text
        return sum(map(float, re.findall(r"^grpc_server_started_total\{.*\} (\S+)$", text, re.MULTILINE)))

    try:
        yield Elector({"MAINSPRING_LEASE": server.url}, requests=requests)
    finally:
        server.kill()


@contextmanager
def zookeeper(folder: Path) -> Iterator[Elector]:
    """One server of ZooKeeper."""
    server = ZooKeeperServer(folder).start()

    def requests() -> float:
        found = re.search(r"zk_packets_received\s+(\d+)", server.ask("mntr"))
        return float(found[1]) if found else 0.0

    try:
        yield Elector({"MAINSPRING_LEASE": server.url}, kill_s=1.0, requests=requests)
    finally:
        server.kill()


@contextmanager
def kubernetes(folder: Path) -> Iterator[Elector]:
    """The API server of Kubernetes, at a lease of 4 s."""
    with _kubernetes(folder, {"MAINSPRING_LEASE_TTL": "4s", "MAINSPRING_LEASE_RENEW": "500ms"}, "3s", 5.0) as elector:
        yield elector


@contextmanager
def kubernetes_default(folder: Path) -> Iterator[Elector]:
    """The same at its defaults: a lease of 15 s."""
    with _kubernetes(folder, {}, "10s", 20.0) as elector:
        yield elector


@contextmanager
def _kubernetes(folder: Path, times: dict[str, str], deadline: str, kill_s: float) -> Iterator[Elector]:
    program = find_program()
    if program is None:
        raise Failed("the API server is not built: `make kubernetes` does")
    server = KubernetesServer(folder, program)
    server.start()

    def requests() -> float:
        text = server.ask("GET", "/metrics").text
        counted = re.findall(r'^apiserver_request_total\{.*resource="leases".*\} (\S+)$', text, re.MULTILINE)
        return sum(map(float, counted))

    try:
        config = server.write_kubeconfig(folder / "config")
        url = f"kubernetes://default/bench?renew_deadline={deadline}&kubeconfig={config}"
        yield Elector({"MAINSPRING_LEASE": url, **times}, kill_s=kill_s, requests=requests)
    finally:
        server.stop()


def _redis_commands(server: RedisServer) -> float:
    with socket.create_connection(("127.0.0.1", server.port), 2) as connection:
        connection.sendall(b"INFO stats\r\n")
        found = re.search(rb"total_commands_processed:(\d+)", connection.recv(65_536))
    return float(found[1]) if found else 0.0


ELECTORS = {
    "database": database,
    "cluster": cluster,
    "lock": lock,
    "redis": redis,
    "redlock": redlock,
    "etcd": etcd,
    "zookeeper": zookeeper,
    "kubernetes": kubernetes,
    "kubernetes-default": kubernetes_default,
}
"""Each way to coordinate, by name."""
