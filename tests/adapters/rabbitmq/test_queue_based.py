"""The example of queue-based scheduling: the scheduler executes nothing, and the workers grow with the load."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_servers import find_server
from mainspring import Mainspring
from mainspring.cli.main import run
from mainspring.store import RunFilter

pytestmark = pytest.mark.brokers

APP = Path(__file__).parents[3] / "examples" / "queue_based" / "work.py"
CUSTOMERS = 60
REPORTS = RunFilter(task="report", states=("succeeded",), limit=500)
QUICK = [
    "--interval",
    "200ms",
    "--up-window",
    "0s",
    "--up-percent",
    "900",
    "--depth-per-worker",
    "5",
    "--min",
    "1",
    "--max",
    "3",
]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """The processes of the page, by their command."""
    monkeypatch.setenv("MAINSPRING_STORE", f"sqlite:///{tmp_path / 'jobs.db'}")
    monkeypatch.setenv("MAINSPRING_BROKER", f"{find_server('RABBITMQ')}?prefix={secrets.token_hex(4)}.&timeout=10s")
    monkeypatch.setenv("CUSTOMERS", str(CUSTOMERS))
    commands = {
        "server": ["server", str(APP), "--port", "0", "--quiet"],
        "scale": ["scale", *QUICK, "--", "worker", str(APP), "--concurrency", "2", "--quiet"],
    }
    with (tmp_path / "log").open("wb") as log:
        processes = {
            name: subprocess.Popen([sys.executable, "-m", "mainspring", *words], env=os.environ, stdout=log, stderr=log)
            for name, words in commands.items()
        }
    yield processes
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    for process in processes.values():
        process.wait(60)


async def test_workers_grow_with_what_the_scheduler_publishes(started: dict[str, subprocess.Popen[bytes]]) -> None:
    async with Mainspring() as app:
        store = await app.open()

        workers = set[str]()
        async with asyncio.timeout(120):
            while not await store.find_jobs("default", ["daily_reports"]):
                await asyncio.sleep(0.1)
            assert await asyncio.to_thread(run, ["job", "trigger", "daily_reports"]) == 0
            while len(done := await store.list_runs(REPORTS)) < CUSTOMERS:
                workers |= {row.id for row in await store.list_workers("default") if row.state == "active"}
                await asyncio.sleep(0.1)
        workers |= {row.id for row in await store.list_workers("default")}
        assert len(done) == CUSTOMERS == len({each.id for each in done})
        assert len(workers) > 1
        assert {each.worker for each in done} <= workers
        assert all(f":{started['server'].pid}" not in str(each.worker) for each in done)
