"""Real workers: killed, given notice, and past deadlines, with real work in their hands."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from scene import is_alive, pids_in

from mainspring import Mainspring, Retry
from mainspring.core.instants import SECOND
from mainspring.core.states import FINAL
from sdk_work import row_of, stored_run

APP = """
import os, subprocess, sys, time
from pathlib import Path
from mainspring import Mainspring, Retry, current_run
app = Mainspring()

@app.task(timeout="60s", retry=Retry(0))
def work(file: str) -> int:
    child = subprocess.Popen(["setsid", "sleep", "60"])
    with open(file, "a") as pids:
        pids.write(f"{os.getpid()} {child.pid}\\n")
    if current_run().token == 1:
        time.sleep(60)
    return current_run().token

@app.task(timeout="700ms", retry=Retry(0))
def overrun(file: str) -> None:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(file, "a") as pids:
        pids.write(f"{os.getpid()} {subprocess.Popen(['setsid', 'sleep', '60']).pid}\\n")
    time.sleep(60)

@app.task(alert="tell", retry=Retry(0))
async def break_down() -> None:
    raise ValueError("broken")

@app.task(timeout="60s")
def talk(gate: str) -> None:
    print("first", flush=True)
    while not Path(gate).exists():
        time.sleep(0.02)
    print("second")

@app.task
async def tell(failure: dict[str, object]) -> None:
    with open("alerts", "a") as alerts:
        alerts.write(str(failure["run_id"]) + "\\n")

@app.task
async def nap(seconds: float) -> str:
    import asyncio
    await asyncio.sleep(seconds)
    return "slept"
"""
FAST = {
    "MAINSPRING_CLAIM_TTL": "1s",
    "MAINSPRING_CLAIM_RENEW": "200ms",
    "MAINSPRING_WORKER_DEAD_AFTER": "1s",
    "MAINSPRING_DRAIN_GRACE": "2s",
    "MAINSPRING_PORT": "0",
}
PATIENCE_S = 30


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Mainspring]:
    """The same store, without the tasks."""
    (tmp_path / "app.py").write_text(APP)
    async with Mainspring(f"sqlite:///{tmp_path / 'test.db'}") as app:
        yield app


@asynccontextmanager
async def up(folder: Path, **environment: str) -> AsyncIterator[asyncio.subprocess.Process]:
    env = {**os.environ, **FAST, "MAINSPRING_STORE": f"sqlite:///{folder / 'test.db'}", **environment}
    argv = [sys.executable, "-m", "mainspring", "up", "app.py", "--quiet"]
    process = await asyncio.create_subprocess_exec(*argv, cwd=folder, env=env)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    async with asyncio.timeout(seconds):
        while True:
            answer = condition()
            if await answer if asyncio.iscoroutine(answer) else answer:
                return
            await asyncio.sleep(0.02)


async def has_ended(app: Mainspring, run_id: str) -> bool:
    return (await stored_run(app, run_id)).state in FINAL


async def test_a_worker_that_is_killed_leaves_no_process_and_its_run_is_done_again(
    app: Mainspring, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    run = await app.submit("work", {"file": str(file)}, timeout="60s")
    async with up(tmp_path) as worker:
        await until(lambda: pids_in(file, 2))
        worker.kill()
        await worker.wait()
    await until(lambda: not [pid for pid in pids_in(file) if is_alive(pid)])
    async with up(tmp_path):
        await until(lambda: has_ended(app, run.id))
    ended = await stored_run(app, run.id)
    assert ended.state == "succeeded"
    assert ended.losses >= 1  # On a loaded machine the next worker may lose its claim, too.
    assert int(ended.result or "0") > 1
    await until(lambda: not [pid for pid in pids_in(file) if is_alive(pid)])


async def test_past_its_deadline_the_whole_family_is_dead_when_that_is_recorded(
    app: Mainspring, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    run = await app.submit("overrun", {"file": str(file)}, timeout="700ms", retry=Retry(0))
    async with up(tmp_path):
        await until(lambda: has_ended(app, run.id))
        assert not [pid for pid in pids_in(file, 2) if is_alive(pid)]
    ended = await stored_run(app, run.id)
    assert ended.reason.startswith("TimeoutError: not done within its timeout of 700ms")
    assert ended.finished_at is not None
    assert ended.started_at is not None
    assert ended.finished_at - ended.started_at < 15 * SECOND


async def test_a_host_that_gets_notice_finishes_what_it_can_and_hands_the_rest_back(
    app: Mainspring, tmp_path: Path
) -> None:
    short, long = [await app.submit("nap", {"seconds": seconds}) for seconds in (1.0, 60.0)]
    async with up(tmp_path, MAINSPRING_NOTICE=str(tmp_path / "notice")) as worker:

        async def both_run() -> bool:
            return all([(await row_of(each)).state == "running" for each in (short, long)])

        await until(both_run)
        (tmp_path / "notice").touch()
        async with asyncio.timeout(PATIENCE_S):
            assert await worker.wait() == 0
    assert (await row_of(short)).state == "succeeded"
    rest = await row_of(long)
    assert (rest.state, rest.attempt, rest.losses) == ("pending", 0, 0)


async def test_a_process_that_is_killed_between_a_failure_and_its_alert_takes_no_alert_with_it(
    app: Mainspring, tmp_path: Path
) -> None:
    async with up(tmp_path) as worker:
        await until(lambda: leads(app))
        runs = [await app.submit("break_down", alert="tell", retry=Retry(0)) for _ in range(20)]
        await until(lambda: has_ended(app, runs[-1].id))
        worker.kill()
        await worker.wait()
    reported = tmp_path / "alerts"
    async with up(tmp_path):
        await until(lambda: reported.exists() and len(set(reported.read_text().split())) == 20)
    assert set(reported.read_text().split()) == {run.id for run in runs}


async def leads(app: Mainspring) -> bool:
    """Whether there is a worker, and so a node."""
    return bool(await (await app.open()).list_workers("default"))
