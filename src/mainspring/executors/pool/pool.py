"""Executes functions in a pool of processes, started ahead, each of which can be killed without harm to the others."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from mainspring.core.tasks.isolation import Isolation, format_size
from mainspring.executor import AttemptContext, ExecutableTask, Outcome
from mainspring.executors.captured_output import run_level
from mainspring.executors.failures import failed_by
from mainspring.executors.launching.order import Launch
from mainspring.executors.pool.messages import ModuleLocation, PoolSetup, RunRequest
from mainspring.executors.pool.pool_process import PoolProcess, ProcessDied, start_process
from mainspring.executors.programs.confinement import (
    INHERITED,
    IsolationRefused,
    confine,
    describe_ending,
    describe_oom,
    environment,
)
from mainspring.executors.programs.host import HostProbe
from mainspring.executors.programs.output import Output
from mainspring.executors.programs.program import ROOT, Ending, Launcher, NotStarted
from mainspring.process.secrets import hand_on
from mainspring.settings import Settings

PATIENCE_S = 0.05
"""If no process became free for this long while a run waits, another is started. On busy cores more processes do not
help, but functions that wait for something need them."""
IDLE_S = 30.0
"""A process beyond one per core is ended after this long without work."""

FAREWELL_S = 2.0
"""How long the idle processes of a worker that stops may take, all together, to leave the lifespans of their apps."""

_ROOM = 2**20

_EARLY = ("PYTHON", "LD_", "DYLD_", "LC_", "MALLOC_", "GLIBC_")
"""Prefixes of variables that are read when a process starts."""


class ProcessPool:
    """Processes that have imported the app. Used on one event loop; a process executes one run at a time."""

    def __init__(self, launcher: Launcher, argv: list[str], setup: PoolSetup, most: int, longest: int) -> None:
        self._launcher = launcher
        self._argv = argv
        self._longest = longest
        self._setup = setup
        self._most = most
        self._least = min(most, os.cpu_count() or 1)
        self._free: list[tuple[float, PoolProcess]] = []
        self._waiting: deque[asyncio.Future[PoolProcess]] = deque()
        self._starting: set[asyncio.Task[None]] = set()
        self._growing: asyncio.TimerHandle | None = None
        self._taken = 0
        self._moved_at = 0.0
        """When a process last became free."""
        self._processes: set[PoolProcess] = set()
        self._closed = False
        weakref.finalize(self, _close_all, self._processes)

    def prepare(self) -> None:
        """Start a process per core."""
        while self._count < self._least:
            self._start()

    @property
    def _count(self) -> int:
        return len(self._free) + self._taken + len(self._starting)

    async def take(self) -> PoolProcess:
        """Return a free process; start one if needed. Raises NotStarted or ProcessDied if that fails."""
        if self._free and not self._waiting:
            _, process = self._free.pop()
            self._taken += 1
            return process
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[PoolProcess] = loop.create_future()
        self._waiting.append(turn)
        if self._count < self._least:
            self._start()
        self._await_growth()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back(turn.result())
            else:
                with suppress(ValueError):
                    self._waiting.remove(turn)
            raise

    def _await_growth(self) -> None:
        """Set one timer for all waiting runs: one for each would be too many in a long queue."""
        if self._waiting and self._growing is None and not self._closed:
            self._growing = asyncio.get_running_loop().call_later(PATIENCE_S, self._grow)

    def _grow(self) -> None:
        self._growing = None
        stuck = asyncio.get_running_loop().time() - self._moved_at >= PATIENCE_S
        if stuck and self._count < self._most and len(self._starting) < len(self._waiting) and self._has_idle_core():
            self._start()
        self._await_growth()

    def _has_idle_core(self) -> bool:
        """Whether fewer processes compute or start than there are cores."""
        free = {process for _, process in self._free}
        return len(self._starting) + sum(process.computes for process in self._processes - free) < self._least

    def _start(self) -> None:
        task = asyncio.get_running_loop().create_task(self._open())
        self._starting.add(task)

    async def _open(self) -> None:
        launch: Launch = {"argv": self._argv, "env": _first_environment(), "cwd": None}
        this = asyncio.current_task()
        try:
            process = await start_process(self._launcher, launch, self._setup, self._longest)
        except (NotStarted, ProcessDied) as error:
            while self._waiting:
                turn = self._waiting.popleft()
                if not turn.done():
                    turn.set_exception(error)
                    break
            return
        finally:
            if this is not None:
                self._starting.discard(this)
        self._processes.add(process)
        self._taken += 1
        self.give_back(process)

    def give_back(self, process: PoolProcess) -> None:
        """Return a process whose run has ended."""
        self._taken -= 1
        self._moved_at = now = asyncio.get_running_loop().time()
        if process.spent or self._closed:
            self._dismiss(process)
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(process)
                return
        self._free.append((now, process))
        if len(self._free) > self._least and now - self._free[0][0] > IDLE_S:
            self._dismiss(self._free.pop(0)[1])

    def _dismiss(self, process: PoolProcess) -> None:
        self._processes.discard(process)
        process.close()
        if not self._closed and (self._count < self._least or len(self._waiting) > len(self._starting)):
            self._start()

    def close(self) -> None:
        """End all idle processes, and the others once their runs have ended."""
        self._closed = True
        for task in self._starting:
            task.cancel()
        if self._setup.farewell_s:
            _await_ends([process for _, process in self._free], self._setup.farewell_s)
        while self._free:
            self._dismiss(self._free.pop()[1])


def _await_ends(processes: Sequence[PoolProcess], seconds: float) -> None:
    """Let processes end by themselves, so that they leave their lifespans; not for longer than this."""
    until = time.monotonic() + seconds
    for process in processes:
        process.hang_up()
    for process in processes:
        process.await_end(max(until - time.monotonic(), 0.0))


def _close_all(processes: set[PoolProcess]) -> None:
    for process in list(processes):
        process.close()


class ProcessExecutor:
    """Executes functions in processes of the pool; a confined run in a new process."""

    def __init__(
        self,
        tasks: Mapping[str, ExecutableTask],
        launcher: Launcher,
        probe: HostProbe,
        settings: Settings,
        program: str,
    ) -> None:
        self._argv = [sys.executable, "-m", program]
        self._tasks = tasks
        self._launcher = launcher
        self._probe = probe
        self._settings = settings
        self._homes: dict[str, ModuleLocation] = {}
        self._pool: ProcessPool | None = None
        # A result is JSON within JSON, which at most doubles it. Failures and log lines are shorter.
        self._longest = 2 * settings.payload_limit + _ROOM

    def pool(self) -> ProcessPool:
        """The pool, created when it is first needed: all tasks are known by then."""
        if self._pool is None:
            homes = list(dict.fromkeys(self._home(name) for name in self._tasks))
            setup = self._setup(homes, self._settings.process_runs)
            setup.env, setup.withheld = dict(os.environ), hand_on()
            self._pool = ProcessPool(self._launcher, self._argv, setup, self._settings.concurrency, self._longest)
        return self._pool

    def close(self) -> None:
        """End all processes."""
        if self._pool is not None:
            self._pool.close()

    async def run(self, attempt: AttemptContext) -> Outcome:
        isolation = attempt.options.isolation
        confined = isolation if isolation is not None and isolation.confined else None
        output = Output(attempt, self._settings.output_limit, confined.output if confined else None)
        home = self._home(attempt.claim.task)
        order = RunRequest(home, attempt.claim, attempt.deadline, attempt.soft_deadline, attempt.now())
        try:
            if confined is not None:
                return await self._run_confined(order, attempt, output, confined)
            pool = self.pool()
            process = await pool.take()
            try:
                return await process.run(order, attempt, output)
            finally:
                pool.give_back(process)
        except ProcessDied as death:
            if output.overflowed and confined is not None:
                return failed_by("ProcessDied", f"it wrote more than its limit of {format_size(confined.output or 0)}")
            how = describe_ending(death.ending, confined, " before the function returned")
            return failed_by("ProcessDied", f"the process {how}")
        except NotStarted as error:
            return failed_by("ProcessNotStarted", f"the process could not be started: {error.strerror}{_advice(error)}")
        except IsolationRefused as refusal:
            return failed_by("IsolationUnavailable", f"this worker cannot offer {refusal}")

    async def _run_confined(
        self, order: RunRequest, attempt: AttemptContext, output: Output, isolation: Isolation
    ) -> Outcome:
        host = await self._probe.host()
        setup = self._setup([order.home], runs=1)
        shown = _python_folders(setup.path, order.home)
        if isolation.level == "sandbox":
            isolation = _with_python(isolation, shown)
        env = environment(isolation, host, {"PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"})
        launch = confine(isolation, host, {"argv": self._argv, "env": env, "cwd": None, "shown": shown})
        process = await start_process(self._launcher, launch, setup, self._longest, output)
        try:
            outcome = _checked(await process.run(order, attempt, output), self._settings.payload_limit)
            return _with_limit(outcome, process.ending, isolation)
        finally:
            process.close()

    def _setup(self, homes: list[ModuleLocation], runs: int) -> PoolSetup:
        path = [os.path.abspath(each) for each in sys.path]
        level = run_level(self._settings)
        farewell_s = FAREWELL_S if any(task.hooks.needs_loop for task in self._tasks.values()) else 0.0
        return PoolSetup(path, homes, runs, self._settings.process_memory, log_level=level, farewell_s=farewell_s)

    def _home(self, task: str) -> ModuleLocation:
        home = self._homes.get(task)
        if home is None:
            module = sys.modules[self._tasks[task].function.__module__]
            file = getattr(module, "__file__", None)
            # With `python -m package.module` the module is called `__main__`, and only its spec has its name.
            name = module.__spec__.name if module.__spec__ else module.__name__
            home = self._homes[task] = ModuleLocation(name, file and os.path.abspath(file))
        return home


def _first_environment() -> dict[str, str]:
    """The environment that a pool process starts with: what the system and the interpreter read first. Other processes
    of this user can read it, so the rest is sent after the process has hidden its memory."""
    return {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(_EARLY)}


def _python_folders(path: list[str], home: ModuleLocation) -> list[str]:
    """The folders that Python needs to start and to find the function."""
    needed = [sys.prefix, sys.base_prefix, *path, *([os.path.dirname(home.file)] if home.file else [])]
    return [each for each in dict.fromkeys(needed) if os.path.exists(each) and not each.startswith("/usr/")]


def _with_python(isolation: Isolation, shown: list[str]) -> Isolation:
    """The isolation of a sandbox that shows these folders, too."""
    outer = [each for each in shown if each != "/" and not any(each.startswith(f"{other}/") for other in shown)]
    fields = msgspec.to_builtins(isolation)
    return msgspec.convert({**fields, "read": [*outer, *isolation.read]}, Isolation)


def _checked(outcome: Outcome, limit: int) -> Outcome:
    """The outcome, if it is valid: an untrusted function may have written it itself."""
    text = outcome.result
    if text is None:
        return outcome
    try:
        if len(text.encode()) > limit:
            raise ValueError(f"it has more than the {limit} bytes of payload_limit")
        msgspec.json.decode(text)
    except ValueError as error:  # msgspec's errors are ValueErrors.
        return failed_by("ResultInvalid", f"the process returned an invalid result: {error}")
    return outcome


def _with_limit(outcome: Outcome, ending: Ending | None, isolation: Isolation) -> Outcome:
    """The outcome, which names the limit that made the function fail."""
    failure = outcome.failure
    if ending is not None and ending.out_of_memory and outcome.kind == "succeeded" and not isolation.ignore_oom:
        return failed_by("ProcessDied", f"the function returned, but {describe_oom(isolation)}")
    if failure is None or ending is None or not ending.out_of_processes:
        return outcome
    message = f"{failure.message}; it met its limit of {isolation.processes} processes"
    return msgspec.structs.replace(outcome, failure=msgspec.structs.replace(failure, message=message))


def _advice(error: NotStarted) -> str:
    if error.errno != errno.EACCES:
        return ""
    return "; confined runs have another user (setting run_as), which must be able to start it"
