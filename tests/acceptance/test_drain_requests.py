"""A worker process that is asked through the store to drain: it ends as on SIGTERM, and others do what it leaves."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from server import make_server

from mainspring import Mainspring
from sdk_work import row_of

APP = Path(__file__).with_name("lone_app.py")
PATIENCE_S = 90.0
FAST = {"MAINSPRING_CLAIM_TTL": "6s", "MAINSPRING_CLAIM_RENEW": "1s", "MAINSPRING_DRAIN_GRACE": "1s"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'drained.db'}"
        return
    server = make_server()
    yield server.url
    server.close()


class Site:
    """Processes of one folder, which share a log."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.notes = folder / "notes"
        self.notes.touch()
        self.processes: list[subprocess.Popen[bytes]] = []

    def _words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "mainspring", *words, "--store", self.url]

    @property
    def _environ(self) -> dict[str, str]:
        return os.environ | FAST | {"NOTES": str(self.notes)}

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(self._words(*words), env=self._environ, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._words(*words),
            env=self._environ,
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def named(self, process: "subprocess.Popen[bytes]") -> str:
        """How a worker is called, once it is listed."""
        end = f":{process.pid}"

        def listed() -> list[str]:
            return [word for word in self.command("workers").stdout.split() if word.endswith(end)]

        until(lambda: bool(listed()))
        return listed()[0]


@pytest.fixture
def site(tmp_path: Path, url: str) -> Iterator[Site]:
    site = Site(tmp_path, url)
    yield site
    for process in site.processes:
        process.kill()
        process.wait()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_a_worker_that_is_asked_ends_and_another_does_its_run(site: Site) -> None:
    async with Mainspring(site.url, name="client") as app:
        asked = site.start("worker", str(APP))
        name = await asyncio.to_thread(site.named, asked)
        handle = await app.submit("slow")
        await asyncio.to_thread(until, lambda: bool(site.notes.read_text()))
        answer = await asyncio.to_thread(site.command, "drain", name)
        assert (answer.returncode, answer.stdout.endswith("is asked to drain.\n")) == (0, True)
        assert await asyncio.to_thread(asked.wait, PATIENCE_S) == 0
        assert "was asked to drain" in site.log
        run = await row_of(handle)
        assert (run.state, run.attempt, run.losses) == ("pending", 0, 0)
        idle = site.start("worker", str(APP))
        assert await handle.result(timeout=PATIENCE_S) == "done"
        other = await asyncio.to_thread(site.named, idle)
        assert (await asyncio.to_thread(site.command, "drain", other)).returncode == 0
        assert await asyncio.to_thread(idle.wait, PATIENCE_S) == 0
    again = await asyncio.to_thread(site.command, "drain", other)
    assert again.returncode == 1
    assert "is stopped (last heard of at" in again.stderr


async def test_of_a_process_that_also_schedules_the_worker_stops_alone(site: Site) -> None:
    process = site.start("up", str(APP), "--no-api")
    name = await asyncio.to_thread(site.named, process)
    assert (await asyncio.to_thread(site.command, "drain", name)).returncode == 0
    await asyncio.to_thread(until, lambda: "has drained and stopped; the rest of this process goes on" in site.log)
    async with Mainspring(site.url, name="client") as app:
        store = await app.open()
        assert [row.state for row in await store.list_workers("default")] == ["stopped"]
        position = await store.next_position()
        await app.submit("slow")

        async def is_told() -> bool:
            return bool(await store.events_since(position, 10))

        deadline = time.monotonic() + PATIENCE_S
        while not await is_told():  # The relay numbers events, so its process schedules.
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
    assert process.poll() is None
    process.terminate()
    assert await asyncio.to_thread(process.wait, PATIENCE_S) == 0
