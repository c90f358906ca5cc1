"""`app.sync` and `client.sync`: one call for everything that is async, for code that cannot await."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, ParamSpec, Self, TypeVar, overload

from mainspring.errors import MainspringError
from mainspring.process.lifetime import Lifetime

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """Calls async functions from code that cannot await, on an event loop in its own thread.

        run = app.sync(encode.submit, video="v1", size="4K")     # what is awaited elsewhere
        print(app.sync(run.result, timeout=30))
        for job in app.sync(app.jobs.list): ...                   # what `async for` goes over
        with app.sync(app.lock, "payroll") as lock: ...           # what `async with` enters

    Any thread may call it, except one that runs an event loop: it would stop everything else there.
    """

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._close = close
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started_in = 0

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(
        self, function: Callable[P, AsyncGenerator[T, None]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[T]: ...
    @overload
    def __call__(
        self, function: Callable[P, AbstractAsyncContextManager[T, Any]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AbstractContextManager[T]: ...
    def __call__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function of the app, a handle or a client, and wait for what it gives."""
        _refuse_on_a_loop()
        given: Any = function(*args, **kwargs)
        if isinstance(given, AsyncGenerator):
            return self._each(given)
        if isinstance(given, AbstractAsyncContextManager):
            return self._within(given)
        return self._wait(given)

    def close(self) -> None:
        """Close the store or the connections, and end the thread. The next call starts both again."""
        self(self._close)
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()  # The wait was interrupted, e.g. by Ctrl-C. A call that has ended is not changed by it.
            raise

    def _each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        async def step() -> tuple[T, ...]:
            async for item in items:
                return (item,)
            return ()

        try:
            while item := self._wait(step()):
                yield item[0]
        finally:
            self._wait(_end(items))

    @contextmanager
    def _within(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """One task enters and leaves it, as cancel scopes need it."""
        lifetime: Lifetime[T] = Lifetime(lambda: manager)
        value = self._wait(lifetime.begin())
        try:
            yield value
        except Exception as error:
            self._wait(lifetime.end(error))
        except BaseException:  # E.g. Ctrl-C, which would end the loop's thread if it were raised there.
            self._wait(lifetime.end())
            raise
        else:
            self._wait(lifetime.end())

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._started_in != os.getpid():
                self._loop = asyncio.new_event_loop()
                self._started_in = os.getpid()
                threading.Thread(target=_serve, args=(self._loop,), name="mainspring-sync", daemon=True).start()
            return self._loop


async def _end(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


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
