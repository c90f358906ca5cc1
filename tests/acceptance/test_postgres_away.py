"""The database is not there when a process starts, or cannot be reached when it is to stop."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest
from server import make_server

from mainspring import Mainspring
from mainspring.testing.servers.postgres import Postgres
from mainspring.testing.servers.proxy import Proxy

PATIENCE_S = 60.0
KINDS = pytest.mark.parametrize("kind", [["up", "--port", "0"], ["worker"]], ids=["up", "worker"])


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    server = make_server()
    yield server
    server.close()


class Process:
    """`mainspring …`, and what it says."""

    def __init__(self, folder: Path, url: str, *words: str) -> None:
        self._log = folder / f"{words[0]}.log"
        settings = {"MAINSPRING_STORE": url, "MAINSPRING_DRAIN_GRACE": "2s"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mainspring", *words],
                env=os.environ | settings,
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    def said(self) -> str:
        return self._log.read_text()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    async def ends(self) -> int:
        return await asyncio.to_thread(self._process.wait, PATIENCE_S)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self.alive:
            self._process.kill()
        self._process.wait()


def _has_tried_twice(process: Process) -> bool:
    return process.said().count("trying again in") >= 2


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts processes that do not outlive the test."""
    started: list[Process] = []

    def begin(url: str, *words: str) -> Process:
        started.append(Process(tmp_path, url, *words))
        return started[-1]

    yield begin
    for process in started:
        process.close()


async def until(done: Callable[[], bool], process: Process) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if done():
                    return
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(process.said())


async def works(url: str, workers: int) -> None:
    """Until there are this many workers, and a run ends."""
    async with asyncio.timeout(PATIENCE_S), Mainspring(url) as app:
        await (await app.submit("command", {"argv": ["true"]})).result()
        store = await app.open()
        while [each.state for each in await store.list_workers("default")] != ["active"] * workers:
            await asyncio.sleep(0.05)


async def test_a_process_that_starts_before_the_database_says_so_and_works_once_it_is_there(
    server: Postgres, start: Callable[..., Process]
) -> None:
    url = server.create("late")
    server.stop()
    processes = [start(url, "up", "--no-api"), start(url, "worker")]
    for process in processes:
        await until(partial(_has_tried_twice, process), process)
    server.start()
    await works(url, 2)
    for process in processes:
        process.terminate()
    assert [await process.ends() for process in processes] == [0, 0]


@KINDS
async def test_a_process_that_waits_for_the_database_can_be_stopped(
    server: Postgres, start: Callable[..., Process], kind: list[str]
) -> None:
    server.stop()
    try:
        process = start(server.url, *kind)
        await until(lambda: "trying again in" in process.said(), process)
        process.terminate()
        assert await process.ends() == 0
        assert "Stopped." in process.said()
    finally:
        server.start()


async def test_a_run_past_its_deadline_that_never_began_has_failed(
    server: Postgres, start: Callable[..., Process]
) -> None:
    server.stop()
    try:
        process = start(server.url, "up", "--no-api", "--for", "1s")
        assert await process.ends() == 1
        assert "Error: no server answers at" in process.said()
    finally:
        server.start()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url + "_not", "there is no such database at"),
        (lambda url: url.replace("mainspring@", "nobody@"), "does not let nobody in"),
    ],
    ids=["no such database", "no such user"],
)
async def test_what_waiting_does_not_mend_is_an_error_at_once(
    server: Postgres, start: Callable[..., Process], change: Callable[[str], str], words: str
) -> None:
    process = start(change(server.url), "up", "--no-api")
    assert await process.ends() == 1
    assert words in process.said()
    assert "trying again" not in process.said()


@KINDS
@pytest.mark.parametrize("fault", ["swallowed", "refused"])
async def test_a_process_that_stops_while_the_database_is_away_stops_in_order(
    server: Postgres, start: Callable[..., Process], kind: list[str], fault: str
) -> None:
    proxy = Proxy(server.port, Random(1))
    proxy.start()
    url = server.create(f"cut_{proxy.port}")
    try:
        process = start(url.replace(str(server.port), str(proxy.port)), *kind)
        await works(url, 1)
        if fault == "refused":
            proxy.point_to(1)
            proxy.cut()
        else:
            proxy.block()
        process.terminate()
        assert await process.ends() == 0, process.said()
        assert "Stopped." in process.said()
        assert "Error" not in process.said()
    finally:
        proxy.close()
