"""Processes that elect their leader by etcd, ZooKeeper or the Lease of Kubernetes, on real servers, with wall clocks an
hour apart. Leaders die and stand still, the elector's own leader dies, a leader is cut off from the elector or from the
store, the elector is slow, all of it is away: one firing per instant. The same where no node leads."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random, random
from typing import Any

import psycopg
import pytest
from judging import judge
from server import make_server, need_faketime

from electors import KINDS, Elector, started
from mainspring.testing.chaos.inside.timing import measure_epoch, skewed
from mainspring.testing.servers.postgres import Postgres
from mainspring.testing.servers.proxy import Proxy

APP = """
import asyncio
import os
from pathlib import Path

from mainspring import every
from mainspring.testing.chaos.inside.recording import RecordedApp
from mainspring.testing.chaos.inside.timing import StoreTime, live_skewed

live_skewed()
app = RecordedApp(Path.cwd(), f"up-{os.getpid()}", true=StoreTime(int(os.environ["EPOCH"])), name="elected")


@app.job(every("200ms"), misfire="all", grace="5m")
async def tick() -> None:
    await asyncio.sleep(float(os.environ.get("LENGTH_S", "0")))
"""
PERIOD_US = 200_000
PATIENCE_S = 180.0
"""How long to wait for anything: at a load of 30, five nodes took more than a minute to start."""
SHORT = {"MAINSPRING_LEASE_TTL": "2s", "MAINSPRING_LEASE_RENEW": "300ms"}
"""For Kubernetes, whose default is a lease of 15 s."""
HASTY = {"MAINSPRING_CLAIM_TTL": "3s", "MAINSPRING_CLAIM_RENEW": "1s", "MAINSPRING_WORKER_DEAD_AFTER": "3s"}
SKEWS_S = (0, 3600, -1800)
LONGEST_GAP_S = 40.0
"""Between two writes of firings. On a calm machine a cut-off leader costs up to 7 s, on Kubernetes 13 s."""
OPEN = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND client_port = ANY ('{{{ports}}}') AND xact_start IS NOT NULL
"""
"""Transactions of a process. Not only idle ones: on a loaded machine the server may still execute the statement of a
process that was stopped, and its transaction stays open after that, with its locks."""


class Stage:
    """A database of its own, and nodes on it: each reaches the store and the elector through proxies of its own."""

    def __init__(self, folder: Path, server: Postgres, stack: ExitStack, elector: Elector | None = None) -> None:
        self.folder, self._server, self._stack, self._elector = folder, server, stack, elector
        self.url = server.create(f"test_{os.urandom(4).hex()}")
        self._connection = stack.enter_context(psycopg.connect(self.url, autocommit=True))
        self._epoch = asyncio.run(measure_epoch(self.url))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.to_store: dict[int, Proxy] = {}
        self.to_elector: dict[int, list[Proxy]] = {}
        (folder / "work.py").write_text(APP)
        stack.callback(self.end)

    def start(self, **environ: str) -> int:
        """One more node; its process id."""
        store = self._proxy(self._server.port)
        to_elector = [] if self._elector is None else [self._proxy(each.port) for each in self._elector.members]
        if self._elector is not None:
            ports = [proxy.port for proxy in to_elector]
            environ |= {"MAINSPRING_LEASE": self._elector.url("test", ports=ports, timeout="900ms")}
            environ |= SHORT if self._elector.kind == "kubernetes" else {}
        environ |= skewed(SKEWS_S[len(self.processes) % len(SKEWS_S)]) | {"EPOCH": str(self._epoch)}
        environ["MAINSPRING_STORE"] = self.url.replace(f":{self._server.port}/", f":{store.port}/")
        with (self.folder / f"log-{len(self.to_store)}").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "mainspring", "up", "work.py", "--no-api"],
                cwd=self.folder,
                env={**os.environ, **environ},
                stdout=log,
                stderr=log,
            )
        self.processes[process.pid] = process
        self.to_store[process.pid], self.to_elector[process.pid] = store, to_elector
        return process.pid

    def _proxy(self, port: int) -> Proxy:
        proxy = Proxy(port, Random(7))
        proxy.start()
        self._stack.callback(proxy.close)
        return proxy

    def ready(self) -> None:
        """Wait until all nodes are there, and firings."""
        self.wait("all workers", lambda: self.ask("SELECT count(*) FROM mainspring.workers") == len(self.processes))
        self.wait_for_firings(3)

    def ask(self, query: str) -> Any:
        """The first value of the answer; None before there are tables."""
        try:
            row = self._connection.execute(query.encode()).fetchone()
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return None
        return None if row is None else row[0]

    def leader(self) -> tuple[int, int]:
        """The newest term and the process that holds it."""
        number, owner = self.ask("SELECT ARRAY[number::text, owner] FROM mainspring.terms WHERE name = 'scheduler'")
        return int(number), int(owner.split(":")[1])

    def column(self, column: str) -> list[int]:
        rows = self._connection.execute(f"SELECT {column} FROM mainspring.firings ORDER BY {column}".encode())
        return [int(value) for (value,) in rows]

    def wait(self, what: str, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            if time.monotonic() > deadline:
                ended = {pid: process.poll() for pid, process in self.processes.items()}
                raise AssertionError(f"{what}: not within {PATIENCE_S} s; exit codes of the nodes: {ended}")
            time.sleep(0.02)

    def wait_for_firings(self, count: int = 8) -> None:
        seen = self.ask("SELECT count(*) FROM mainspring.firings") or 0
        counted = "SELECT count(*) FROM mainspring.firings"
        self.wait(f"{count} more firings", lambda: (self.ask(counted) or 0) >= seen + count)

    def wait_for_leader(self, since: tuple[int, int]) -> None:
        """Wait until another process leads, and fires."""
        self.wait("another leader", lambda: self.leader()[0] > since[0] and self.leader()[1] != since[1])
        self.wait_for_firings()

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self.processes.pop(pid).wait(timeout=PATIENCE_S)

    def pause(self, pid: int) -> None:
        """Stop a process, but not within a transaction: its locks would stop every node until the server ends it."""
        for _ in range(50):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.3)
            ports = ",".join(map(str, self.to_store[pid].own_ports()))
            if self.ask(OPEN.format(ports=ports)) == 0:
                return
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.1 + random() * 0.3)  # It ends its transactions meanwhile.
        raise AssertionError("the process is in a transaction whenever it is stopped")

    def end(self) -> None:
        """Kill all nodes."""
        while self.processes:
            _, process = self.processes.popitem()
            process.kill()
            process.wait()

    def check(self, invariants: Sequence[int] = (1, 4, 5, 17)) -> None:
        """Every instant has its firing, once and in time, whichever node fired it."""
        self.wait_for_firings()
        assert {later - earlier for earlier, later in pairwise(self.column("fire_at"))} == {PERIOD_US}
        written = self.column("created_at")
        assert max(later - earlier for earlier, later in pairwise(written)) / 1e6 < LONGEST_GAP_S
        self.end()
        verdict = judge(self.folder, self.url)
        assert verdict.ok, str(verdict)
        assert set(invariants) <= set(verdict.judged)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    need_faketime()
    server = make_server()
    yield server
    server.close()


def lose_a_member(stage: Stage, elector: Elector) -> None:
    """The elector's own leader dies; or, of the one API server, it answers slowly."""
    if len(elector.members) > 1:
        killed = elector.leader()
        killed.kill()
        stage.wait_for_firings(15)
        killed.begin()
        return
    for (proxy,) in stage.to_elector.values():
        proxy.delay_s = 1.0
    stage.wait_for_firings(10)
    for (proxy,) in stage.to_elector.values():
        proxy.delay_s = 0.0


def kill_leader(stage: Stage, _elector: Elector) -> None:
    before = stage.leader()
    stage.kill(before[1])
    stage.wait_for_leader(before)


def pause_leader(stage: Stage, _elector: Elector) -> None:
    before = stage.leader()
    stage.pause(before[1])
    stage.wait_for_leader(before)
    os.kill(before[1], signal.SIGCONT)


def cut_off_from_elector(stage: Stage, _elector: Elector) -> None:
    """The leader gives way, for good: the two do not overtake each other for ever."""
    before = stage.leader()
    for proxy in stage.to_elector[before[1]]:
        proxy.block()
    stage.wait_for_leader(before)

    def has_settled() -> bool:
        settled = stage.leader()
        stage.wait_for_firings(15)
        return settled[1] != before[1] and stage.leader() == settled

    stage.wait("a leader that the elector knows", has_settled)
    for proxy in stage.to_elector[before[1]]:
        proxy.unblock(forget=True)


def cut_off_from_store(stage: Stage, _elector: Elector) -> None:
    """A leader that holds the lease, and cannot write, releases it."""
    before = stage.leader()
    stage.to_store[before[1]].block()
    stage.wait_for_leader(before)
    stage.to_store[before[1]].unblock(forget=True)


def lose_elector(stage: Stage, elector: Elector, firings: int = 15) -> None:
    """All of it is away: the store's lease stands in."""
    elector.kill()
    stage.wait_for_firings(firings)
    elector.start()
    stage.wait_for_firings(15)


def lose_elector_for_30_s(stage: Stage, elector: Elector) -> None:
    lose_elector(stage, elector, 30_000_000 // PERIOD_US)


Act = Callable[[Stage, Elector], None]
SOME: Sequence[Act] = (kill_leader, cut_off_from_elector, lose_elector)
ALL: Sequence[Act] = (lose_a_member, kill_leader, cut_off_from_store, pause_leader, cut_off_from_elector, lose_elector)


def play(kind: str, acts: Sequence[Act], server: Postgres, folder: Path) -> None:
    """One act after the other, on the same nodes; then the judgement."""
    (folder / "elector").mkdir()
    members = 3 if lose_a_member in acts and kind != "kubernetes" else 1
    with ExitStack() as stack, started(kind, folder / "elector", members=members) as elector:
        stage = Stage(folder, server, stack, elector)
        for _ in SKEWS_S:
            stage.start()
        stage.ready()
        for act in acts:
            act(stage, elector)
        stage.check()


@pytest.mark.parametrize(("kind", "acts"), [("etcd", ALL), ("zookeeper", SOME), ("kubernetes", SOME)], ids=KINDS)
def test_one_firing_per_instant_whatever_fails(
    kind: str, acts: Sequence[Act], server: Postgres, tmp_path: Path
) -> None:
    play(kind, acts, server, tmp_path)


@pytest.mark.slow_electors
@pytest.mark.parametrize("kind", KINDS)
def test_one_firing_per_instant_though_the_elector_is_down_for_30_s(
    kind: str, server: Postgres, tmp_path: Path
) -> None:
    play(kind, (*ALL[:-1], lose_elector_for_30_s), server, tmp_path)


def test_without_a_leader_another_node_recovers_what_a_killed_one_left(server: Postgres, tmp_path: Path) -> None:
    environ = {"MAINSPRING_COORDINATION": "cluster", "MAINSPRING_CHECK_IN": "500ms", "LENGTH_S": "1"}
    with ExitStack() as stack:
        stage = Stage(tmp_path, server, stack)
        doomed, _ = stage.start(**environ, **HASTY), stage.start(**environ, **HASTY)
        stage.ready()
        held = f"SELECT array_agg(id) FROM mainspring.runs WHERE state = 'running' AND worker LIKE '%:{doomed}:%'"
        stage.wait("runs of the node", lambda: bool(stage.ask(held)))
        stage.kill(doomed)
        left = stage.ask(held)
        assert left, "it was killed while it worked"
        stage.wait_for_firings()
        unfinished = f"SELECT count(*) FROM mainspring.runs WHERE id = ANY('{{{','.join(left)}}}')"
        stage.wait("the runs of the killed node", lambda: stage.ask(unfinished) == 0)
        stage.check((1, 4, 5))
