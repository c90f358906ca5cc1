"""`mainspring scale` with real worker processes: it grows, drains, dies, and is succeeded without harm to work."""

import asyncio
import csv
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from io import StringIO
from pathlib import Path

import pytest

from examples.running import new_database
from mainspring import Mainspring
from mainspring.cli.main import run
from mainspring.core.load.scaling import ScalingPolicy
from mainspring.core.model import Worker
from mainspring.ops.scaling.fleet import choose_to_drain
from mainspring.ops.scaling.simulation import Day, simulate_day

APP = Path(__file__).with_name("scaling_app.py")
PATIENCE_S = 90.0
FAST = {
    "MAINSPRING_CLAIM_TTL": "10s",
    "MAINSPRING_CLAIM_RENEW": "500ms",
    "MAINSPRING_WORKER_DEAD_AFTER": "10s",
    "MAINSPRING_DRAIN_GRACE": "100s",
}
QUICK = (
    "--interval",
    "200ms",
    "--up-window",
    "0s",
    "--down-window",
    "1s",
    "--down-workers",
    "10",
    "--up-percent",
    "900",
)


class Site:
    """A store, an autoscaler, and the workers that it leaves behind."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.scalers: list[subprocess.Popen[bytes]] = []
        (folder / "notes").touch()

    def scale(self, *words: str) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "mainspring", "scale", "--store", self.url, *QUICK, *words]
        environ = os.environ | FAST | {"SCALING_FOLDER": str(self.folder)}
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [*argv, "--", "worker", str(APP), "--concurrency", "2"],
                env=environ,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )
        self.scalers.append(process)
        return process

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def notes(self, kind: str) -> list[str]:
        lines = (self.folder / "notes").read_text().splitlines()
        return [line for line in lines if line.startswith(kind)]


@pytest.fixture
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """On a file, or on a PostgreSQL database of its own where a test asks for that."""
    async with AsyncExitStack() as stack:
        url = f"sqlite:///{tmp_path / 'scaled.db'}"
        if getattr(request, "param", "sqlite") == "postgres":
            url = await stack.enter_async_context(new_database())
        site = Site(tmp_path, url)
        assert await asyncio.to_thread(run, ["db", "migrate", "--store", site.url]) == 0
        yield site
        for process in site.scalers:
            process.kill()
            process.wait()
        for pid in workers_of(site):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def workers_of(site: Site) -> list[int]:
    """The workers of this site that are really there, by their environment."""
    found, mark = [], f"SCALING_FOLDER={site.folder}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"worker" in words and b"scale" not in words and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


async def rows_of(app: Mainspring, *states: str) -> list[Worker]:
    store = await app.open()
    return [row for row in await store.list_workers("default") if row.state in states]


async def until(holds: Callable[[], Awaitable[bool]], site: Site) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await holds():
        assert time.monotonic() < deadline, site.log
        await asyncio.sleep(0.05)


async def test_it_grows_with_the_load_and_drains_without_it_and_every_run_ends_once(site: Site) -> None:
    async with Mainspring(site.url, name="client") as app:
        scaler = site.scale("--min", "1", "--max", "3", "--depth-per-worker", "4")
        handles = [await app.submit("hold", {"number": number}) for number in range(16)]

        async def is_grown() -> bool:
            return len(await rows_of(app, "active")) == 3

        await until(is_grown, site)
        assert len(workers_of(site)) == 3
        (site.folder / "gate").touch()
        for handle in handles:
            assert await handle.result(timeout=PATIENCE_S) == "done"

        async def is_small() -> bool:
            return len(await rows_of(app, "active")) == 1

        await until(is_small, site)
        assert sorted(int(line.split()[1]) for line in site.notes("begin")) == list(range(16))
        assert sorted(int(line.split()[1]) for line in site.notes("end")) == list(range(16))
        scaler.terminate()
        assert await asyncio.to_thread(scaler.wait, PATIENCE_S) == 0
        assert workers_of(site) == []
        assert await rows_of(app, "active", "draining", "dead") == []


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
async def test_a_killed_autoscaler_kills_no_work_and_the_next_one_adopts_the_workers(site: Site) -> None:
    async with Mainspring(site.url, name="client") as app:
        first = site.scale("--min", "2", "--max", "4", "--utilisation", "0")
        handles = [await app.submit("hold", {"number": number}) for number in range(3)]

        async def is_busy() -> bool:
            return len(site.notes("begin")) == 3 and len(await rows_of(app, "active")) == 2

        await until(is_busy, site)
        before = {row.id for row in await rows_of(app, "active")}
        pids = sorted(workers_of(site))
        first.kill()
        await asyncio.to_thread(first.wait)
        reported = len(site.log)
        second = site.scale("--min", "2", "--max", "4", "--utilisation", "0")

        async def is_adopted() -> bool:
            return "2 workers: " in site.log[reported:]

        await until(is_adopted, site)
        assert {row.id for row in await rows_of(app, "active")} == before
        assert sorted(workers_of(site)) == pids
        (site.folder / "gate").touch()
        for handle in handles:
            assert await handle.result(timeout=PATIENCE_S) == "done"
        assert len(site.notes("begin")) == len(site.notes("end")) == 3
        second.terminate()  # Its workers are no children of it, and yet it ends them.
        assert await asyncio.to_thread(second.wait, PATIENCE_S) == 0

        async def are_gone() -> bool:
            return workers_of(site) == []

        await until(are_gone, site)


async def test_a_killed_worker_is_replaced(site: Site) -> None:
    async with Mainspring(site.url, name="client") as app:
        site.scale("--min", "1", "--max", "2")

        async def is_up() -> bool:
            return len(await rows_of(app, "active")) == 1

        await until(is_up, site)
        [killed] = workers_of(site)
        os.kill(killed, signal.SIGKILL)

        async def is_replaced() -> bool:
            return any(row.pid != killed for row in await rows_of(app, "active"))

        await until(is_replaced, site)
        assert f"worker {killed} ended with exit code -9" in site.log


def test_what_no_fleet_can_share_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = f"sqlite:///{tmp_path / 'a.db'}"
    for words, problem in [
        ((), "Say what to run"),
        (("--", "server"), "Say what to run"),
        (("--", "worker", str(APP), "--health-port", "0"), "--health-port is for a single worker"),
        (("--", "worker", str(APP), "--reload"), "--reload is for a single worker"),
        (("--", "worker", "--nonsense"), "No such option"),
    ]:
        assert run(["scale", "--store", store, *words]) == 2
        assert problem in capsys.readouterr().err
    assert run(["scale", "--min", "5", "--max", "2", "--simulate"]) != 0
    assert "is less than 5" in capsys.readouterr().err


def test_the_least_busy_and_youngest_workers_drain_first() -> None:
    rows = [
        Worker(id="old", running=0, started_at=1),
        Worker(id="busy", running=3, started_at=9),
        Worker(id="young", running=0, started_at=5),
    ]
    assert [row.id for row in choose_to_drain(rows, 2)] == ["young", "old"]


def test_a_simulated_day_stays_in_bounds_and_follows_the_load() -> None:
    policy = ScalingPolicy(minimum=10, maximum=100)
    samples = list(simulate_day(policy, Day()))
    workers = [each.workers for each in samples]
    assert (min(workers), max(workers) <= 100) == (10, True)
    night, evening = (max(each.workers for each in samples if each.at // 3_600_000_000 == hour) for hour in (7, 20))
    assert evening > 5 * night  # 300 a second of 2 s each are 600 busy slots: 86 workers of 10 at 70 %.
    assert 78 <= evening <= 95
    assert samples[-1].depth == 0


def test_a_simulated_day_as_csv_has_a_line_for_each_minute(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scale", "--csv", "--min", "2", "--max", "9"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert len(rows) == 24 * 60
    assert {int(row["workers"]) for row in rows} <= set(range(2, 10))
    assert rows[61]["time"] == "01:01"
    assert run(["scale", "--simulate", "--min", "2", "--max", "9"]) == 0
    assert "Workers, 2 to 9" in capsys.readouterr().out


def test_workers_of_another_fleet_or_host_are_not_its_own() -> None:
    from mainspring.ops.scaling.fleet import Fleet

    fleet = Fleet("work", "here", ["true"], {})
    rows = [
        Worker(id="here:1:work.0a", host="here", pid=1),
        Worker(id="here:2:work.0b", host="here", pid=2, drain_requested_at=5),
        Worker(id="here:3:works.0c", host="here", pid=3),
        Worker(id="there:4:work.0d", host="there", pid=4),
        Worker(id="here:5:0e", host=socket.gethostname(), pid=5),
    ]
    members = fleet.members(rows)
    assert [row.pid for row in members.active] == [1]
    assert [row.pid for row in members.draining] == [2]
    assert (members.serving, members.processes) == (1, 2)
