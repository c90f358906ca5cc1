"""Calls Python functions: async ones on the loop of the tasks, sync ones in threads, and sync ones with a deadline in a
process that can be killed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

import msgspec

from mainspring.core.model import RunOptions
from mainspring.executor import CURRENT, PRINT_LIMIT, AttemptContext, ExecutableTask, Executor, Outcome, RunContext
from mainspring.executors.failures import failed

T = TypeVar("T")


class FunctionExecutor:
    """Runs registered tasks. Names are looked up in the registry, never imported from data."""

    def __init__(
        self,
        tasks: Mapping[str, ExecutableTask],
        threads: Threads,
        process: Executor,
        print_limit: int = PRINT_LIMIT,
    ) -> None:
        self._tasks = tasks
        self._threads = threads
        self._process = process
        self._print_limit = print_limit

    def run(self, attempt: AttemptContext) -> Coroutine[Any, Any, Outcome]:
        task = self._tasks[attempt.claim.task]
        _isolate(attempt, task)
        if needs_process(task, attempt.options):
            return self._process.run(attempt)
        _context(attempt).print_limit = self._print_limit
        return _await(attempt, task) if task.is_async else self._run_in_thread(attempt, task)

    async def _run_in_thread(self, attempt: AttemptContext, task: ExecutableTask) -> Outcome:
        """A thread cannot be stopped: if cancelled, the attempt ends at once, but the thread goes on."""

        def work() -> Outcome:
            outcome = call(task, attempt.claim.args, _context(attempt))
            attempt.unstoppable = False
            return outcome

        attempt.here = attempt.unstoppable = True
        return await self._threads.run(work)


def _isolate(attempt: AttemptContext, task: ExecutableTask) -> None:
    """Apply the isolation that the function is declared with, unless the run names one: the submitter may have known
    only the name of the task."""
    declared = task.defaults.options.isolation
    if declared is not None and attempt.options.isolation is None:
        attempt.options = msgspec.structs.replace(attempt.options, isolation=declared)


def needs_process(task: ExecutableTask, options: RunOptions) -> bool:
    """Whether a function has to run in a process: if asked for, or if it is sync and has a deadline, because a thread
    cannot be stopped."""
    isolation = options.isolation
    if isolation is None:
        return not task.is_async and (_has_deadline(options) or _has_deadline(task.defaults.options))
    return isolation.level != "none"


def _has_deadline(options: RunOptions) -> bool:
    return options.timeout is not None or options.total_timeout is not None


class Threads:
    """A pool that starts threads on demand. They are daemons: a function that never returns must not keep the process
    alive."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do some work, which must not raise, in a thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = copy_context()  # So that a function sees the trace of its attempt, and leaves nothing in the thread.

        def work_and_resolve() -> None:
            result = context.run(work)
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(_resolve, future, result)

        self._put(work_and_resolve)
        return future

    def _put(self, work: Callable[[], None]) -> None:
        self._queue.put(work)
        if not self._idle.acquire(blocking=False) and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._serve, name=f"mainspring-task-{self._started}", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._queue.get()()
            self._idle.release()


async def _await(attempt: AttemptContext, task: ExecutableTask) -> Outcome:
    """Like `call`, for an async function. Its cancellation by the runner is passed on."""
    attempt.here = True
    try:
        arguments = task.decode_args(attempt.claim.args)
    except BaseException as error:
        return failed(error, final=True, unfit=True)
    context = _context(attempt)
    token, hopeless = CURRENT.set(context), False
    try:
        result = await task.execute(arguments)
        hopeless = True
        return Outcome("succeeded", task.encode_result(result))
    except asyncio.CancelledError:
        this = asyncio.current_task()
        if this is not None and this.cancelling():
            raise
        return failed(RuntimeError("the task cancelled itself"))
    except GeneratorExit:
        raise
    except BaseException as error:
        return failed(error, final=hopeless)
    finally:
        CURRENT.reset(token)
        context.end_prints()


def call(
    task: ExecutableTask,
    args: str,
    context: RunContext,
    drive: Callable[[Coroutine[Any, Any, Any]], Any] | None = None,
) -> Outcome:
    """Call a function with its stored arguments; `drive` runs the coroutine of an async one to its end. Arguments that
    do not fit, and a result that cannot be stored, are not retried."""
    try:
        arguments = task.decode_args(args)
    except BaseException as error:
        return failed(error, final=True, unfit=True)
    token, hopeless = CURRENT.set(context), False
    try:
        result = task.execute(arguments)
        if drive is not None:
            result = drive(result)
        hopeless = True
        return Outcome("succeeded", task.encode_result(result))
    except BaseException as error:
        return failed(error, final=hopeless)
    finally:
        CURRENT.reset(token)
        context.end_prints()


def _context(attempt: AttemptContext) -> RunContext:
    assert attempt.context is not None, "the runner gives every attempt its context before it runs"
    return attempt.context


def _resolve(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
