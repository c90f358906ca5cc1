"""Work past its deadline in a real worker: it is reported, its result is refused, and no retry begins beside it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, Retry
from mainspring.core.states import FINAL
from sdk_work import stored_run

APP = """
import asyncio, os, time
from mainspring import Mainspring, current_run
app = Mainspring()

def beat(file):
    with open(file, "a") as beats:
        beats.write(f"{current_run().attempt} {time.monotonic()}\\n")

@app.task
async def late(seconds: float) -> str:
    time.sleep(seconds)
    return "too late"

@app.task
async def deaf(file: str) -> str:
    while current_run().attempt == 1:
        try:
            beat(file)
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            pass
    beat(file)
    return "second"

@app.task
async def blocking(file: str) -> str:
    while current_run().attempt == 1:
        beat(file)
        time.sleep(0.02)
    beat(file)
    return "second"

@app.task(isolation="none")
def threaded(file: str) -> str:
    while current_run().attempt == 1:
        beat(file)
        time.sleep(0.02)
    beat(file)
    return "second"

@app.task(isolation="none")
def slow_thread() -> str:
    while not current_run().cancelled:
        time.sleep(0.01)
    return "seen"

@app.task
async def nap(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return current_run().attempt
"""
FAST = {
    "MAINSPRING_DEAF_AFTER": "700ms",
    "MAINSPRING_BLOCKED_AFTER": "200ms",
    "MAINSPRING_DRAIN_GRACE": "5s",
}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Mainspring]:
    (tmp_path / "work.py").write_text(APP)
    app = Mainspring(f"sqlite:///{tmp_path}/test.db")
    await app.open()
    yield app
    await app.close()


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    environ = {**os.environ, **FAST, "MAINSPRING_STORE": f"sqlite:///{folder}/test.db"}
    argv = [sys.executable, "-m", "mainspring", "worker", "work.py"]
    file = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    process = await asyncio.create_subprocess_exec(*argv, cwd=folder, env=environ, stdout=file, stderr=file)
    os.close(file)
    try:
        yield process
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def ended(app: Mainspring, handle: Any, seconds: float = 40.0) -> Any:
    async with asyncio.timeout(seconds):
        while (run := await stored_run(app, handle.id)).state not in FINAL:
            await asyncio.sleep(0.02)
    return run


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def beats(file: Path) -> list[tuple[int, float]]:
    return [(int(line.split()[0]), float(line.split()[1])) for line in file.read_text().splitlines()]


async def test_a_result_after_the_deadline_is_refused_and_what_blocked_the_loop_is_named(
    app: Mainspring, tmp_path: Path
) -> None:
    async with worker(tmp_path) as process:
        handle = await app.submit("late", {"seconds": 1.0}, timeout="300ms", retry=Retry(0))
        run = await ended(app, handle)
        assert run.state == "failed"
        assert "not done within its timeout of 300ms" in run.reason
        assert f"task late (run {handle.id}) has blocked the event loop for" in said(tmp_path)
        assert "time.sleep(seconds)" in said(tmp_path)
        store = await app.open()
        lines = [line.text for _, line in await store.list_logs(handle.id)]
        assert any("has blocked the event loop of its worker" in line for line in lines)
        assert process.returncode is None


@pytest.mark.parametrize("task", ["deaf", "blocking", "threaded"])
async def test_what_cannot_be_stopped_never_overlaps_its_retry(app: Mainspring, tmp_path: Path, task: str) -> None:
    file = tmp_path / "beats"
    async with worker(tmp_path) as process:
        other = await app.submit("nap", {"seconds": 1.5})
        retry = Retry(1, delay="1ms", jitter=0)
        handle = await app.submit(task, {"file": str(file)}, timeout="300ms", retry=retry)
        run = await ended(app, handle)
        assert (run.state, run.result) == ("succeeded", '"second"'), (run.reason, said(tmp_path))
        assert process.returncode is None, "it is the same process, with another program in it"
        nap = await ended(app, other)
        assert nap.state == "succeeded"
        assert task == "blocking" or nap.result == "1", "what else ran was let finish"
    last_of_first = max(at for attempt, at in beats(file) if attempt == 1)
    first_of_second = min(at for attempt, at in beats(file) if attempt == 2)
    assert last_of_first < first_of_second
    assert "does not end although its time is up" in said(tmp_path)


async def test_a_thread_that_heeds_its_deadline_late_has_timed_out_and_costs_no_worker(
    app: Mainspring, tmp_path: Path
) -> None:
    async with worker(tmp_path):
        run = await ended(app, await app.submit("slow_thread", {}, timeout="300ms", retry=Retry(0)))
        assert run.state == "failed"
        assert "not done within its timeout of 300ms" in run.reason
        assert "does not end" not in said(tmp_path)
