"""Prefect's API on a database of its own: what it takes there to create a run that is due, as `POST /v1/runs` does.

As its documentation advises for speed: PostgreSQL by asyncpg, uvloop, no background services beside it, no page, logs
of errors only. It needs no token.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from bench.api.client import post
from bench.cluster.contestants import environment
from bench.harness.running import Failed
from bench.peers.installing import REQUIREMENTS, install

NAME = "Prefect"
START_S = 90.0


@contextmanager
def serving(host: str, port: int, store: str) -> Iterator[Callable[[], bytes]]:
    """Its server while it is measured; the request that creates a run. Failed if it cannot be installed or started."""
    home = environment("prefect")
    install(home, REQUIREMENTS / "prefect.txt")
    words = ["server", "start", "--no-ui", "--no-services", "--host", host, "--port", str(port)]
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "output").open("wb") as output:
            process = subprocess.Popen(
                [str(home / "bin" / "prefect"), *words], env=_settings(store, folder), stdout=output, stderr=output
            )
        try:
            flow = _make_flow(f"http://{host}:{port}/api", process)
            body = {"flow_id": flow, "parameters": {"number": 1}, "state": {"type": "SCHEDULED"}}
            request = post(host, "/api/flow_runs/", json.dumps(body).encode())
            yield lambda: request
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _settings(store: str, folder: str) -> dict[str, str]:
    database = store.replace("postgresql://", "postgresql+asyncpg://").replace("sqlite:///", "sqlite+aiosqlite:///")
    return os.environ | {
        "PREFECT_API_DATABASE_CONNECTION_URL": database,
        "PREFECT_HOME": folder,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        "DO_NOT_TRACK": "1",
    }


def _make_flow(url: str, process: subprocess.Popen[bytes]) -> str:
    """Runs are of a flow. Once it can be made, the server serves."""
    request = Request(f"{url}/flows/", b'{"name": "nothing"}', {"Content-Type": "application/json"})
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(request, timeout=10) as answer:
                return str(json.load(answer)["id"])
        except (URLError, OSError):
            time.sleep(0.2)
    raise Failed(f"{NAME} did not start within {START_S:.0f} s")
