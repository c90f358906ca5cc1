"""Executes many small runs in one call: gathered for a moment, each with its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from mainspring.core.instants import SECOND
from mainspring.core.model import Failure
from mainspring.executor import AttemptContext, ExecutableTask, Outcome
from mainspring.executors.failures import failed
from mainspring.executors.function import Threads


class _Member(NamedTuple):
    attempt: AttemptContext
    parameter: str
    items: list[object]
    outcome: asyncio.Future[Outcome]


_Batch = dict[AttemptContext, _Member]
"""The runs of one call. A dict, because a run that is stopped leaves it: a list would be searched for each."""


class BatchExecutor:
    """Executes one task whose function takes a list: joins the lists of several runs, and splits the results."""

    def __init__(self, task: ExecutableTask, concurrency: int, threads: Threads) -> None:
        self._task = task
        self._threads = threads
        # Waiting for more runs than can be under way at once would be in vain.
        self._most = min(task.defaults.batch or 1, concurrency, task.defaults.limit or concurrency)
        self._wait_s = task.defaults.batch_wait / SECOND
        self._waiting: _Batch = {}
        self._timer: asyncio.TimerHandle | None = None
        self._calls: dict[asyncio.Task[None], _Batch] = {}

    async def run(self, attempt: AttemptContext) -> Outcome:
        isolation = attempt.options.isolation
        if isolation is not None and isolation.level != "none":
            message = f"a batch is one call in the worker itself, and cannot have the isolation {isolation.level}"
            return Outcome("failed", failure=Failure("IsolationUnavailable", message), final=True)
        try:
            ((parameter, items),) = self._task.decode_args(attempt.claim.args).items()
            if not isinstance(items, list):
                raise TypeError(f"a batch is made of lists, not of {type(items).__name__}")
        except BaseException as error:
            return failed(error, final=True, unfit=True)
        attempt.here = True
        member = _Member(attempt, parameter, items, asyncio.get_running_loop().create_future())
        self._waiting[attempt] = member
        if len(self._waiting) >= self._most:
            self._begin()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._begin)
        try:
            return await member.outcome
        except asyncio.CancelledError:
            self._leave(attempt)
            raise

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._waiting = self._waiting, {}
        if batch:
            call = asyncio.get_running_loop().create_task(self._call(list(batch.values())))
            self._calls[call] = batch
            call.add_done_callback(self._calls.pop)

    def _leave(self, attempt: AttemptContext) -> None:
        """A run was stopped: it waits no more. A call that all of its runs have left is stopped as well."""
        self._waiting.pop(attempt, None)
        for call, batch in self._calls.items():
            if batch.pop(attempt, None) is not None and not batch:
                call.cancel()

    async def _call(self, members: Sequence[_Member]) -> None:
        items = [item for member in members for item in member.items]
        try:
            results = await self._execute(items, members)
        except BaseException as error:
            for member in members:
                _resolve(member, failed(error))
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        start = 0
        for member in members:
            end = start + len(member.items)
            _resolve(member, self._outcome(None if results is None else results[start:end]))
            start = end

    async def _execute(self, items: list[object], members: Sequence[_Member]) -> list[object] | None:
        name = members[0].parameter
        if self._task.is_async:
            results = await self._task.function(**{name: items})
        else:
            results = await self._execute_in_thread(partial(self._task.function, **{name: items}), members)
        if results is not None and (not isinstance(results, list | tuple) or len(results) != len(items)):
            raise ValueError(f"a batch of {len(items)} returns as many results, or None: not {_describe(results)}")
        return None if results is None else list(results)

    async def _execute_in_thread(self, function: Callable[[], object], members: Sequence[_Member]) -> object:
        def work() -> tuple[object, BaseException | None]:
            try:
                return function(), None
            except BaseException as error:
                return None, error
            finally:
                for member in members:
                    member.attempt.unstoppable = False

        for member in members:
            member.attempt.unstoppable = True
        result, error = await self._threads.run(work)
        if error is not None:
            raise error
        return result

    def _outcome(self, results: list[object] | None) -> Outcome:
        for each in results or ():
            if isinstance(each, BaseException):
                return failed(each)
        try:
            return Outcome("succeeded", self._task.encode_result(results))
        except BaseException as error:
            return failed(error, final=True)


def _describe(results: object) -> str:
    return f"{len(results)}" if isinstance(results, list | tuple) else type(results).__name__


def _resolve(member: _Member, outcome: Outcome) -> None:
    if not member.outcome.done():
        member.outcome.set_result(outcome)
