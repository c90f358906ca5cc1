"""What all examples share: local servers, real processes, faults, and the verdict of the history checker.

A scenario gets a `Stage`. It starts nodes and workers there, breaks them, and reads what happened from the tables of
the example itself (its side ledger) and from the recorded history.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from examples.recorded import ACTOR, FOLDER, MODULE
from mainspring import Mainspring, MainspringError
from mainspring.clock import SystemClock
from mainspring.core.states import FINAL
from mainspring.operations import records
from mainspring.testing.chaos.driver import PASSING
from mainspring.testing.chaos.inside.recording import Journal, RecordedApp, gather
from mainspring.testing.checking import Verdict, check
from mainspring.testing.checking.stories.stories import PAUSE
from mainspring.testing.simulation.ports.scribe import Scribe
from mainspring.testing.simulation.world.ending import record_end

T = TypeVar("T")

ROOT: Final = Path(__file__).parent.parent
URLS: Final = ROOT / ".services" / "urls"
PATIENCE_S: Final = 360.0
"""How long to wait for anything. A loaded machine is slow, and no failure: at a load of 30 on two cores, five nodes
took more than a minute to start."""
LOOK_S: Final = 0.05
FAST: Final = {
    "MAINSPRING_CLAIM_TTL": "2s",
    "MAINSPRING_CLAIM_RENEW": "500ms",
    "MAINSPRING_WORKER_DEAD_AFTER": "3s",
    "MAINSPRING_DRAIN_GRACE": "5s",
}
"""Short claims, so that other workers notice a killed one within the time of a scenario."""


def find_service(name: str) -> str:
    """The URL of a server that `make services` started; MainspringError without one."""
    variable = f"MAINSPRING_TEST_{name.upper()}"
    known = dict(os.environ)
    if variable not in known and URLS.exists():
        known |= dict(line.split("=", 1) for line in URLS.read_text().splitlines())
    if variable not in known:
        raise MainspringError(f"{variable} names no server: run `make services`, which starts all of them")
    return known[variable]


@asynccontextmanager
async def new_database() -> AsyncIterator[str]:
    """The URL of a new PostgreSQL database, which is dropped in the end."""
    name = f"example_{secrets.token_hex(6)}"
    await _on_server(f"CREATE DATABASE {name}")
    try:
        yield _in_database(name)
    finally:
        await _on_server(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def _on_server(statement: str) -> None:
    connection = await asyncpg.connect(_in_database("postgres"))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _in_database(name: str) -> str:
    return urlunsplit(urlsplit(find_service("postgres"))._replace(path=f"/{name}"))


class Process:
    """One `mainspring` process of a scenario. `actor` is its name in the history."""

    def __init__(self, name: str, words: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                words, env=environment, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    @property
    def pid(self) -> int:
        """The id of the operating system."""
        return self._popen.pid

    @property
    def actor(self) -> str:
        """The name in the history."""
        return f"{self.name}.{self.pid}"

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process lives."""
        if self.alive:
            self._popen.send_signal(number)

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self.send(signal.SIGKILL)
        self._popen.wait(PATIENCE_S)

    async def wait(self) -> int:
        """The exit code, once it has ended."""
        return await asyncio.to_thread(self._popen.wait, PATIENCE_S)


class Stage:
    """Where a scenario plays: one store, one folder, and processes that all end with the scenario."""

    def __init__(
        self, app: Path, folder: Path, store: str, environment: Mapping[str, str], *, recorded: bool = True
    ) -> None:
        """`app` is the file that the processes run; `environment` holds their settings. Without `recorded`, for load,
        there is no history to judge."""
        self._recorded = recorded
        self.app_file = app
        self.folder = folder
        self.store = store
        pace = FAST if recorded else {}  # Load is measured with the default claims.
        self.environment = {"MAINSPRING_STORE": store, "DATABASE_URL": store, **pace, **environment}
        self.processes: list[Process] = []
        settings = {"store": store, "name": "client", **_code_settings(environment)}
        self.client = RecordedApp(folder, "client", **settings) if recorded else Mainspring(**settings)
        self._clock = SystemClock()
        self._scribe = Scribe(Journal(folder, "driver"), self._clock, Counter())

    def start(self, name: str, command: str, *options: str, **environment: str) -> Process:
        """Start `mainspring COMMAND APP OPTIONS`."""
        return self._start(name, [command, str(self.app_file), *options], environment)

    def start_module(self, name: str, module: str, *options: str, **environment: str) -> Process:
        """Start `python -m MODULE OPTIONS`."""
        return self._start(name, [MODULE, module, *options], environment)

    def _start(self, name: str, words: list[str], environment: dict[str, str]) -> Process:
        surroundings = os.environ | self.environment | {FOLDER: str(self.folder), ACTOR: name} | environment
        plain = words[1:] if words[0] == MODULE else ["mainspring", *words]
        command = [sys.executable, "-m", *(["examples.recorded", *words] if self._recorded else plain)]
        process = Process(name, command, surroundings, self.folder / f"{name}.log")
        self.processes.append(process)
        return process

    def node(self, name: str, **environment: str) -> Process:
        """Start a process that schedules and works."""
        return self.start(name, "up", "--no-api", "--quiet", **environment)

    def worker(self, name: str, *options: str, **environment: str) -> Process:
        """Start a process that works."""
        return self.start(name, "worker", "--quiet", *options, **environment)

    def kill(self, process: Process) -> None:
        """Kill a process (SIGKILL), and record it."""
        self.note("kill", process.actor)
        process.kill()

    def note_pause(self, process: Process) -> None:
        """Record that a process stands still."""
        self.note(PAUSE, process.actor)

    def note(self, fault: str, actor: str = "driver") -> None:
        """Record a fault in the history."""
        self._scribe.write("fault", actor, self._clock, name=fault)

    async def workers_ready(self, count: int) -> None:
        """Wait until this many workers have registered."""
        store = await self.client.open()

        async def ready() -> bool:
            return len(await store.list_workers("default")) >= count

        await until(ready, f"{count} workers", self.logs)

    async def drained(self, left: int = 0) -> None:
        """Pause all jobs, and wait until no more than `left` runs are unfinished: those of the far future."""
        store = await self.client.open()
        self.note("healed")
        names = [job.name for job in await store.list_jobs("default") if job.paused_at is None]
        await store.pause_jobs("default", names, paused=True, reason="the scenario ends")

        async def quiet() -> bool:
            counts = await store.count_runs("default")
            return sum(counts.values()) - sum(counts.get(state, 0) for state in FINAL) <= left

        await until(quiet, "the end of all runs", self.logs)
        self.note("drained")

    async def firings(self, job: str) -> list[records.Firing]:
        """The firings of a job, newest first, but for those that the pause at the end of the scenario skipped: they
        were written shortly before their instant."""
        paused_at = (await self.client.jobs.get(job)).paused_at
        assert paused_at is not None, "the scenario has ended"
        found = [each async for each in self.client.jobs.firings(job)]
        return [each for each in found if each.outcome != "skipped" or each.fire_at < paused_at]

    async def judge(self) -> Verdict:
        """Stop all processes, record the final state of the store, and judge the whole history."""
        await self.stop()
        await record_end(await self.client.open(), self._scribe, self._clock)
        return await asyncio.to_thread(lambda: check(gather(self.folder), passing_bound=PASSING))

    async def stop(self) -> None:
        """Ask all processes to drain, and wait for them."""
        for process in self.processes:
            process.send(signal.SIGCONT)
            process.send(signal.SIGTERM)
        await asyncio.gather(*(process.wait() for process in self.processes))

    async def close(self) -> None:
        """End what still runs."""
        for process in self.processes:
            process.send(signal.SIGCONT)
            process.kill()
        await self.client.close()

    def logs(self) -> str:
        """The end of what each process logged."""
        parts = [f"--- {process.actor}\n{process.log.read_text()[-1500:]}" for process in self.processes]
        return "\n".join(parts)


def _code_settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings that a client shares with the processes: where its messages and locks go."""
    names = ("broker", "lease")
    return {
        name: environment[f"MAINSPRING_{name.upper()}"] for name in names if f"MAINSPRING_{name.upper()}" in environment
    }


def _read_tables(app: Path) -> str:
    return app.with_name("tables.sql").read_text()


@asynccontextmanager
async def new_stage(
    app: Path, environment: Mapping[str, str] | None = None, *, folder: Path | None = None, recorded: bool = True
) -> AsyncIterator[Stage]:
    """A stage on a new PostgreSQL database, with the `tables.sql` that stands beside the app."""
    async with AsyncExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-example-")))
        store = await stack.enter_async_context(new_database())
        stage = Stage(app, place, store, environment or {}, recorded=recorded)
        stack.push_async_callback(stage.close)
        async with connected(store) as connection:
            await connection.execute(_read_tables(app))
        await stage.client.open()  # Migrates the database, once, before several processes would.
        yield stage


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    """A connection to a database."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def until(
    holds: Callable[[], Awaitable[T]],
    what: str,
    logs: Callable[[], str] | None = None,
    patience_s: float = PATIENCE_S,
) -> T:
    """Wait until a condition holds, and return its value. AssertionError after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not (value := await holds()):
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {patience_s:g} s\n{logs() if logs is not None else ''}")
        await asyncio.sleep(LOOK_S)
    return value


@contextmanager
def report(title: str) -> Iterator[Callable[[str], None]]:
    """Print the steps of a scenario, each with the seconds since its start."""
    began = time.monotonic()
    print(title)
    yield lambda text: print(f"{time.monotonic() - began:6.1f} s  {text}")
