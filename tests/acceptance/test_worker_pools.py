"""`worker --pool`, as a real process, by the claims of the store and by the deliveries of a real Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.store import RunFilter
from mainspring.testing.servers.redis import RedisServer

APP = Path(__file__).with_name("pool_app.py")
PATIENCE_S = 60


@pytest.fixture(params=["store", "redis"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str | None]:
    if request.param == "store":
        yield None
        return
    server = RedisServer(tmp_path).start()
    yield f"{server.url}?timeout=5s"
    server.kill()


def start(folder: Path, store: str, broker: str | None, *pools: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "mainspring", "worker", str(APP), "--store", store, "--quiet"]
    words += [word for pool in pools for word in ("--pool", pool)]
    words += [] if broker is None else ["--broker", broker]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(words, env=os.environ | {"POOL_FOLDER": str(folder)}, stdout=log, stderr=log)


async def until_running(app: Mainspring, wanted: dict[int, int]) -> None:
    store = await app.open()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            running = Counter(run.priority for run in await store.list_runs(RunFilter(states=("running",), limit=1000)))
            if running == wanted:
                return
            await asyncio.sleep(0.05)


def test_urgent_work_begins_beside_a_flood_of_low_work_and_low_work_beside_a_flood_of_urgent(
    tmp_path: Path, broker: str | None
) -> None:
    store = f"sqlite:///{tmp_path / 'pools.db'}"
    app = Mainspring(store, broker=broker, name="client")
    worker = start(tmp_path, store, broker, "1=4", "2=4", "3=2")

    async def live() -> None:
        low = [(await app.submit("hold", priority=3)).id for _ in range(30)]
        await until_running(app, {3: 2 + 3 + 3})
        urgent = [(await app.submit("hold", priority=1)).id for _ in range(30)]
        await until_running(app, {3: 8, 1: 2})
        (tmp_path / "end").touch()
        async with asyncio.timeout(PATIENCE_S):
            for run_id in low + urgent:
                await app.waiting.until_ended(run_id)
        await app.close()

    try:
        asyncio.run(live())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    finally:
        worker.kill()
        worker.wait(20)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--pool", "100"], "write priority=places"),
        (["--pool", "11=5"], "choose a whole number from 1 (highest) to 10 (lowest)"),
        (["--pool", "1=0"], "from 1 to 10000"),
        (["--pool", "1=5", "--pool", "1=6"], "names priority 1 again"),
        (["--pool", "1=5", "--concurrency", "3"], "--pool and --concurrency exclude each other"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_before_anything_is_made(
    tmp_path: Path, words: list[str], reported: str
) -> None:
    command = [sys.executable, "-m", "mainspring", "worker", "--store", "sqlite:///pools.db", *words]
    ended = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 2
    assert reported in " ".join(ended.stderr.split())
    assert list(tmp_path.iterdir()) == []
