"""What OpenTelemetry costs: draining no-ops on SQLite tracing off, on, sampled: `python -m bench.engine.tracing`

Each round is a process of its own, in turn, so that a change of the machine's load meets all of them alike. The cost is
that of CPU time, which other processes disturb less than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

BATCH = 10
"""Runs of one submission: a sampler decides once for each."""
DEFAULT = "default"
MODES = {"off": None, "metrics": "0", DEFAULT: DEFAULT, "1 %": "0.01", "10 %": "0.1", "all": "1"}
"""The share of submissions that is traced, or the default of Mainspring; metrics are exported each second wherever
tracing is on."""


class _Sink(BaseHTTPRequestHandler):
    """A collector that drops what it gets."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


async def drain(runs: int) -> tuple[float, float]:
    """Runs a second, and microseconds of CPU time for a run, of one process that submits first, and then executes."""
    from mainspring import Mainspring

    app = Mainspring(os.environ["MAINSPRING_STORE"], concurrency=100)
    done = 0

    @app.task
    async def nothing() -> None:
        nonlocal done
        done += 1

    async with app:
        for _ in range(runs // BATCH):
            await nothing.submit_many([{}] * BATCH)
        began, used = time.perf_counter(), time.process_time()
        async with app.running(schedule=False):
            while done < runs:  # noqa: ASYNC110  # What counts is counted in a worker's task: there is no event to wait for.
                await asyncio.sleep(0.01)
        return runs / (time.perf_counter() - began), (time.process_time() - used) / runs * 1e6


def one_round(share: str | None, runs: int, collector: str, source: str | None) -> tuple[float, float]:
    """The rate and the CPU time of one process, which runs Mainspring from another source folder if one is given."""
    with tempfile.TemporaryDirectory() as folder:
        given = {"MAINSPRING_STORE": f"sqlite:///{Path(folder) / 'bench.db'}"}
        if source is not None:
            given["PYTHONPATH"] = source
        if share is not None:
            given |= {"MAINSPRING_OTEL": collector, "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
        if share not in (None, DEFAULT):
            given |= {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": str(share)}
        command = [sys.executable, "-m", "bench.engine.tracing", "--drain", str(runs)]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        done = subprocess.run(command, env=inherited | given, check=True, capture_output=True, text=True)
        rate, used = map(float, done.stdout.split())
        return rate, used


def main() -> None:
    """Print the medians, beside tracing off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", help="the src folder of another version, which is measured in turns with this one")
    parser.add_argument("--drain", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.drain:
        print(*asyncio.run(drain(asked.drain)))
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    versions = {"": None} | ({", beside": asked.beside} if asked.beside else {})
    rounds: dict[tuple[str, str], list[tuple[float, float]]] = {
        (version, mode): [] for version in versions for mode in MODES
    }
    for _ in range(asked.rounds):
        for (version, mode), found in rounds.items():
            url = f"http://127.0.0.1:{server.server_port}"
            found.append(one_round(MODES[mode], asked.runs, url, versions[version]))
    print(f"{asked.rounds} rounds of {asked.runs:,} runs, load {os.getloadavg()[0]:.1f}\n")
    print("| traced | runs/s | CPU time of a run | cost |\n|---|---|---|---|")
    for (version, mode), found in rounds.items():
        off = statistics.median(used for _, used in rounds[version, "off"])
        rate, used = (statistics.median(each) for each in zip(*found, strict=True))
        print(f"| {mode}{version} | {rate:,.0f} | {used:.1f} µs | {100 * (used / off - 1):+.1f} % |")


if __name__ == "__main__":
    main()
