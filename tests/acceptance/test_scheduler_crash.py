"""The leading scheduler of 1,000 jobs is killed (-9): another leads within seconds, no instant is lost or doubled, and
submission, execution and reads go on meanwhile. The figures are printed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from mainspring.ops.drill.site import ask
from store_places import places

JOBS, EVERY_S = 1_000, 5
APP = f"""
from mainspring import Mainspring, every

app = Mainspring(name="crowd")


@app.task
async def work() -> None: ...


for number in range({JOBS}):
    app.job(every("{EVERY_S}s"), name=f"job-{{number}}", misfire="all", grace="5m")(work)
"""
MOST_S = 120.0
"""The recovery time objective of a scheduler: two minutes."""
LEDGER = "SELECT job_id, fire_at, outcome FROM mainspring.firings ORDER BY job_id, fire_at"


class Fleet:
    """Two servers and a worker on one database."""

    def __init__(self, folder: Path, store: str) -> None:
        (folder / "crowd.py").write_text(APP)
        self._folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        self._environ = kept | {"MAINSPRING_STORE": store}
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.others: list[subprocess.Popen[bytes]] = []

    def serve(self) -> str:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        self.servers[url] = self._start("server", "crowd.py", "--port", str(port))
        until(lambda: status(f"{url}/health/ready") == 200, f"{url} is ready")
        return url

    def work(self) -> None:
        self.others.append(self._start("worker", "crowd.py"))

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mainspring", *words]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(command, cwd=self._folder, env=self._environ, stdout=log, stderr=log)

    def leader(self, asked: str) -> str:
        """The server that leads, as one of them says; empty if none does."""
        found = httpx.get(f"{asked}/v1/cluster", timeout=10).json()["leaders"]
        pids = {int(term["owner"].split(":")[1]) for term in found if term["name"] == "scheduler"}
        return next((url for url, process in self.servers.items() if process.pid in pids), "")

    def end(self) -> None:
        for process in (*self.servers.values(), *self.others):
            process.kill()
            process.wait()


def status(url: str) -> int:
    try:
        return httpx.get(url, timeout=10).status_code
    except httpx.HTTPError:
        return 0


def until(look: Callable[[], object], what: str, limit_s: float = MOST_S) -> float:
    """How long it took until something held."""
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < limit_s, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def test_a_crashed_scheduler_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    with places("postgres", tmp_path) as make:
        store = make()
        fleet = Fleet(tmp_path, store)
        try:
            walk_through(fleet, store)
        finally:
            fleet.end()


def walk_through(fleet: Fleet, store: str) -> None:
    """Kill the leader in the middle of its work, and follow what happens."""
    first, second = fleet.serve(), fleet.serve()
    fleet.work()
    until(lambda: len(ledger(store)) == JOBS, "every job has fired")
    leader = fleet.leader(first)
    other = second if leader == first else first
    assert leader, "no node leads"
    fleet.servers[leader].kill()
    killed, kept_up = time.monotonic(), KeptUp(other)
    until(lambda: kept_up.look() and fleet.leader(other) == other, "the other server leads")
    elected_s = time.monotonic() - killed
    fires = {job: len(found) for job, found in ledger(store).items()}
    until(lambda: kept_up.look() and all(len(found) > fires[job] for job, found in ledger(store).items()), "all fire")
    resumed_s = time.monotonic() - killed
    assert resumed_s < MOST_S
    assert (kept_up.errors, kept_up.submitted > 0) == (0, True)
    until(kept_up.has_succeeded, "what was submitted meanwhile is executed")
    kept_up.close()
    check_ledger(store)
    print(
        f"\nanother leads after {elected_s:.1f} s; every one of {JOBS} jobs has fired again after {resumed_s:.1f} s "
        f"(they are due each {EVERY_S} s); meanwhile {kept_up.submitted} submissions, {kept_up.errors} errors, "
        f"slowest {kept_up.slowest_s * 1e3:.0f} ms; lost 0, doubled 0"
    )


def ledger(store: str) -> dict[str, list[int]]:
    """The instants at which each job fired."""
    found = defaultdict[str, list[int]](list)
    for row in ask(store, LEDGER):
        found[row["job_id"]].append(row["fire_at"])
    return found


def check_ledger(store: str) -> None:
    """No instant was missed, and none fired twice."""
    for job, instants in ledger(store).items():
        gaps = {after - before for before, after in pairwise(instants)}
        assert gaps == {EVERY_S * 1_000_000}, (job, instants)
    assert not [row for row in ask(store, LEDGER) if row["outcome"] in ("missed", "skipped")]


class KeptUp:
    """What goes on while no scheduler leads: submission, execution and reads."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30)
        self._last = ""
        self.submitted = self.errors = 0
        self.slowest_s = 0.0

    def look(self) -> bool:
        """Submit a run, and read it."""
        began = time.monotonic()
        answer = self._client.post("/v1/runs", json={"task": "work"})
        body: dict[str, Any] = answer.json()
        read = self._client.get(f"/v1/runs/{body.get('run_id')}")
        self.errors += (answer.status_code, read.status_code) != (201, 200)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.submitted, self._last = self.submitted + 1, str(body.get("run_id"))
        return True

    def close(self) -> None:
        """Ask no more."""
        self._client.close()

    def has_succeeded(self) -> bool:
        """Whether the newest submission was executed."""
        return bool(self._client.get(f"/v1/runs/{self._last}").json()["state"] == "succeeded")
