"""Processes that elect their leader by etcd, ZooKeeper or the Lease of Kubernetes, on real servers: leaders die and
stand still, members of the elector die, all of it is away, one node is cut off from it, it is slow. One firing per
instant."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from judging import judge
from test_standby import Nodes

from kubernetes_standin import make_server
from mainspring.testing.servers.etcd import EtcdServer, start_cluster
from mainspring.testing.servers.kubernetes import KubernetesServer
from mainspring.testing.servers.process import ServerProcess
from mainspring.testing.servers.proxy import Proxy
from mainspring.testing.servers.zookeeper import ZooKeeperServer, start_ensemble

KINDS = ("etcd", "zookeeper", "kubernetes")
SHORT = {"MAINSPRING_LEASE_TTL": "4s", "MAINSPRING_LEASE_RENEW": "500ms"}
"""For Kubernetes, whose default is a lease of 15 s."""
LONGEST_GAP_S = 10.0
"""Between two firings of a job that fires twice a second; on a calm machine about 1 s, on Kubernetes 4 s."""


class Stage:
    """An elector, and nodes that use it, each through a proxy of its own."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack) -> None:
        self.kind, self._folder, self._stack = kind, folder, stack
        makers: dict[str, Callable[[], ServerProcess]] = {
            "etcd": lambda: EtcdServer(folder / "server"),
            "zookeeper": lambda: ZooKeeperServer(folder / "server"),
            "kubernetes": lambda: make_server(folder / "server"),
        }
        self.server = makers[kind]()
        self.server.start()
        stack.callback(self.server.stop if isinstance(self.server, KubernetesServer) else self.server.kill)
        self.nodes = Nodes(folder)
        stack.callback(self.nodes.end)
        self.proxies: dict[int, Proxy] = {}

    def start(self, count: int = 2) -> None:
        for _ in range(count):
            proxy = Proxy(self.server.port, Random(7))
            proxy.start()
            self._stack.callback(proxy.close)
            process = self.nodes.start(**self._environ(proxy.port))
            self.proxies[process.pid] = proxy
        self.nodes.wait("firings", lambda: len(self.nodes.firings()) >= 3, 40)
        alive = "SELECT count(*) FROM workers"
        self.nodes.wait("all workers", lambda: self.nodes.ask(alive)[0][0] == count, 40)

    def _environ(self, port: int) -> dict[str, str]:
        if isinstance(self.server, KubernetesServer):
            config = self.server.write_kubeconfig(self._folder / f"config-{port}", port=port)
            return SHORT | {"MAINSPRING_LEASE": f"kubernetes://default/test?timeout=500ms&kubeconfig={config}"}
        return {"MAINSPRING_LEASE": f"{self.kind}://127.0.0.1:{port}?timeout=500ms"}

    def pause(self, pid: int) -> None:
        """Stop a process, but not while it holds the lock of the database file: that would stop every node."""
        for _ in range(100):
            os.kill(pid, signal.SIGSTOP)
            with closing(sqlite3.connect(self._folder / "x.db", timeout=0.5)) as connection:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError:
                    os.kill(pid, signal.SIGCONT)
        raise AssertionError("the process holds the lock whenever it is stopped")

    def wait_for_firings(self, count: int) -> None:
        seen = len(self.nodes.firings())
        self.nodes.wait(f"{count} more firings", lambda: len(self.nodes.firings()) > seen + count, 60)

    def check(self) -> None:
        """Every instant has its firing, once and in time, whichever node led."""
        self.wait_for_firings(4)
        nodes = self.nodes
        assert {later - earlier for earlier, later in pairwise(nodes.firings())} == {500_000}
        written = [int(str(row[0])) for row in nodes.ask("SELECT created_at FROM firings ORDER BY created_at")]
        assert max(later - earlier for earlier, later in pairwise(written)) / 1e6 < LONGEST_GAP_S
        nodes.end()
        verdict = judge(nodes.folder, f"sqlite:///{nodes.folder / 'x.db'}")
        assert verdict.ok, str(verdict)
        assert {1, 4, 5, 17} <= set(verdict.judged)


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / "server").mkdir()
    with ExitStack() as stack:
        yield Stage(request.param, tmp_path, stack)


@pytest.mark.parametrize("stage", KINDS, indirect=True)
def test_leaders_that_die_or_stand_still_are_succeeded(stage: Stage) -> None:
    stage.start(3)
    term, leader = stage.nodes.leader()
    os.kill(leader, signal.SIGKILL)
    stage.nodes.processes.pop(leader).wait(timeout=40)
    stage.nodes.wait("a new leader", lambda: stage.nodes.leader()[0] > term, 40)
    stage.wait_for_firings(3)
    term, leader = stage.nodes.leader()
    stage.pause(leader)
    stage.nodes.wait("another leader", lambda: stage.nodes.leader()[0] > term, 40)
    os.kill(leader, signal.SIGCONT)
    stage.check()


@pytest.mark.parametrize("stage", KINDS, indirect=True)
def test_while_the_elector_is_away_the_store_stands_in(stage: Stage) -> None:
    stage.start()
    stage.server.kill()
    stage.wait_for_firings(6)
    stage.server.start()
    stage.wait_for_firings(5)
    stage.check()


@pytest.mark.parametrize("stage", KINDS, indirect=True)
def test_a_leader_that_is_cut_off_from_the_elector_gives_way(stage: Stage) -> None:
    stage.start()
    _, leader = stage.nodes.leader()
    stage.proxies[leader].block()
    stage.wait_for_firings(4)
    stage.nodes.wait("a leader that the elector knows", lambda: stage.nodes.leader()[1] != leader, 40)
    stage.wait_for_firings(5)
    settled = stage.nodes.leader()
    assert settled[1] != leader
    stage.wait_for_firings(6)
    assert stage.nodes.leader() == settled, "the two do not overtake each other for ever"
    stage.proxies[leader].unblock(forget=True)
    stage.check()


@pytest.mark.parametrize("stage", ["kubernetes"], indirect=True)
def test_an_api_server_that_answers_slowly_costs_no_firing(stage: Stage) -> None:
    stage.start()
    for proxy in stage.proxies.values():
        proxy.delay_s = 1.5
    stage.wait_for_firings(6)
    for proxy in stage.proxies.values():
        proxy.delay_s = 0.0
    stage.check()


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_the_leader_of_the_elector_itself_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "server").mkdir()
    members = start_cluster(tmp_path / "server") if kind == "etcd" else start_ensemble(tmp_path / "server")
    monkeypatch.setenv("MAINSPRING_LEASE", f"{members[0].url}?timeout=900ms")
    nodes = Nodes(tmp_path)
    try:
        nodes.start()
        nodes.start()
        nodes.wait("firings", lambda: len(nodes.firings()) >= 3, 40)
        next(member for member in members if member.leads()).kill()
        seen = len(nodes.firings())
        nodes.wait("more firings", lambda: len(nodes.firings()) > seen + 7, 60)
        assert {later - earlier for earlier, later in pairwise(nodes.firings())} == {500_000}
    finally:
        nodes.end()
        for member in members:
            member.kill()
    verdict = judge(nodes.folder, f"sqlite:///{nodes.folder / 'x.db'}")
    assert verdict.ok, str(verdict)
