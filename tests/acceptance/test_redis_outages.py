"""Real processes that a real Redis delivers to, while that is paused, emptied, killed and restarted, and workers die:
no run is lost, none is done twice, and the history checker has nothing to say."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from judging import judge
from redis import Redis

from mainspring import Mainspring
from mainspring.core.model import EventBatch
from mainspring.testing.chaos.recording import RecordedApp
from mainspring.testing.chaos.redis import RedisServer, is_installed
from missing import miss

APP = Path(__file__).with_name("crash_app.py")
FAST = {"MAINSPRING_CLAIM_TTL": "2s", "MAINSPRING_CLAIM_RENEW": "500ms", "MAINSPRING_WORKER_DEAD_AFTER": "3s"}


class Cluster:
    """One scheduler and two workers on one file, and a client beside them."""

    def __init__(self, folder: Path, redis: RedisServer) -> None:
        self.folder = folder
        self.redis = redis
        self.store = f"sqlite:///{folder / 'broker.db'}"
        self.broker = f"{redis.url}?timeout=300ms"
        self.client = RecordedApp(folder, "client", store=self.store, broker=self.broker, name="client")
        self.accepted: list[str] = []
        self.processes = [self.start("server", "--port", "0"), self.start("worker"), self.start("worker")]

    def start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        environment = os.environ | FAST | {"CRASH_FOLDER": str(self.folder), "MAINSPRING_BROKER": self.broker}
        words = [sys.executable, "-m", "mainspring", command, str(APP), *options, "--store", self.store, "--quiet"]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    async def submit(self, count: int, *, pace_s: float = 0.01) -> None:
        for number in range(count):
            handle = await self.client.submit("submitted", {"number": number})
            self.accepted.append(handle.id)
            await asyncio.sleep(pace_s)

    async def end(self) -> None:
        """All that was accepted ends; then the processes do."""
        async with asyncio.timeout(120):
            for run_id in self.accepted:
                await self.client.waiting.until_ended(run_id)
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            await asyncio.to_thread(process.wait, 60)
        await self.client.close()

    async def events(self) -> set[str]:
        app = Mainspring(self.store)
        batches: list[EventBatch] = await (await app.open()).events_since(0, 100_000)
        await app.close()
        return {event.kind for batch in batches for event in batch.events}

    def kill_all(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait(20)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    if not is_installed():
        miss("no Redis: `make services` installs one")
    server = RedisServer(tmp_path).start()
    yield server
    server.kill()


def check(cluster: Cluster) -> None:
    assert len(set(cluster.accepted)) == len(cluster.accepted) > 0
    verdict = judge(cluster.folder, cluster.store, brokered=True)
    assert verdict.ok, str(verdict)
    assert {3, 4, 5} <= set(verdict.judged)


def run_through(folder: Path, redis: RedisServer, trouble: Callable[[Cluster], None]) -> set[str]:
    """Submit before, during and after trouble; the kinds of events that were told."""
    cluster = Cluster(folder, redis)

    async def live() -> set[str]:
        await cluster.submit(40)
        async with asyncio.timeout(60):
            await cluster.client.waiting.until_ended(cluster.accepted[-1])
        going_on = asyncio.create_task(cluster.submit(200))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(trouble, cluster)
        await going_on
        await cluster.submit(50)
        await cluster.end()
        return await cluster.events()

    try:
        told = asyncio.run(live())
    finally:
        cluster.kill_all()
    check(cluster)
    return told


def test_workers_that_are_killed_with_work_in_their_hands(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        for number in (1, 2):
            cluster.processes[number].kill()
            cluster.processes[number].wait(20)
            cluster.processes[number] = cluster.start("worker")

    run_through(tmp_path, redis, trouble)


def test_a_redis_that_is_flushed_in_the_middle_of_it(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        with Redis(port=redis.port) as client:
            for _ in range(50):
                client.flushall()

    run_through(tmp_path, redis, trouble)


def test_a_redis_that_is_killed_and_comes_back_empty(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        redis.kill()
        _wait_for_events(cluster, "broker.lost")
        redis.start()
        _wait_for_events(cluster, "broker.back")

    assert {"broker.lost", "broker.back"} <= run_through(tmp_path, redis, trouble)


def test_a_redis_that_stands_still_for_a_while(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        redis.pause()
        _wait_for_events(cluster, "broker.lost")
        redis.resume()
        _wait_for_events(cluster, "broker.back")

    assert {"broker.lost", "broker.back"} <= run_through(tmp_path, redis, trouble)


def test_a_redis_that_is_full(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        with Redis(port=redis.port) as client:
            client.config_set("maxmemory", "1")
            _wait_for_load(cluster, 100)
            client.config_set("maxmemory", "0")

    run_through(tmp_path, redis, trouble)


def _wait_for_load(cluster: Cluster, count: int) -> None:
    """So many more are accepted."""
    begun = len(cluster.accepted)
    _wait(lambda: len(cluster.accepted) >= begun + count)


def _wait_for_events(cluster: Cluster, kind: str) -> None:
    _wait(lambda: kind in asyncio.run(cluster.events()))


def _wait(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
