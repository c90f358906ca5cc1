"""`python -m bench.electors --store postgresql://user@host [--times 20] [--elector etcd …]`: the time without a leader
after it was killed (-9) or stopped properly, and until all runs of a killed worker run elsewhere.

`--elector` compares electors (all of them with `--elector all`), each at its own defaults: from the signal to the first
firing by another node, and the requests that the elector answers in a minute at rest. Where no node leads, any node is
killed, and the first firing after it counts.

Real processes: three `mainspring up` with a job every 100 ms; and for the workers one `up` that serves nothing, some
workers that are killed one after the other, and one that is left. Times are the server's: from the signal to the term
of the next leader and to its first firing, of a job every 100 ms; and to the last claim of the worker that is left.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg

from bench.electors.servers import ELECTORS, Elector
from bench.harness.figures import Row, percentile, show
from bench.harness.running import Failed
from mainspring import Mainspring

if TYPE_CHECKING:
    from bench.cluster.arena import Arena

DATABASE = "bench_failover"
NODES = 3
RUNS = 20
DOOMED, APART_S = 5, 0.5
PATIENCE_S = 60.0
REST_S = 15.0
OURS = "Mainspring"
APP = """
import asyncio

from mainspring import Mainspring, every

app = Mainspring(name="failover")


@app.job(every("100ms"), misfire="skip")
async def tick() -> None: ...


@app.task
async def long() -> None:
    await asyncio.sleep(600)
"""
_NOW = "SELECT mainspring.store_now(NULL)"
_TERM = "SELECT number, began_at, owner FROM mainspring.terms WHERE name = 'scheduler'"
_FIRST = "SELECT min(created_at) FROM mainspring.firings WHERE created_at >= %s AND outcome <> 'missed'"
_WORKERS = "SELECT count(*) FROM mainspring.workers WHERE state = 'active'"
_HELD = "SELECT count(*) FROM mainspring.runs WHERE task = 'long' AND state = 'running' AND worker LIKE %s"
_HELD_ONES = _HELD.replace("count(*)", "id")


class Stage:
    """A database of its own, and the processes on it."""

    def __init__(self, url: str, folder: Path, environment: dict[str, str] | None = None) -> None:
        self._url = url
        self._folder = folder
        self._environment = environment or {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "app.py").write_text(APP)
        self._connection = psycopg.connect(url, autocommit=True)

    def ask(self, query: str, *args: object) -> Any:
        """The first row of an answer."""
        return self._connection.execute(query.encode(), args).fetchone()

    def start(self, *command: str) -> int:
        """One more process; its id."""
        argv = [sys.executable, "-m", "mainspring", *command]
        with (self._folder / "log").open("ab") as log:
            environment = {**os.environ, "MAINSPRING_STORE": self._url, **self._environment}
            process = subprocess.Popen(argv, cwd=self._folder, env=environment, stdout=log, stderr=log)
        self.processes[process.pid] = process
        return process.pid

    def end(self, pid: int, how: signal.Signals) -> None:
        """Send a signal. A process that ends by itself is waited for later."""
        os.kill(pid, how)

    async def submit(self, count: int) -> None:
        """Runs that last."""
        app = Mainspring(self._url)
        for _ in range(count):
            await app.submit("long")
        await app.close()

    def forget(self, pid: int) -> None:
        """Wait for the end of a process that got a signal."""
        self.processes.pop(pid).wait(PATIENCE_S)

    def until(self, look: Callable[[], Any], what: str) -> Any:
        """What comes of looking again and again."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if found := look():
                return found
            time.sleep(0.005)
        raise Failed(f"not within {PATIENCE_S:g} s: {what}")

    def term_after(self, number: int) -> int:
        """When a later term than this began."""

        def look() -> int | None:
            row = self.ask(_TERM)
            return row[1] if row[0] > number else None

        return int(self.until(look, "a new term"))

    def first_since(self, instant: int) -> int:
        """When the first firing after an instant was written."""
        return int(self.until(lambda: self.ask(_FIRST, instant)[0], "a firing"))

    def held_by(self, pid: int) -> set[str]:
        """Which of them a worker holds."""
        rows = self._connection.execute(_HELD_ONES.encode(), (f"%:{pid}:%",)).fetchall()
        return {str(run_id) for (run_id,) in rows}

    def close(self) -> None:
        """End all."""
        self._connection.close()
        for process in self.processes.values():
            process.kill()
            process.wait()


def lead_times(stage: Stage, times: int, how: signal.Signals, random: Random) -> tuple[list[float], list[float]]:
    """Seconds from the end of each leader to the term of the next, and to its first firing."""
    led, fired = [], []
    for _ in range(times):
        while len(stage.processes) < NODES:
            stage.start("up", "app.py", "--quiet", "--no-api")
        stage.until(lambda: stage.ask(_WORKERS)[0] >= len(stage.processes), "all nodes")
        _, began_at, _ = stage.until(lambda: stage.ask(_TERM), "a leader")
        stage.first_since(began_at)
        time.sleep(1.0 + random.random())  # Not always at the same point of its renewals.
        number, _, owner = stage.ask(_TERM)  # On a busy machine another node may lead by now.
        leader = int(owner.split(":")[1])
        ended_at = stage.ask(_NOW)[0]
        stage.end(leader, how)
        begun_at = stage.term_after(number)
        led.append((begun_at - ended_at) / 1e6)
        fired.append((stage.first_since(begun_at) - ended_at) / 1e6)
        stage.forget(leader)
        stage.until(lambda: stage.ask(_WORKERS)[0] <= NODES, "the dead to be buried")
    return led, fired


def gap_times(stage: Stage, times: int, how: signal.Signals, random: Random) -> list[float]:
    """Seconds from the end of some node to the next firing, where no node leads."""
    fired = []
    for _ in range(times):
        while len(stage.processes) < NODES:
            stage.start("up", "app.py", "--quiet", "--no-api")
        stage.until(lambda: stage.ask(_WORKERS)[0] >= len(stage.processes), "all nodes")
        stage.first_since(stage.ask(_NOW)[0])
        time.sleep(1.0 + random.random())
        doomed = random.choice(list(stage.processes))
        ended_at = stage.ask(_NOW)[0]
        stage.end(doomed, how)
        fired.append((stage.first_since(ended_at) - ended_at) / 1e6)
        stage.forget(doomed)
        stage.until(lambda: stage.ask(_WORKERS)[0] <= NODES, "the dead to be buried")
    return fired


def compare_electors(server: str, names: Sequence[str], times: int) -> list[Row]:
    """Each elector's failover to the first firing by another node, and its requests at rest."""
    rows: list[Row] = []
    for name in names:
        try:
            rows += _measure_elector(server, name, times)
        except Failed as failure:
            if len(names) == 1:
                raise
            print(f"{name}: left out: {failure}", file=sys.stderr)
    return rows


def _measure_elector(server: str, name: str, times: int) -> list[Row]:
    random = Random(1)
    with (
        tempfile.TemporaryDirectory(prefix="elector-") as folder,
        ELECTORS[name](Path(folder)) as elector,
        staged(server, elector.environment) as stage,
    ):
        act = _led_times if elector.led else gap_times
        killed = act(stage, times, signal.SIGKILL, random)
        stopped = act(stage, times, signal.SIGTERM, random)
        rest = _requests_at_rest(stage, elector)
    rows = [
        _row(f"{name}: killed", killed, f"p99 under {elector.kill_s:g} s", elector.kill_s),
        _row(f"{name}: stopped", stopped, "p99 under 200 ms", 0.2),
    ]
    if rest is not None:
        rows.append(Row(f"{name}: requests a minute at rest", {OURS: f"{rest:,.0f}"}, rounds={OURS: []}))
    return rows


def _led_times(stage: Stage, times: int, how: signal.Signals, random: Random) -> list[float]:
    return lead_times(stage, times, how, random)[1]


def _requests_at_rest(stage: Stage, elector: Elector) -> float | None:
    """Of three nodes whose leader has settled."""
    if elector.requests is None:
        return None
    while len(stage.processes) < NODES:
        stage.start("up", "app.py", "--quiet", "--no-api")
    stage.until(lambda: stage.ask(_WORKERS)[0] >= len(stage.processes), "all nodes")
    time.sleep(3.0)
    before = elector.requests()
    time.sleep(REST_S)
    return (elector.requests() - before) * 60 / REST_S


def move_times(stage: Stage, times: int) -> list[float]:
    """Seconds from the death of a worker until all of its runs are held by another."""
    samples: list[float] = []
    stage.start("up", "app.py", "--quiet", "--no-api", "--queue", "nothing")
    while len(samples) < times:
        doomed = [stage.start("worker", "app.py", "--quiet", "--concurrency", str(RUNS)) for _ in range(DOOMED)]
        stage.until(lambda: stage.ask(_WORKERS)[0] >= len(stage.processes), "all workers")
        asyncio.run(stage.submit(DOOMED * RUNS))
        stage.until(lambda: stage.ask(_HELD, "%")[0] >= DOOMED * RUNS, "all runs to start")
        left = stage.start("worker", "app.py", "--quiet", "--concurrency", str(2 * DOOMED * RUNS))
        stage.until(lambda: stage.ask(_WORKERS)[0] >= len(stage.processes), "the other worker")
        samples += _die(stage, doomed, left)
        stage.ask("DELETE FROM mainspring.runs WHERE task = 'long' RETURNING id")
        stage.end(left, signal.SIGKILL)
        stage.forget(left)
        stage.until(lambda: stage.ask(_WORKERS)[0] <= len(stage.processes), "the dead to be buried")
    return samples


def _die(stage: Stage, doomed: Sequence[int], left: int) -> list[float]:
    """How long it took of each until another had all that was its own."""
    waiting, samples = {}, []
    for pid in doomed:
        waiting[pid] = (stage.held_by(pid), stage.ask(_NOW)[0])
        stage.end(pid, signal.SIGKILL)
        time.sleep(APART_S)

    def look() -> bool:
        moved, now = stage.held_by(left), stage.ask(_NOW)[0]
        for pid, (runs, ended_at) in list(waiting.items()):
            if runs <= moved:
                samples.append((now - ended_at) / 1e6)
                del waiting[pid]
        return not waiting

    stage.until(look, "all runs to go on")
    for pid in doomed:
        stage.forget(pid)
    return samples


@contextmanager
def staged(server: str, environment: dict[str, str] | None = None) -> Iterator[Stage]:
    """On a new database, which goes away."""
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)".encode())
        connection.execute(f"CREATE DATABASE {DATABASE}".encode())
        with tempfile.TemporaryDirectory(prefix="failover-") as folder:
            asyncio.run(_migrate(f"{server}/{DATABASE}"))
            stage = Stage(f"{server}/{DATABASE}", Path(folder), environment)
            try:
                yield stage
            finally:
                stage.close()
                connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)".encode())


async def _migrate(url: str) -> None:
    app = Mainspring(url)
    await app.open()
    await app.close()


def _row(measure: str, samples: Sequence[float], target: str = "", bound: float | None = None) -> Row:
    shown = [f"{name} {show(percentile(samples, share) * 1e3, 'ms')}" for name, share in (("p50", 0.5), ("p99", 0.99))]
    text = f"{', '.join(shown)}, max {show(max(samples) * 1e3, 'ms')} of {len(samples)}"
    met = None if bound is None else percentile(samples, 0.99) < bound
    return Row(measure, {OURS: text}, target=target, met=met, rounds={OURS: [*samples]})


def measure_on(server: str, times: int) -> list[Row]:
    """All three, on a server's own database."""
    random = Random(1)
    with staged(server) as stage:
        killed = lead_times(stage, times, signal.SIGKILL, random)
        stopped = lead_times(stage, times, signal.SIGTERM, random)
    with staged(server) as stage:
        moved = move_times(stage, times)
    return [
        _row("leader killed: next leader", killed[0], "p99 under 2 s", 2.0),
        _row("leader killed: next firing", killed[1]),
        _row("leader stopped: next leader", stopped[0], "p99 under 200 ms", 0.2),
        _row("leader stopped: next firing", stopped[1]),
        _row("worker killed: all its runs elsewhere", moved, "within 15 s", 15.0),
    ]


def measure(arena: Arena) -> list[Row]:
    """As one of the measures on servers."""
    return measure_on(arena.servers.postgres, arena.size(30, 3))


def main() -> int:
    """By itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="the URL of a server, without a database")
    parser.add_argument("--times", type=int, default=20, help="how often")
    parser.add_argument("--elector", nargs="+", choices=[*ELECTORS, "all"], help="compare these electors instead")
    options = parser.parse_args()
    server = options.store.rstrip("/")
    if options.elector:
        names = list(ELECTORS) if "all" in options.elector else options.elector
        rows = compare_electors(server, names, options.times)
    else:
        rows = measure_on(server, options.times)
    for row in rows:
        verdict = {True: "met", False: "missed", None: ""}[row.met]
        print(f"{row.measure}: {row.cells[OURS]} {row.target} {verdict}")
        if row.rounds[OURS]:
            print("  " + " ".join(f"{sample * 1e3:.0f}" for sample in sorted(row.rounds[OURS])) + " ms")
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
