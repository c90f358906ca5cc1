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
from random import Random
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
import os
from pathlib import Path

from mainspring import every
from mainspring.testing.chaos.inside.recording import RecordedApp
from mainspring.testing.chaos.inside.timing import StoreTime, live_skewed

live_skewed()
app = RecordedApp(Path.cwd(), f"up-{os.getpid()}", true=StoreTime(int(os.environ["EPOCH"])), name="elected")


@app.job(every("200ms"), misfire="all", grace="5m")
async def tick() -> None: ...
"""
PERIOD_US = 200_000
PATIENCE_S = 60.0
SHORT = {"MAINSPRING_LEASE_TTL": "2s", "MAINSPRING_LEASE_RENEW": "300ms"}
"""For Kubernetes, whose default is a lease of 15 s."""
SKEWS_S = (0, 3600, -1800)
LONGEST_GAP_S = 40.0
"""Between two writes of firings. On a calm machine a cut-off leader costs up to 7 s, on Kubernetes 13 s."""
OPEN = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in%' AND state_change < clock_timestamp() - interval '200 ms'
"""


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
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S} s"
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
            if self.ask(OPEN) == 0:
                return
            os.kill(pid, signal.SIGCONT)
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


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("kind", KINDS)
def test_one_firing_per_instant_whatever_fails(kind: str, server: Postgres, stack: ExitStack, tmp_path: Path) -> None:
    (tmp_path / "elector").mkdir()
    elector = stack.enter_context(started(kind, tmp_path / "elector", members=1 if kind == "kubernetes" else 3))
    stage = Stage(tmp_path, server, stack, elector)
    for _ in SKEWS_S:
        stage.start()
    stage.ready()

    if kind == "kubernetes":
        slow_down(stage)
    else:
        killed = elector.kill_leader()
        stage.wait_for_firings(15)
        killed.begin()

    before = stage.leader()
    stage.kill(before[1])
    stage.wait_for_leader(before)

    before = stage.leader()
    stage.pause(before[1])
    stage.wait_for_leader(before)
    os.kill(before[1], signal.SIGCONT)

    cut_off_from_elector(stage)
    cut_off_from_store(stage)

    elector.kill()
    stage.wait_for_firings(15)
    elector.start()
    stage.wait_for_firings(15)
    stage.check()


def slow_down(stage: Stage) -> None:
    """An API server that answers slowly."""
    for (proxy,) in stage.to_elector.values():
        proxy.delay_s = 1.0
    stage.wait_for_firings(10)
    for (proxy,) in stage.to_elector.values():
        proxy.delay_s = 0.0


def cut_off_from_elector(stage: Stage) -> None:
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


def cut_off_from_store(stage: Stage) -> None:
    """A leader that holds the lease, and cannot write, releases it."""
    before = stage.leader()
    stage.to_store[before[1]].block()
    stage.wait_for_leader(before)
    stage.to_store[before[1]].unblock(forget=True)


@pytest.mark.parametrize("coordination", ["cluster", "lock"])
def test_without_a_leader_another_node_recovers_what_a_killed_one_left(
    coordination: str, server: Postgres, stack: ExitStack, tmp_path: Path
) -> None:
    stage = Stage(tmp_path, server, stack)
    environ = {"MAINSPRING_COORDINATION": coordination, "MAINSPRING_CHECK_IN": "500ms"}
    doomed, _ = stage.start(**environ), stage.start(**environ)
    stage.ready()
    stage.kill(doomed)
    stage.wait_for_firings()
    seen = f"SELECT count(*) FROM mainspring.runs WHERE worker LIKE '%:{doomed}:%'"
    stage.wait("the runs of the killed node", lambda: stage.ask(seen) == 0)
    stage.check((1, 4, 5))
