"""The blocking façade: coroutines of an app or a client, run in a background thread for code that cannot await."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from mainspring.core.model import Firing, Job, Run
from mainspring.core.runs.retry import Length
from mainspring.core.states import State
from mainspring.errors import MainspringError
from mainspring.sdk.handle import RunHandle
from mainspring.sdk.lock import BlockingLock
from mainspring.sdk.task import BoundTask

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class BlockingHandle(Generic[R]):
    """A `RunHandle` whose questions block the thread that asks them."""

    def __init__(self, facade: Blocking, handle: RunHandle[R]) -> None:
        self.id = handle.id
        self._call = facade.call
        self._handle = handle

    def __repr__(self) -> str:
        return repr(self._handle)

    def result(self, timeout: Length | None = None) -> R:
        """See `RunHandle.result`."""
        return self._call(self._handle.result, timeout)

    def wait(self, timeout: Length | None = None) -> Run:
        """See `RunHandle.wait`."""
        return self._call(self._handle.wait, timeout)

    def status(self) -> Run:
        """See `RunHandle.status`."""
        return self._call(self._handle.status)

    def cancel(self, reason: str = "") -> State:
        """See `RunHandle.cancel`."""
        return self._call(self._handle.cancel, reason)


class Background:
    """A thread with an event loop that others call into. Any thread may, except one that runs an event loop itself:
    there it would stop everything else."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started_in = 0

    def call(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a coroutine function in the background and wait for its answer."""
        _refuse_on_a_loop()
        future = asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()  # The wait was interrupted, e.g. by Ctrl-C; of a call that has ended, this changes nothing.
            raise

    def each(self, function: Callable[P, AsyncGenerator[T, None]], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """What a generator in the background gives, one by one. It ends with the loop over it."""
        items = function(*args, **kwargs)

        async def step() -> T | None:
            return await anext(items, None)

        try:
            while (item := self.call(step)) is not None:
                yield item
        finally:
            self.call(items.aclose)

    def end(self) -> None:
        """End the background thread. The next call starts it anew."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._started_in != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._started_in = os.getpid()
                threading.Thread(target=_serve, args=(self._loop,), name="mainspring-sync", daemon=True).start()
            return self._loop


class Blocking(Background):
    """`app.sync`: what an app can do, for code that cannot await."""

    def __init__(self, app: Mainspring) -> None:
        super().__init__()
        self._app = app

    @overload
    def submit(self, task: BoundTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> BlockingHandle[R]: ...
    @overload
    def submit(self, task: str, /, **kwargs: object) -> BlockingHandle[Any]: ...
    def submit(self, task: BoundTask[..., Any] | str, /, *args: Any, **kwargs: Any) -> BlockingHandle[Any]:
        """Submit a run of a task, of a task with options, or of a task's name; see `BoundTask.submit`."""
        if isinstance(task, str):
            return BlockingHandle(self, self.call(self._app.submit, task, kwargs))
        return BlockingHandle(self, self.call(task.submit, *args, **kwargs))

    def submit_many(self, task: BoundTask[P, R], calls: Iterable[Mapping[str, object]]) -> list[BlockingHandle[R]]:
        """See `BoundTask.submit_many`."""
        return [BlockingHandle(self, handle) for handle in self.call(task.submit_many, calls)]

    def get_run(self, run_id: str) -> Run:
        """See `Mainspring.get_run`."""
        return self.call(self._app.get_run, run_id)

    def cancel(self, run: BlockingHandle[Any] | str, reason: str = "") -> State:
        """See `Mainspring.cancel`."""
        return self.call(self._app.cancel, _id_of(run), reason)

    def retry(self, run: BlockingHandle[Any] | str) -> BlockingHandle[Any]:
        """See `Mainspring.retry`."""
        return BlockingHandle(self, self.call(self._app.retry, _id_of(run)))

    def trigger(self, job: str, request_id: str | None = None) -> Firing:
        """See `Mainspring.trigger`."""
        return self.call(self._app.trigger, job, request_id)

    def pause(self, *jobs: str, reason: str = "") -> list[Job]:
        """See `Mainspring.pause`."""
        return self.call(self._app.pause, *jobs, reason=reason)

    def resume(self, *jobs: str) -> list[Job]:
        """See `Mainspring.resume`."""
        return self.call(self._app.resume, *jobs)

    def lock(self, name: str, *, ttl: Length = 30, wait: Length = 10) -> BlockingLock:
        """See `Mainspring.lock` and `lock.BlockingLock`: `with app.sync.lock("payroll"):`."""
        return BlockingLock(self, lambda: self._app.lock(name, ttl=ttl, wait=wait))

    def close(self) -> None:
        """Let go of the store and end the background thread. The next call starts both anew."""
        self.call(self._app.close)
        self.end()


def _refuse_on_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise MainspringError(
        "sync was called on an event loop, which it would block: await the same method of the app, handle or client"
    )


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _id_of(run: BlockingHandle[Any] | str) -> str:
    return run.id if isinstance(run, BlockingHandle) else run
