"""Two versions of a program at work on one store, as in a rolling deploy; and several programs on one store."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import asyncpg
import pytest

from mainspring import Mainspring
from mainspring.core.answers import RunFilter
from mainspring.core.model import Run

T = TypeVar("T")
PATIENCE_S = 60.0
QUICK = {"MAINSPRING_CLAIM_RENEW": "500ms", "MAINSPRING_WORKER_DEAD_AFTER": "5s"}
OLD = """
from mainspring import Mainspring
app = Mainspring(name="films")

@app.task
async def encode(film: str) -> str:
    return f"old {film}"
"""
NEW = OLD.replace("film: str)", 'film: str, codec: str = "h264")').replace("old {film}", "new {film} {codec}")
LIMITED = """
import asyncio
from mainspring import Mainspring, Retry
app = Mainspring(name="films")
running, most = 0, 0

@app.task(limit=1, retry=Retry(0), timeout="20s", priority=2)
async def encode(film: str) -> int:
    global running, most
    running += 1
    most = max(most, running)
    await asyncio.sleep(0.05)
    running -= 1
    if film == "bad":
        raise ValueError(film)
    return most

@app.task(queue="slow")
async def decode() -> str:
    return "decoded"
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of its own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'mixed.db'}"
        return
    server = os.environ["MAINSPRING_TEST_POSTGRES"]  # `make test` names it.
    name = f"mixed_{uuid4().hex[:12]}"
    asyncio.run(_execute(server, f"CREATE DATABASE {name}"))
    yield f"{server}/{name}"
    asyncio.run(_execute(server, f"DROP DATABASE {name} WITH (FORCE)"))


async def _execute(server: str, statement: str) -> None:
    connection = await asyncpg.connect(f"{server}/postgres")
    await connection.execute(statement)
    await connection.close()


class Fleet:
    """Workers, each in a process and a folder of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, code: str, **settings: str) -> subprocess.Popen[bytes]:
        folder = self._folder / name
        folder.mkdir()
        (folder / "work.py").write_text(code)
        command = [sys.executable, "-m", "mainspring", "worker", "work.py", "--quiet", "--store", self._url]
        with (folder / "log").open("wb") as log:
            environment = os.environ | QUICK | settings
            process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def log(self, name: str) -> str:
        return (self._folder / name / "log").read_text()

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(timeout=PATIENCE_S)


@pytest.fixture
def fleet(url: str, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(url, tmp_path)
    yield fleet
    fleet.stop()


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """What a look finds, once it finds something."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if (found := await look()) is not None:
            return found
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.1)


async def workers(app: Mainspring, count: int) -> None:
    """Wait for this many workers that know their tasks."""

    async def look() -> bool | None:
        return len(await (await app.open()).announced("default", "encode")) >= count or None

    await until(look)


async def ended(app: Mainspring, ids: list[str]) -> list[Run]:
    async def look() -> list[Run] | None:
        runs = await (await app.open()).finished(ids)
        return runs if len(runs) == len(ids) else None

    return await until(look)


class TestARollingDeploy:
    async def test_runs_with_a_new_argument_wait_for_the_new_code_and_none_is_lost(
        self, url: str, fleet: Fleet
    ) -> None:
        async with Mainspring(url, name="web") as app:
            fleet.start("old", OLD)
            await workers(app, 1)
            runs = [await app.submit("encode", {"film": str(n), "codec": "av1"}) for n in range(20)]
            runs += [await app.submit("encode", {"film": str(n)}) for n in range(20)]
            store = await app.open()

            async def is_handed_back() -> Run | None:
                runs = await store.list_runs(RunFilter(states=("pending",), limit=1))
                return next((run for run in runs if "no live worker has code that fits it" in run.reason), None)

            waiting = await until(is_handed_back)
            assert waiting.attempt == 0
            fleet.start("new", NEW)
            found = await ended(app, [run.id for run in runs])
            assert {run.state for run in found} == {"succeeded"}
            assert {run.attempt for run in found} == {1}
            results = {run.result for run in found if "codec" in run.args}
            assert results == {f'"new {n} av1"' for n in range(20)}

    async def test_an_old_worker_leaves_such_runs_to_a_new_one_at_once(self, url: str, fleet: Fleet) -> None:
        async with Mainspring(url, name="web") as app:
            fleet.start("old", OLD)
            fleet.start("new", NEW)
            await workers(app, 2)
            runs = [await app.submit("encode", {"film": str(n), "codec": "av1"}) for n in range(100)]
            found = await ended(app, [run.id for run in runs])
            assert {(run.state, run.attempt) for run in found} == {("succeeded", 1)}

    async def test_a_run_that_nobody_fits_fails_when_the_bound_has_passed(self, url: str, fleet: Fleet) -> None:
        async with Mainspring(url, name="web") as app:
            fleet.start("old", OLD, MAINSPRING_UNFIT_WAIT="1s")
            run = await app.submit("encode", {"flim": "typo"})
            (found,) = await ended(app, [run.id])
            assert (found.state, "flim" in (found.error or "")) == ("failed", True)


class TestSeveralPrograms:
    async def test_the_options_of_a_task_hold_for_runs_submitted_by_name(self, url: str, fleet: Fleet) -> None:
        """Those that came before any worker announced the task, and those after."""
        async with Mainspring(url, name="web") as app:
            early = [await app.submit("encode", {"film": str(n)}) for n in range(8)]
            bad = await app.submit("encode", {"film": "bad"})
            fleet.start("limited", LIMITED)
            await workers(app, 1)
            later = [await app.submit("encode", {"film": str(n)}) for n in range(8)]
            slow = await app.submit("decode")
            urgent = await app.submit("encode", {"film": "x"}, priority=1)
            found = await ended(app, [run.id for run in (*early, *later, bad, slow, urgent)])
            by_id = {run.id: run for run in found}
            assert {by_id[run.id].result for run in (*early, *later)} == {"1"}, "never two at once"
            failed = by_id[bad.id]
            assert (failed.state, failed.attempt) == ("failed", 1), "its task says that it is not retried"
            assert {by_id[run.id].priority for run in later} == {2}
            assert (by_id[urgent.id].priority, by_id[slow.id].queue) == (1, "slow")

    async def test_a_worker_with_a_task_of_another_apps_name_is_refused_unless_that_is_allowed(
        self, url: str, fleet: Fleet
    ) -> None:
        async with Mainspring(url, name="web") as app:
            fleet.start("films", OLD)
            await workers(app, 1)
            other = OLD.replace('name="films"', 'name="books"').replace("old {film}", "book {film}")
            refused = fleet.start("books", other)
            assert await asyncio.to_thread(refused.wait, PATIENCE_S) == 1
            assert "also a task of app films" in fleet.log("books")
            fleet.start("allowed", other, MAINSPRING_SAME_TASKS="warn")
            await workers(app, 2)
            assert "also a task of app films" in fleet.log("allowed")
