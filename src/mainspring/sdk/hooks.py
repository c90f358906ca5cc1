"""Hooks of an app: at a submission, around an attempt, after its end, and for as long as a process works."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from mainspring.core.model import Event as EventRow
from mainspring.core.model import KeptOptions
from mainspring.errors import InvalidInput, MainspringError
from mainspring.executor import RunContext, current_run
from mainspring.operations.records import Event
from mainspring.operations.values.from_rows import event_record

log = logging.getLogger("mainspring")
T = TypeVar("T")

MOST_CONTEXT_BYTES = 4_096
"""The bound of what hooks may store with each run: as much as the headers of a trace need, not a payload."""
END_S = 5.0
"""How long async `on_end` hooks may take after the worker has stopped."""


class Submission(NamedTuple):
    """What is about to be submitted."""

    task: str
    runs: int
    """How many runs: more than one for `submit_many`, whose runs share their context."""


SubmitHook = Callable[[Submission], Mapping[str, str] | None]
AroundHook = Callable[[RunContext], Iterator[None]] | Callable[[RunContext], AsyncIterator[None]]
EndHook = Callable[[Event], Coroutine[Any, Any, object] | None]
Lifespan = Callable[[], AsyncIterator[Any]] | Callable[[], AbstractAsyncContextManager[Any]]

_Around = Callable[[RunContext], AbstractContextManager[None] | AbstractAsyncContextManager[None]]
_NOTHING = object()


class Hooks:
    """The hooks of one app. `Mainspring` has the decorators that add to them."""

    def __init__(self) -> None:
        self.on_submit: list[SubmitHook] = []
        self.around: list[_Around] = []
        self.on_end: list[EndHook] = []
        self._lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None
        self._state: object = _NOTHING
        self._ending: set[asyncio.Task[object]] = set()
        self.drive: Callable[[Coroutine[Any, Any, Any]], Any] = _no_loop
        """Runs a coroutine from a thread that executes a task; set while the process works."""

    @property
    def needs_loop(self) -> bool:
        """Whether a process that executes tasks has to keep an event loop for them."""
        return self._lifespan is not None or bool(self.around)

    @property
    def state(self) -> Any:
        """What the lifespan of this process yielded."""
        if self._state is _NOTHING:
            raise MainspringError(
                "app.state is there while a worker runs, for an app that declares @app.lifespan: in tasks and hooks"
            )
        return self._state

    def set_lifespan(self, function: Lifespan) -> None:
        """Declare it, once."""
        if self._lifespan is not None:
            raise InvalidInput("lifespan", function, "is the second of this app", "do both in one function")
        if inspect.isasyncgenfunction(function):
            self._lifespan = asynccontextmanager(function)
        elif inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function) or not callable(function):
            remedy = "write `async def` with one `yield`"
            raise InvalidInput("lifespan", function, "is no async context manager", remedy)
        else:
            self._lifespan = cast(Callable[[], AbstractAsyncContextManager[Any]], function)

    def add_submit(self, function: SubmitHook) -> None:
        """Declare an `on_submit` hook."""
        if inspect.iscoroutinefunction(function) or not callable(function):
            raise InvalidInput("on_submit", function, "is not a plain function", "return the context, without await")
        self.on_submit.append(function)

    def add_around(self, function: AroundHook) -> None:
        """Declare an `around` hook."""
        if inspect.isasyncgenfunction(function):
            self.around.append(asynccontextmanager(function))
        elif inspect.isgeneratorfunction(function):
            self.around.append(contextmanager(function))
        else:
            raise InvalidInput("around", function, "has no `yield`", "write `yield` where the attempt belongs")

    def carry(self, options: str, task: str, count: int) -> str:
        """The encoded options of a submission with what the `on_submit` hooks add to its context."""
        if not self.on_submit:
            return options
        kept = msgspec.json.decode(options, type=KeptOptions)
        context = dict(kept.context)
        for hook in self.on_submit:
            context |= hook(Submission(task, count)) or {}
        return msgspec.json.encode(msgspec.structs.replace(kept, context=check_context(context))).decode()

    def call(self, function: Callable[..., T], arguments: Mapping[str, object]) -> T | None:
        """Call a function within the `around` hooks; from a thread where no event loop runs."""
        if not self.around:
            return function(**arguments)
        run = current_run()
        with ExitStack() as stack:
            for hook in self.around:
                manager = hook(run)
                if isinstance(manager, AbstractAsyncContextManager):
                    manager = _driven(manager, self.drive)
                stack.enter_context(manager)
            return function(**arguments)
        return None  # A hook has swallowed the exception.

    def acall(
        self, function: Callable[..., Coroutine[Any, Any, T]], arguments: Mapping[str, object]
    ) -> Coroutine[Any, Any, T | None]:
        """As `call`, for an async function."""
        return function(**arguments) if not self.around else self._acall(function, arguments)

    async def _acall(
        self, function: Callable[..., Coroutine[Any, Any, T]], arguments: Mapping[str, object]
    ) -> T | None:
        run = current_run()
        async with AsyncExitStack() as stack:
            for hook in self.around:
                manager = hook(run)
                if isinstance(manager, AbstractAsyncContextManager):
                    await stack.enter_async_context(manager)
                else:
                    stack.enter_context(manager)
            return await function(**arguments)
        return None

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """The time for which this process works: the lifespan is entered, and hooks have an event loop."""
        loop = asyncio.get_running_loop()
        self.drive = lambda work: asyncio.run_coroutine_threadsafe(work, loop).result()
        try:
            async with AsyncExitStack() as stack:
                if self._lifespan is not None:
                    self._state = await stack.enter_async_context(self._lifespan())
                yield
                if self._ending:
                    await asyncio.wait(self._ending, timeout=END_S)
        finally:
            self._state, self.drive = _NOTHING, _no_loop

    def hear_ends(self, loop: asyncio.AbstractEventLoop) -> Callable[[EventRow], None]:
        """What a worker calls, from any thread, with the end of each attempt."""

        def hear(event: EventRow) -> None:
            with suppress(RuntimeError):  # The loop has ended, and the program with it.
                loop.call_soon_threadsafe(self._end, event)

        return hear

    def _end(self, row: EventRow) -> None:
        event = event_record(None, row)
        for hook in self.on_end:
            try:
                work = hook(event)
            except Exception:
                log.exception("the on_end hook %r failed for run %s", hook, event.run_id)
                continue
            if work is not None:
                self._ending.add(task := asyncio.ensure_future(work))
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an on_end hook failed", exc_info=error)


def check_context(context: Mapping[str, str]) -> dict[str, str]:
    """The context of a run, if it is a small map of texts."""
    remedy = "carry ids; pass data as arguments"
    for name, value in context.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput("context", {name: value}, "is not a text for a text", remedy)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in context.items())
    if size > MOST_CONTEXT_BYTES:
        raise InvalidInput("context", size, f"bytes are more than the {MOST_CONTEXT_BYTES} of a context", remedy)
    return dict(context)


@contextmanager
def _driven(
    manager: AbstractAsyncContextManager[None], drive: Callable[[Coroutine[Any, Any, Any]], Any]
) -> Iterator[None]:
    """An async context manager around a plain function: its steps run on the event loop."""

    async def enter() -> None:
        await manager.__aenter__()

    async def leave(error: BaseException | None) -> bool | None:
        return await manager.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)

    drive(enter())
    try:
        yield
    except BaseException as error:
        if not drive(leave(error)):
            raise
    else:
        drive(leave(None))


def _no_loop(work: Coroutine[Any, Any, Any]) -> Any:
    work.close()
    raise MainspringError("async `around` hooks need the event loop of a worker, which does not run")
