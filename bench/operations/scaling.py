"""`python -m bench.operations.scaling [--redis URL] [--workers 4] [--rounds 3]`: the time from a step of the load to
added capacity, and back, beside Celery's autoscaler.

Both start at one process and may have `--workers`. Each process executes one run at a time. The step is a batch of runs
that keeps all of them busy. Up is the time from the submission until as many processes have begun a run. Down is the
time from the end of the last run until one process is left. Both look once a second, grow at once, and shrink
`--idle` seconds after the load has gone: Mainspring by its windows, Celery by AUTOSCALE_KEEPALIVE. A process of
Mainspring is a worker of its own, which Celery's parent forks.

Without `--redis`, Mainspring runs alone. It takes half a minute for each round and side.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench.harness.figures import show
from bench.harness.running import Failed

PATIENCE_S = 60.0
RUNS_EACH = 12
"""Runs in the step, for each process that may come."""
RUN_S = 0.5
WORK = f"""
import os, time

def note(word):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{{word}} {{os.getpid()}} {{time.time()}}\\n")

def work():
    note("begin")
    time.sleep({RUN_S})
    note("end")
"""
OURS = (
    WORK
    + """
from mainspring import Mainspring

app = Mainspring(name="scaling")
work = app.task(work)


async def submit(count):
    async with app:
        await work.submit_many([{}] * count)
"""
)
CELERY = (
    WORK
    + """
from celery import Celery

app = Celery("scaling", broker=os.environ["REDIS"])
app.conf.update(worker_prefetch_multiplier=1, task_default_queue=os.environ["QUEUE"], worker_send_task_events=False)
work = app.task(name="work")(work)
"""
)


class Side:
    """One autoscaler with its processes."""

    def __init__(self, folder: Path, source: str, environment: dict[str, str]) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.touch()
        (folder / "scaling_work.py").write_text(source)
        self.environment = {**os.environ, **environment, "NOTES": str(self.notes), "PYTHONPATH": str(folder)}

    def start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """The autoscaler."""
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *argv], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )

    def call(self, code: str) -> None:
        """Run code of a client."""
        subprocess.run([sys.executable, "-c", code], cwd=self.folder, env=self.environment, check=True)

    def noted(self, word: str) -> list[tuple[int, float]]:
        """The process and the time of each begin, or end."""
        lines = [line.split() for line in self.notes.read_text().splitlines()]
        return [(int(line[1]), float(line[2])) for line in lines if line[0] == word]


def wait(what: str, done: Callable[[], bool], log: Path) -> None:
    """Until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline:
            raise Failed(f"not within {PATIENCE_S:g} s: {what}; {log.read_text()[-500:]}")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def measure(side: Side, argv: Sequence[str], submit: Callable[[int], str], workers: int) -> tuple[float, float]:
    """Seconds up, and down."""
    side.call(submit(1))
    scaler = side.start(argv)
    log = side.folder / "log"
    try:
        wait("the first run", lambda: len(side.noted("end")) == 1, log)
        time.sleep(2.0)  # It has settled.
        count = RUNS_EACH * workers
        side.call(f"import time; open('step', 'w').write(str(time.time()))\n{submit(count)}")
        stepped_at = float((side.folder / "step").read_text())

        def began() -> dict[int, float]:
            """The first begin of each process since the step."""
            found: dict[int, float] = {}
            for pid, at in side.noted("begin"):
                if at >= stepped_at:
                    found.setdefault(pid, at)
            return found

        wait("all runs", lambda: len(side.noted("end")) == count + 1, log)
        first = began()
        if len(first) < workers:
            raise Failed(f"{len(first)} of {workers} processes came: {log.read_text()[-500:]}")
        up_s = sorted(first.values())[workers - 1] - stepped_at
        ended_at = max(at for _, at in side.noted("end"))
        wait("one process left", lambda: sum(map(is_alive, first)) <= 1, log)
        return up_s, time.time() - ended_at
    finally:
        scaler.terminate()
        try:
            scaler.wait(60)
        except subprocess.TimeoutExpired:
            scaler.kill()
            scaler.wait()


def ours(folder: Path, workers: int, idle: int) -> tuple[float, float]:
    """`mainspring scale`."""
    side = Side(folder, OURS, {"MAINSPRING_STORE": f"sqlite:///{folder / 'scaling.db'}"})
    bounds = ["--min", "1", "--max", str(workers), "--interval", "1s", "--depth-per-worker", "1"]
    windows = ["--up-window", "0s", "--up-percent", "10000", "--down-window", f"{idle}s", "--down-workers", "100"]
    command = ["worker", "scaling_work.py", "--concurrency", "1", "--quiet"]
    code = "import asyncio; from scaling_work import submit\nasyncio.run(submit({}))"
    return measure(side, ["mainspring", "scale", *bounds, *windows, "--", *command], code.format, workers)


def celery(folder: Path, workers: int, idle: int, redis: str) -> tuple[float, float]:
    """`celery worker --autoscale`."""
    queue = f"scaling-{os.getpid()}-{time.monotonic_ns()}"
    side = Side(folder, CELERY, {"REDIS": redis, "QUEUE": queue, "AUTOSCALE_KEEPALIVE": str(idle)})
    argv = ["celery", "-A", "scaling_work", "worker", f"--autoscale={workers},1", "-Q", queue, "-O", "fair"]
    code = "from scaling_work import work\nfor _ in range({}): work.delay()"
    return measure(side, [*argv, "--without-gossip", "--without-mingle"], code.format, workers)


def main() -> int:
    """Both, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", help="the broker of Celery; without one, Mainspring alone")
    parser.add_argument("--workers", type=int, default=4, help="how many processes there may be")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=5, help="seconds without load before processes end")
    options = parser.parse_args()
    sides: dict[str, Callable[[Path], tuple[float, float]]] = {
        "mainspring scale": lambda folder: ours(folder, options.workers, options.idle)
    }
    if options.redis:
        sides["celery worker --autoscale"] = lambda folder: celery(folder, options.workers, options.idle, options.redis)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, play in sides.items():
            with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
                taken[name].append(play(Path(folder)))
    for name, rounds in taken.items():
        for way, seconds in zip(("up", "down"), zip(*rounds, strict=True), strict=True):
            each = " ".join(f"{value:.2f}" for value in sorted(seconds))
            print(f"{name}: {way} {show(median(seconds), 's')} (1 to {options.workers} processes; {each})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
