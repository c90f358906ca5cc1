"""Two `up` on one file: one plans, the other stands by and takes over, whether the first is killed or stopped."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from judging import judge

from mainspring.testing.servers.process import free_port

APP = """
import os
from pathlib import Path

from mainspring import every
from mainspring.testing.chaos.inside.recording import RecordedApp

app = RecordedApp(Path.cwd(), f"up-{os.getpid()}", name="standby")


@app.job(every("500ms"), misfire="all", grace="10s")
async def tick() -> None: ...
"""


class Nodes:
    """`mainspring up` processes on one file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "x.db"
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "work.py").write_text(APP)

    def start(self, *options: str, **environ: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mainspring", "up", "work.py", "--store", "sqlite:///x.db", *options]
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=self.folder, env={**os.environ, **environ}, **quiet)
        self.processes[process.pid] = process
        return process

    def ask(self, query: str) -> list[tuple[object, ...]]:
        connection = sqlite3.connect(self._file, timeout=5)
        try:
            return connection.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []  # it has not been made yet
        finally:
            connection.close()

    def leader(self) -> tuple[int, int]:
        """The newest term and the process that holds it."""
        (row,) = self.ask("SELECT number, owner FROM terms") or [(0, "::")]
        return int(str(row[0])), int(str(row[1]).split(":")[1] or 0)

    def wait(self, what: str, done: Callable[[], bool], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
            time.sleep(0.02)

    def end(self) -> None:
        """Kill all that are left."""
        while self.processes:
            _, process = self.processes.popitem()
            process.kill()
            process.wait()

    def firings(self) -> list[int]:
        return [int(str(row[0])) for row in self.ask("SELECT fire_at FROM firings ORDER BY fire_at")]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    nodes.end()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_the_stand_by_takes_over_and_no_instant_is_lost_or_doubled(nodes: Nodes, end: signal.Signals) -> None:
    nodes.start()
    nodes.start()
    nodes.wait("firings", lambda: len(nodes.firings()) >= 3)
    nodes.wait("two workers", lambda: nodes.ask("SELECT count(*) FROM workers")[0][0] == 2)
    term, leader = nodes.leader()
    assert leader in nodes.processes
    os.kill(leader, end)
    nodes.processes.pop(leader).wait(timeout=40)
    nodes.wait("a new leader", lambda: nodes.leader()[0] > term)
    assert nodes.leader()[1] in nodes.processes
    seen = len(nodes.firings())
    nodes.wait("more firings", lambda: len(nodes.firings()) > seen + 4)
    instants = nodes.firings()
    steps = {later - earlier for earlier, later in pairwise(instants)}
    assert steps == {500_000}
    nodes.end()
    verdict = judge(nodes.folder, f"sqlite:///{nodes.folder / 'x.db'}")
    assert verdict.ok, str(verdict)
    assert {1, 4, 5, 17} <= set(verdict.judged)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_the_api_is_served_by_the_stand_by_once_the_first_has_ended(nodes: Nodes, end: signal.Signals) -> None:
    port = free_port()

    def answers() -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{port}/v1/jobs/tick").status_code == 200
        return False

    first = nodes.start(MAINSPRING_PORT=str(port))
    nodes.wait("the API", answers)
    second = nodes.start(MAINSPRING_PORT=str(port))
    nodes.wait("two workers", lambda: nodes.ask("SELECT count(*) FROM workers")[0][0] == 2)
    assert nodes.start("--port", str(port)).wait(timeout=20) == 1, "a port on the command line must be free"
    first.send_signal(end)
    nodes.processes.pop(first.pid).wait(timeout=40)
    nodes.wait("the API of the other", answers)
    second.terminate()
    assert nodes.processes.pop(second.pid).wait(timeout=40) == 0
