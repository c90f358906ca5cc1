"""Real processes that a real broker delivers to, and a client that submits while the broker has trouble."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from judging import judge

from mainspring import Mainspring
from mainspring.errors import StoreUnavailable
from mainspring.testing.chaos.inside.recording import RecordedApp

APP = Path(__file__).with_name("crash_app.py")
FAST = {"MAINSPRING_CLAIM_TTL": "2s", "MAINSPRING_CLAIM_RENEW": "500ms", "MAINSPRING_WORKER_DEAD_AFTER": "3s"}


class Cluster:
    """One scheduler and two workers on one file, and a client beside them."""

    def __init__(self, folder: Path, broker: str, settings: Mapping[str, str]) -> None:
        """`broker` is a URL; `settings` are variables of the environment of the processes."""
        self.folder = folder
        self.store = f"sqlite:///{folder / 'broker.db'}"
        self.broker = broker
        self.settings = settings
        self.client = RecordedApp(folder, "client", store=self.store, broker=self.broker, name="client")
        self.accepted: list[str] = []
        self.events: Counter[str] = Counter()
        """How many of each kind were recorded, as `count` knows them."""
        self.processes = [self.start("server", "--port", "0"), self.start("worker"), self.start("worker")]

    def start(self, command: str, *options: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **FAST, **self.settings}
        environment |= {"CRASH_FOLDER": str(self.folder), "MAINSPRING_BROKER": self.broker}
        words = [sys.executable, "-m", "mainspring", command, str(APP), *options, "--store", self.store, "--quiet"]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(words, env=environment, stdout=log, stderr=log)

    async def submit(self, count: int, *, pace_s: float = 0.01) -> None:
        for number in range(count):
            self.accepted.append(await self._submit_one(number))
            await asyncio.sleep(pace_s)

    async def _submit_one(self, number: int) -> str:
        """The file may be locked for seconds on a machine with too much to do: a client submits again then. Both
        submissions may have been accepted; the history has the other as one whose answer was not heard."""
        async with asyncio.timeout(60):
            while True:
                with suppress(StoreUnavailable):
                    return (await self.client.submit("submitted", {"number": number})).id

    async def submit_until(self, over: asyncio.Event, pace_s: float) -> None:
        while not over.is_set():
            await self.submit(10, pace_s=pace_s)

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

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts, its thread can count events."""
        app, self._position = Mainspring(self.store), 0
        self.events.clear()
        self._brokers: dict[str | None, str] = {}
        with asyncio.Runner() as self._runner:
            self._watched = self._runner.run(app.open())
            yield
            self._runner.run(app.close())

    def count(self, kind: str) -> int:
        """How many events of a kind were recorded so far."""
        for batch in self._runner.run(self._watched.events_since(self._position, 100_000)):
            self.events.update(event.kind for event in batch.events)
            self._brokers |= {event.worker: event.kind for event in batch.events if event.kind.startswith("broker.")}
            self._position = batch.position + len(batch.events)
        return self.events[kind]

    def has_lost_broker(self) -> bool:
        """Whether a process does without its broker now. On a busy machine some do before anything has happened."""
        self.count("broker.lost")
        return "broker.lost" in self._brokers.values()

    def kill_all(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait(20)


def check(cluster: Cluster) -> None:
    assert len(set(cluster.accepted)) == len(cluster.accepted) > 0
    verdict = judge(cluster.folder, cluster.store, brokered=True)
    assert verdict.ok, str(verdict)
    assert {3, 4, 5} <= set(verdict.judged)


def run_through(
    folder: Path,
    broker: str,
    trouble: Callable[[Cluster], None],
    settings: Mapping[str, str] | None = None,
    *,
    pace_s: float = 0.01,
) -> Counter[str]:
    """Submit before, during (at this pace) and after trouble; how many events of each kind were published."""
    cluster = Cluster(folder, broker, settings or {})

    def suffer() -> None:
        with cluster.watched():
            trouble(cluster)

    def look_back() -> Counter[str]:
        with cluster.watched():
            cluster.count("")
        return cluster.events

    async def live() -> Counter[str]:
        await cluster.submit(40)
        async with asyncio.timeout(60):
            await cluster.client.waiting.until_ended(cluster.accepted[-1])
        over = asyncio.Event()
        going_on = asyncio.create_task(cluster.submit_until(over, pace_s))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(suffer)
        over.set()
        await going_on
        await cluster.submit(50)
        await cluster.end()
        return await asyncio.to_thread(look_back)

    try:
        reported = asyncio.run(live())
    finally:
        cluster.kill_all()
    check(cluster)
    return reported


def wait_for_load(cluster: Cluster, count: int) -> None:
    """This many more are accepted."""
    begun = len(cluster.accepted)
    wait(lambda: len(cluster.accepted) >= begun + count)


def wait_for_events(cluster: Cluster, kind: str, count: int = 1) -> None:
    """At least this many events of this kind were published."""
    wait(lambda: cluster.count(kind) >= count)


def wait(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Until something holds; not for ever."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
