"""A worker's executors without the worker: real processes, and what they say in a list."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mainspring.clock import SystemClock
from mainspring.core.model import Claim, Report
from mainspring.core.tasks.specs import check_spec
from mainspring.executor import AttemptContext, Outcome, RunContext
from mainspring.executors.registry import ExecutorRegistry
from mainspring.operations.jobs.options import Defaults, TaskWords, read_defaults, read_words
from mainspring.services.worker.runner import Runner
from mainspring.settings import Settings
from mainspring.wiring import POOL_PROGRAM

_numbers = itertools.count(1)
LEVELS = ["none", "limits", "sandbox"]
"""The levels of isolation that a command can have."""


class Attempt(AttemptContext):
    """An attempt that remembers what was written."""

    __slots__ = ("lines", "marks")

    def __init__(self, task: str, args: dict[str, Any], **words: Any) -> None:
        values = read_words(words, TaskWords, "a test")
        options = read_defaults(values, Defaults()).options
        number = next(_numbers)
        super().__init__(_claim(f"run-{number}", task, json.dumps(args)), options)
        self.lines: list[tuple[int, str, str]] = []
        self.marks: list[tuple[float, str]] = []
        self.now = lambda: number
        self.write = lambda stream, text, at=None, /: self.lines.append((at or 0, stream, text))
        # Looked up when it is used, for secrets put a mask in front of it.
        self.context = RunContext(
            self.claim, self.deadline, self.write, lambda fraction, note: self.marks.append((fraction, note))
        )

    def said(self, stream: str = "stdout") -> list[str]:
        """The lines of one stream."""
        return [text for _, each, text in self.lines if each == stream]


def _claim(run_id: str, task: str, args: str) -> Claim:
    return Claim(run_id, 1, task, args, "{}", 0, 0, 5, 0, "default", None, None, 0, 0)


class Scene:
    """Runs attempts."""

    def __init__(self, registry: ExecutorRegistry) -> None:
        self.registry = registry

    async def execute(self, attempt: Attempt) -> Outcome:
        """One attempt, to its end."""
        return await self.registry(attempt.claim.task).run(attempt)

    async def run(self, task: Any, **args: Any) -> Any:
        """The result of a function that must succeed."""
        outcome, attempt = await self.outcome(task, **args)
        assert outcome.kind == "succeeded", (outcome, attempt.lines)
        return json.loads(outcome.result or "null")

    async def outcome(self, task: Any, **args: Any) -> tuple[Outcome, Attempt]:
        """How a function ended, with its task's own options, and its attempt."""
        attempt = Attempt(task.name, args)
        attempt.options = task.defaults.options
        return await self.execute(attempt), attempt

    async def command(self, argv: list[str] | str, words: dict[str, Any] | None = None, **spec: Any) -> Any:
        """How a command ended, and its attempt."""
        attempt = Attempt("command", {"argv": argv, **spec}, **(words or {}))
        check_spec("command", {"argv": argv, **spec})
        return await self.execute(attempt), attempt

    def begin(self, attempt: Attempt) -> asyncio.Task[Outcome]:
        """One attempt, under way."""
        return asyncio.get_running_loop().create_task(self.execute(attempt))


@asynccontextmanager
async def scene_of(tasks: Any = None, **settings: Any) -> AsyncIterator[Scene]:
    """Executors with these settings, gone at the end with all that they started. Tests are often root, and most of them
    are not about what that means for commands."""
    registry = ExecutorRegistry(tasks or {}, Settings(**{"isolation": "none", **settings}), POOL_PROGRAM)
    try:
        yield Scene(registry)
    finally:
        registry.close()


class Crowd:
    """A worker's runner over its executors: attempts have deadlines, and end in reports."""

    def __init__(self, registry: ExecutorRegistry, concurrency: int) -> None:
        self._done = asyncio.Event()
        clock = SystemClock()
        self.runner = Runner(registry, concurrency, clock, clock.now, clock.now, self._done.set)

    async def run(self, attempt: Attempt, seconds: float = 20.0) -> Report:
        """One attempt, to its report."""
        self.runner.begin([attempt])
        async with asyncio.timeout(seconds):
            while not self.runner.done:
                self._done.clear()
                await self._done.wait()
        return self.runner.done.popleft()

    def said(self, stream: str) -> list[str]:
        """The lines of one stream."""
        return [line.text for line in self.runner.lines if line.stream == stream]


@asynccontextmanager
async def crowd_of(tasks: Any = None, **settings: Any) -> AsyncIterator[Crowd]:
    """A runner with these settings, gone at the end with all that it started."""
    registry = ExecutorRegistry(tasks or {}, Settings(**{"isolation": "none", **settings}), POOL_PROGRAM)
    try:
        yield Crowd(registry, settings.get("concurrency", 10))
    finally:
        registry.close()


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait, not for ever, until something holds."""
    async with asyncio.timeout(seconds):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and only waits to be noticed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids_in(file: Path, count: int = 1) -> list[int]:
    """The pids that were noted in a file, once there are this many."""
    try:
        words = file.read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for word in words] if len(words) >= count else []
