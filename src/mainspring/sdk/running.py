"""An app that schedules and works inside another program: a web service, a notebook, a script."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.runs.retry import Length
from mainspring.errors import InvalidInput, MainspringError
from mainspring.process.eventloop import new_loop
from mainspring.sdk.name_clashes import check_twins
from mainspring.wiring import build_runtime, hear_runs

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring
    from mainspring.services.runtime import Runtime

log = logging.getLogger("mainspring")


class Running:
    """`async with app.running():` runs a scheduler, a worker, or both, until the block ends.

    Claims, heartbeats and planning have a thread of their own; async tasks run on the event loop of the block. Leaving
    the block drains: running work may finish within `drain_grace`. A block that is cancelled while it drains hands back
    what still runs.

    What cannot go on ends the block: its task is cancelled, and MainspringError is raised in place of that. The program
    itself is never ended, and no signal handler, log handler or stream of it is replaced unless `capture` asks for it.
    """

    def __init__(self, app: Mainspring, *, schedule: bool, work: bool, sync: bool, capture: bool) -> None:
        if not schedule and not work:
            raise InvalidInput("work", work, "leaves nothing to run", "set schedule=True, work=True, or both")
        self._app = app
        self._schedule, self._work, self._sync, self._capture = schedule, work, sync, capture
        self._runtime: Runtime | None = None
        self._restore: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._body: asyncio.Task[object] | None = None
        self._opened = self._cancelled = False
        self.failure = ""
        """Why it cannot go on; empty if all is well."""

    async def __aenter__(self) -> Self:
        if self._runtime is not None:
            raise MainspringError("this app.running() block has been entered already: make another one")
        app = self._app
        self._opened = app.opened is None
        self._loop, self._body = asyncio.get_running_loop(), asyncio.current_task()
        try:
            await self._prepare()
            self._runtime = runtime = build_runtime(
                *(app, app.settings),
                schedule=self._schedule,
                work=self._work,
                on_failed=self._fail,
                end=self._fail,
            )
            node = await runtime.start()
            node.on_failure = lambda: self._fail(str(node.failure))
        except BaseException:
            await self._close()
            raise
        if self._capture:
            self._restore = _capture(app)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        try:
            await self._stop()
        finally:
            self._restore()
            await self._close()
        if self.failure:
            if self._cancelled and body is not None:
                body.uncancel()
            raise MainspringError(f"app {self._app.name} stopped running: {self.failure}") from error

    async def _prepare(self) -> None:
        await self._app.open()
        if self._work:
            for warning in await check_twins(self._app):
                log.warning("%s. Give one of them another name, or a namespace of its own.", warning)
        if self._sync and self._schedule:
            await self._app.sync_jobs()

    async def _stop(self) -> None:
        """Drain; if that is cancelled, too, hand back what still runs."""
        runtime = self._runtime
        if runtime is None:
            return
        stopping = asyncio.ensure_future(runtime.stop())
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            if stopping.done():
                raise
            stopping.cancel()
            with suppress(asyncio.CancelledError):
                await stopping
            await runtime.stop(0.0)
            raise

    async def _close(self) -> None:
        if self._opened:
            await self._app.close()

    def _fail(self, why: str) -> None:
        """End the block because of a failure. Callable from any thread."""
        if not self.failure and self._loop is not None:
            self.failure = why
            log.critical("app %s cannot go on: %s", self._app.name, why)
            with suppress(RuntimeError):  # The loop has ended, and the block with it.
                self._loop.call_soon_threadsafe(self._cancel_body)

    def _cancel_body(self) -> None:
        if self._body is not None and not self._body.done():
            self._cancelled = True
            self._body.cancel(self.failure)


def run_app(running: Running, duration: Length | None) -> None:
    """Run until Ctrl-C, or for this long; then drain."""
    seconds = None if duration is None else parse_duration(duration, "duration") / SECOND
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise MainspringError(
            "app.run() was called on an event loop, which it would block: use `async with app.running()`"
        )

    async def run() -> None:
        async with running:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), seconds)

    with asyncio.Runner(loop_factory=new_loop) as runner, suppress(KeyboardInterrupt):
        runner.run(run())


def _capture(app: Mainspring) -> Callable[[], None]:
    """Put what tasks print and log into the logs of their runs, until the answer is called."""
    root = logging.getLogger()
    before = (sys.stdout, sys.stderr, root.handlers[:], [each.level for each in root.handlers], root.level)
    hear_runs(app.settings)

    def restore() -> None:
        sys.stdout, sys.stderr, handlers, levels, level = before
        root.handlers[:] = handlers
        for handler, each in zip(handlers, levels, strict=True):
            handler.setLevel(each)
        root.setLevel(level)

    return restore
