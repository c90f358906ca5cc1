"""Leadership for users: `app.is_leader`, `@app.on_leader`, `@app.on_follower`, and
`async with app.leadership("name") as led:`.

The callbacks report the elections of this process's scheduler. A leadership of one's own is a lock on the app's lease
with a term of the store: its number is the fencing token, and the history of terms keeps it beside the scheduler's.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from mainspring.core.instants import SECOND
from mainspring.core.model import Term
from mainspring.core.runs.retry import Length
from mainspring.errors import Conflict, InvalidInput, LeaseUnavailable, LockRefused, StoreError

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring
    from mainspring.sdk.lock import Lock
    from mainspring.services.scheduler.elector import Elector

log = logging.getLogger("mainspring")

LeaderHook = Callable[[Term], Coroutine[Any, Any, object] | None]
END_S: Final = 5.0
"""How long callbacks may take once the scheduler has stopped."""
LOOK_AGAIN_S: Final = 1.0
"""How often a candidate asks where the lease does not report that it is free."""


class LeaderHooks:
    """The callbacks of one app. They run one after another, in the order of the changes: async ones on the event loop
    of the tasks, plain functions on a thread."""

    def __init__(self) -> None:
        self.on_leader: list[LeaderHook] = []
        self.on_follower: list[LeaderHook] = []
        self._changes: asyncio.Queue[tuple[list[LeaderHook], Term]] = asyncio.Queue()
        self._electors: tuple[Elector, ...] = ()

    def leads(self) -> bool:
        """Whether an elector of this process leads, and may still trust that it does."""
        return any(elector.term() is not None for elector in self._electors)

    def add(self, hooks: list[LeaderHook], function: LeaderHook) -> None:
        """Declare a callback."""
        if not callable(function):
            raise InvalidInput("function", function, "cannot be called", "decorate a function that takes the term")
        hooks.append(function)

    def follow(self, electors: Iterable[Elector], loop: asyncio.AbstractEventLoop) -> None:
        """Hear of the changes of these electors, and act on `loop`."""

        def hear(term: Term, ended: str | None) -> None:
            hooks = self.on_leader if ended is None else self.on_follower
            with suppress(RuntimeError):  # The loop has ended, and the program with it.
                loop.call_soon_threadsafe(self._changes.put_nowait, (hooks, term))

        self._electors = tuple(electors)
        for elector in self._electors:
            elector.on_change.append(hear)

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """The time for which callbacks are called: at its end, those that are due may finish."""
        if not self.on_leader and not self.on_follower:
            yield
            return
        self._changes = asyncio.Queue()
        acting = asyncio.create_task(self._act())
        try:
            yield
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changes.join(), END_S)
        finally:
            acting.cancel()

    async def _act(self) -> None:
        while True:
            hooks, term = await self._changes.get()
            for hook in hooks:
                try:
                    if inspect.iscoroutinefunction(hook):
                        await hook(term)
                    else:
                        await asyncio.to_thread(hook, term)
                except Exception:
                    log.exception("the leadership callback %r failed for term %d of %s", hook, term.number, term.name)
            self._changes.task_done()


class Leadership:
    """See `Mainspring.leadership`. To be entered once at a time."""

    def __init__(self, app: Mainspring, name: str, ttl: Length) -> None:
        self._app = app
        self._lock: Lock = app.lock(f"leader:{name}", ttl=ttl, wait=0)
        self.name = name
        self._term: Term | None = None
        self._stack = AsyncExitStack()

    @property
    def token(self) -> int:
        """The number of the term: greater than that of every earlier leader. Conflict while this process does not
        lead."""
        if self._term is None:
            raise Conflict(f"this process does not lead {self.name!r}: its token is known within its `async with`")
        return self._term.number

    @property
    def lost(self) -> asyncio.Event:
        """Set as soon as the leadership can no longer be relied on."""
        return self._lock.lost

    def check(self) -> None:
        """LockLost if this process can no longer rely on leading: before doing what cannot be undone."""
        self._lock.check()

    async def __aenter__(self) -> Self:
        await self._win()
        try:
            store = await self._app.open()
            name = f"{self._app.settings.namespace}/{self.name}"
            self._term = await store.begin_term(name, self._lock.owner)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _win(self) -> None:
        """Wait until this process leads, for as long as it takes."""
        lease = await self._lock.lease()
        free = asyncio.Event()
        stop = lease.on_free(self._lock.lease_name, free.set)
        pause_s = LOOK_AGAIN_S if lease.times is None else lease.times.retry_every / SECOND
        try:
            while True:
                free.clear()
                try:
                    await self._stack.enter_async_context(self._lock)
                    return
                except (LockRefused, LeaseUnavailable) as error:
                    log.debug("%s is not won yet: %s", self.name, error)
                with suppress(TimeoutError):
                    await asyncio.wait_for(free.wait(), min(pause_s, LOOK_AGAIN_S))
        finally:
            stop()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        term, self._term = self._term, None
        if term is not None:
            lost = "lost the lease" if self._lock.lost.is_set() else "failed" if error is not None else "finished"
            try:
                store = await self._app.open()
                await store.end_term(term, lost)
            except StoreError as trouble:
                log.debug("the end of a term could not be written down: %s", trouble)
        return await self._stack.__aexit__(kind, error, traceback)
