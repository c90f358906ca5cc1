"""Runs a node on its own thread and event loop, beside the loop on which the user's tasks run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

from mainspring.core.instants import SECOND, Duration
from mainspring.process.eventloop import new_loop
from mainspring.process.lifetime import Lifetime
from mainspring.process.watchdog import Watchdog
from mainspring.services.node import STALL_AFTER, Node
from mainspring.services.supervisor import end_process

T = TypeVar("T")

NODE = "the node"
LEFT_S = 1.0
"""How long tasks that outlive their node may take to end."""


class Runtime:
    """Starts and stops a node. `build` is called on the loop of the node, with the loop of the user's tasks."""

    def __init__(
        self,
        build: Callable[[asyncio.AbstractEventLoop], Awaitable[Node]],
        *,
        stall_after: Duration = STALL_AFTER,
        on_failed: Callable[[str], None] = end_process,
        on_stalled: Callable[[str], None] = end_process,
        lifespan: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    ) -> None:
        """`on_failed` is called, from any thread, when something beside the node has failed for good; `on_stalled` when
        the node's own loop has stood still for `stall_after`. `lifespan` is entered on the user's loop before the node
        is built, and left after it has stopped."""
        self._build = build
        self.on_failed = on_failed
        self._on_stalled = on_stalled
        self._lifetime = Lifetime(lifespan)
        self.watchdog = Watchdog(stall_after / SECOND)
        """Watches the loop of the node. Other loops of this process may be added."""
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._serve, name="mainspring-node", daemon=True)
        self.node: Node | None = None
        self._beginning: asyncio.Task[object] | None = None
        self._begun: Node | None = None

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(_wind_up())

    async def start(self) -> Node:
        """Build the node and start its loops. Errors of both are raised here."""
        await self._lifetime.begin()
        self._thread.start()
        task_loop = asyncio.get_running_loop()

        async def begin() -> Node:
            self._beginning = asyncio.current_task()
            node = self._begun = await self._build(task_loop)
            await node.start()
            return node

        try:
            self.node = await self._there(begin)
        except BaseException:
            try:
                await self._there(self._undo)
            finally:
                await self._end()
                await self._lifetime.end()
            raise
        # Claims are renewed and fenced on this loop: without it their work must not go on.
        self.watchdog.watch(NODE, self._loop, self._thread, self._on_stalled)
        self.node.watchdog = self.watchdog.troubles
        return self.node

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop the node within the grace, and end the thread. If cancelled, it may be called again with less grace."""
        node = self.node
        if node is not None:
            await self._there(lambda: node.stop(grace_s))
        self.watchdog.forget(NODE)
        self.watchdog.stop()
        await self._end()
        await self._lifetime.end()

    async def _undo(self) -> None:
        """Stop a node whose start failed or was cancelled. The store may have its worker: unless that is stopped, it
        counts as alive until it has been silent for long enough."""
        if self._beginning is not None:
            await asyncio.wait({self._beginning})  # What it last asked of the store must not take effect after this.
        if self._begun is not None:
            await self._begun.stop(0.0)

    async def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _there(self, work: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._loop))


async def _wind_up() -> None:
    """End the remaining tasks of this loop and close its connections, in bounded time."""
    await _end_tasks()
    closing = asyncio.ensure_future(asyncio.get_running_loop().shutdown_asyncgens())
    await asyncio.wait({closing}, timeout=LEFT_S)
    if not closing.done():
        closing.cancel()
        await asyncio.wait({closing}, timeout=LEFT_S)
    await _end_tasks()  # Closing a dead connection leaves a task that wants to cancel its statement.


async def _end_tasks() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=LEFT_S)
