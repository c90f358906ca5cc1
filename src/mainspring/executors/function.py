"""Python functions: async ones on the user's loop, sync ones in threads, sync ones with a deadline in a process that
can be killed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from mainspring.context import CURRENT, RunContext
from mainspring.executor import AttemptContext, Executor, Outcome
from mainspring.executors.failures import failed
from mainspring.task import Task


class FunctionExecutor:
    """Runs registered tasks. Names are looked up in the registry, never imported from data."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]], threads: int, process: Executor) -> None:
        self._tasks = tasks
        self._threads = Threads(threads)
        self._process = process

    async def run(self, attempt: AttemptContext) -> Outcome:
        task = self._tasks[attempt.claim.task]
        if not task.is_async:
            # A thread cannot be stopped, so a deadline needs a process.
            if attempt.options.timeout is not None:
                return await self._process.run(attempt)
            return await self._threads.run(attempt, task)
        token = CURRENT.set(_context(attempt))
        try:
            result = await task.function(**task.decode_args(attempt.claim.args))
            return Outcome("succeeded", task.encode_result(result))
        except asyncio.CancelledError:
            if attempt.stop_kind is not None:
                raise
            return failed(RuntimeError("the task cancelled itself"))
        except BaseException as error:
            return failed(error)
        finally:
            CURRENT.reset(token)

    def close(self) -> None:
        """Let idle threads end; busy ones end with their work or with the process."""
        self._threads.close()


class Threads:
    """A pool that starts threads as they are needed. Daemons: a function that never returns must not keep the process
    alive."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    async def run(self, attempt: AttemptContext, task: Task[..., Any]) -> Outcome:
        """Run the function in a thread. Cancelled, it lets the attempt go at once, but the thread runs on to its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def work() -> None:
            outcome = _call(attempt, task)
            attempt.unstoppable = False
            # The loop is closed only when the process is about to end, and then nobody waits for the outcome.
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, future, outcome)

        attempt.unstoppable = True
        self._put(work)
        return await future

    def _put(self, work: Callable[[], None]) -> None:
        self._queue.put(work)
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._serve, name=f"mainspring-task-{self._started}", daemon=True).start()

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            self._idle.release()

    def close(self) -> None:
        """End the threads that are idle."""
        for _ in range(self._started):
            self._queue.put(None)


def _call(attempt: AttemptContext, task: Task[..., Any]) -> Outcome:
    token = CURRENT.set(_context(attempt))
    try:
        return Outcome("succeeded", task.encode_result(task.function(**task.decode_args(attempt.claim.args))))
    except BaseException as error:
        return failed(error)
    finally:
        CURRENT.reset(token)


def _context(attempt: AttemptContext) -> RunContext:
    assert attempt.context is not None, "the crew gives every attempt its context before it runs"
    return attempt.context


def _resolve(future: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)
