"""Handles: a submitted run, its state and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.model import Run
from mainspring.core.runs.retry import Length
from mainspring.core.states import SUCCEEDED, State
from mainspring.errors import RunFailed, WaitTimeout
from mainspring.operations import records
from mainspring.operations.values.from_rows import run_record

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring
    from mainspring.store import Store

R = TypeVar("R")

# A short task is noticed within milliseconds; a long one costs four looks a second.
SHORTEST_PAUSE_S = 0.002
LONGEST_PAUSE_S = 0.25


class RunHandle(Generic[R]):
    """A run that was submitted. It can be kept, passed on and asked at any time; `id` is all it stands for."""

    __slots__ = ("_accepted", "_app", "_decode", "id")

    def __init__(self, app: Mainspring, run_id: str, decode: Callable[[str], R], *, accepted: bool = True) -> None:
        """`accepted`: whether the store is known to have the run, so that waiting for it makes sense."""
        self._app = app
        self._accepted = accepted
        self._decode = decode
        self.id = run_id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def result(self, timeout: Length | None = None) -> R:
        """What the task returned, once it has. RunFailed if the run ended otherwise; WaitTimeout as in `wait`."""
        run = await self._ended(timeout)
        if run.state != SUCCEEDED:
            raise RunFailed(run.id, run.state, run.reason)
        return self._decode("null" if run.result is None else run.result)

    async def wait(self, timeout: Length | None = None) -> records.Run:
        """The run, once it has ended in whatever state. WaitTimeout if it has not by then; the run itself goes on."""
        return run_record(await self._ended(timeout))

    async def _ended(self, timeout: Length | None) -> Run:
        seconds = None if timeout is None else parse_duration(timeout, "timeout") / SECOND
        if not self._accepted:
            await self.status()
            self._accepted = True
        try:
            async with asyncio.timeout(seconds):
                return await self._app.waiting.until_ended(self.id)
        except TimeoutError:
            pass
        # One last look: what ended while the timeout passed has ended in time, and no time at all is still one look.
        store = await self._app.open()
        for run in await store.finished([self.id]):
            return run
        raise WaitTimeout(f"run {self.id} has not ended within {seconds:g} s; it goes on")

    async def status(self) -> records.Run:
        """The run as it is now."""
        store = await self._app.open()
        return run_record(await store.get_run(self._app.settings.namespace, self.id))

    async def cancel(self, reason: str = "") -> State:
        """Cancel the run if it waits, or ask it to stop: see `app.runs.cancel`."""
        return await self._app.runs.cancel(self.id, reason)


class Waiting:
    """The waiters for runs of one app. One look at the store serves all waiters of one event loop."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open_store = open_store
        self._rooms: dict[asyncio.AbstractEventLoop, _Room] = {}

    async def until_ended(self, run_id: str) -> Run:
        """The run, once it has ended."""
        loop = asyncio.get_running_loop()
        room = self._rooms.get(loop)
        if room is None:
            room = self._rooms[loop] = _Room()
            room.watch = loop.create_task(self._watch(loop, room))
        ended: asyncio.Future[Run] = loop.create_future()
        room.enter(run_id, ended)
        try:
            return await ended
        finally:
            room.leave(run_id, ended)

    async def _watch(self, loop: asyncio.AbstractEventLoop, room: _Room) -> None:
        """Look, less and less often, until no waiter is left. A waiter that arrives meanwhile is served at once."""
        try:
            store = await self._open_store()
            pause = SHORTEST_PAUSE_S
            while room.waiting:
                if room.news.is_set():
                    room.news.clear()
                    pause = SHORTEST_PAUSE_S
                began = loop.time()
                room.deliver(await store.finished(list(room.waiting)))
                # Never more than half of the time is spent looking, however many runs are looked for.
                pause = max(pause, loop.time() - began)
                with suppress(TimeoutError):
                    await asyncio.wait_for(room.news.wait(), pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
        except Exception as error:
            room.fail(error)
        finally:
            del self._rooms[loop]


class _Room:
    """The waiters of one event loop, and the task that looks for them."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[asyncio.Future[Run]]] = {}
        self.news = asyncio.Event()
        self.watch: asyncio.Task[None] | None = None

    def enter(self, run_id: str, ended: asyncio.Future[Run]) -> None:
        self.waiting.setdefault(run_id, []).append(ended)
        self.news.set()

    def leave(self, run_id: str, ended: asyncio.Future[Run]) -> None:
        others = self.waiting.get(run_id, [])
        if ended in others:
            others.remove(ended)
        if not others:
            self.waiting.pop(run_id, None)
        if not self.waiting:
            self.news.set()  # So that the watch ends now, not when its pause does.

    def deliver(self, runs: list[Run]) -> None:
        for run in runs:
            for ended in self.waiting.pop(run.id, []):
                if not ended.done():
                    ended.set_result(run)

    def fail(self, error: Exception) -> None:
        for futures in self.waiting.values():
            for ended in futures:
                if not ended.done():
                    ended.set_exception(error)
        self.waiting.clear()
