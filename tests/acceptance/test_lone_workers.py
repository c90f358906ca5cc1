"""Workers alone, without any scheduler: what a killed one held is done by another, and a warning says that no node
schedules."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from server import make_server

from mainspring import Mainspring, every
from sdk_work import row_of

APP = Path(__file__).with_name("lone_app.py")
PATIENCE_S = 90.0
FAST = {"MAINSPRING_CLAIM_TTL": "3s", "MAINSPRING_CLAIM_RENEW": "1s", "MAINSPRING_WORKER_DEAD_AFTER": "4s"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'lone.db'}"
        return
    server = make_server()
    yield server.url
    server.close()


def start_worker(folder: Path, url: str) -> "subprocess.Popen[bytes]":
    with (folder / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "mainspring", "worker", str(APP), "--store", url],
            env=os.environ | FAST | {"NOTES": str(folder / "notes")}, cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip


async def test_the_run_of_a_killed_worker_is_done_by_another(url: str, tmp_path: Path) -> None:
    notes, log = tmp_path / "notes", tmp_path / "worker.log"
    notes.touch()
    async with Mainspring(url, name="client") as app:
        await app.jobs.add("report", every("1h"), task="slow")
        workers = [start_worker(tmp_path, url) for _ in range(2)]
        try:
            handle = await app.submit("slow")
            first = await _first_note(notes)
            os.kill(first, signal.SIGKILL)
            assert await handle.result(timeout=PATIENCE_S) == "done"
            (run, second) = (await row_of(handle), int(notes.read_text().split()[1]))
            assert (run.state, run.losses) == ("succeeded", 1)
            assert second != first
            assert "no scheduler runs, so no job fires (the next one would be report)" in log.read_text()
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()


def _words(notes: Path) -> list[str]:
    return notes.read_text().split()


async def _first_note(notes: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while not (words := _words(notes)):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    return int(words[0])
