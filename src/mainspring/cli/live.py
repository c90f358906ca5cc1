"""A node in this process: started, shown, and stopped in bounded time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import NamedTuple

from mainspring.app import Mainspring
from mainspring.cli.lines import Lines
from mainspring.cli.screen import Screen
from mainspring.cli.trouble import INTERRUPTED
from mainspring.cli.views import event_view
from mainspring.core.instants import SECOND
from mainspring.core.model import EventBatch
from mainspring.runtime import Runtime, new_loop
from mainspring.wiring import build_runtime, open_sinks

FOLLOW_S = 0.1
FOLLOW_LIMIT = 200
LAST_RESORT_S = 10.0
"""So long after it should have ended, a process in which something hangs is ended all the same."""

Deliver = Callable[[Sequence[EventBatch]], Awaitable[None]]


class Service(NamedTuple):
    """What to run, for how long, and what comes before."""

    app: Mainspring
    screen: Screen
    prepare: Callable[[], Awaitable[None]]
    schedule: bool
    stop_after_s: float | None
    quiet: bool


class Stopping:
    """Requests to stop: the first drains, the second stops at once, the third ends the process here and now."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._count = 0
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        # Not the loop's own handlers: a task that blocks the loop must not keep the third request from being heard.
        self._before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.request()

    def request(self) -> None:
        """One more request. From any thread."""
        self._count += 1
        if self._count > 2:
            os._exit(INTERRUPTED)
        with suppress(RuntimeError):  # The loop has ended, and so has what was to be stopped.
            self._loop.call_soon_threadsafe((self.first if self._count == 1 else self.second).set)

    def restore(self) -> None:
        """Signals mean again what they meant before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


def serve(service: Service) -> int:
    """Run until a signal comes or the time is up; the exit code."""
    _set_up_logging(service)
    deadline = threading.Event()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        code = runner.run(_serve(service, deadline))
    deadline.set()
    return code


def _set_up_logging(service: Service) -> None:
    """Unless the app has done so: warnings to stderr, where they do not mix with what programs read."""
    level = logging.INFO if service.screen.session.debug else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(message)s")


async def _serve(service: Service, ended: threading.Event) -> int:
    app, session = service.app, service.screen.session
    stopping = Stopping()
    lines = Lines(colored=session.colored() and not session.as_json, on_closed=stopping.request)
    try:
        await service.prepare()
        by_relay = service.schedule and not session.as_json and not service.quiet
        show = lines.put if by_relay else None
        runtime = build_runtime(app, app.settings, schedule=service.schedule, work=True, show=show)
        node = await runtime.start()
        followed = asyncio.Event()
        name = node.worker.row.id if node.worker is not None else ""
        deliver = None if by_relay or service.quiet else _to_lines(service, lines, name)
        follower = asyncio.create_task(_follow(app, deliver, followed)) if deliver is not None else None
        await _until(stopping.first, service.stop_after_s)
        _end_at_last(app.settings.drain_grace / SECOND + LAST_RESORT_S, ended)
        code = await _stop(runtime, stopping, service.screen)
        followed.set()
        if follower is not None:
            await follower
        return code
    finally:
        await app.close()
        lines.close()
        stopping.restore()


async def _until(event: asyncio.Event, seconds: float | None) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)


def _end_at_last(seconds: float, ended: threading.Event) -> None:
    """The last resort against a task that blocks the loop or ignores its cancellation for ever."""

    def watch() -> None:
        if not ended.wait(seconds):
            print("Error: something does not end: the process ends without it.", file=sys.stderr, flush=True)
            os._exit(INTERRUPTED)

    threading.Thread(target=watch, name="mainspring-last-resort", daemon=True).start()


async def _stop(runtime: Runtime, stopping: Stopping, screen: Screen) -> int:
    """Let running work finish; at the second request, stop at once."""
    worker = runtime.node.worker if runtime.node is not None else None
    busy = worker.crew.busy if worker is not None else 0
    if busy:
        screen.hint(f"Finishing {busy} running job{'' if busy == 1 else 's'}; Ctrl-C again to stop at once.")
    draining = asyncio.create_task(runtime.stop())
    hurried = asyncio.create_task(stopping.second.wait())
    await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if draining.done():
        draining.result()
        screen.hint("Stopped.")
        return 0
    draining.cancel()
    with suppress(asyncio.CancelledError):
        await draining
    await runtime.stop(0.0)
    screen.hint("Stopped at once: what was running has been handed back.")
    return INTERRUPTED


def _to_lines(service: Service, lines: Lines, worker: str) -> Deliver:
    """Events as JSON, or as the readable lines of those that are about this worker."""
    sinks = open_sinks(None, lines.put)

    async def as_json(batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            for offset, event in enumerate(batch.events):
                lines.put(service.screen.encode(event_view(batch.position + offset, event)), "")

    async def as_text(batches: Sequence[EventBatch]) -> None:
        own = [
            EventBatch(batch.position, [each for each in batch.events if each.worker == worker]) for batch in batches
        ]
        for sink in sinks:
            await sink.deliver(own)

    return as_json if service.screen.session.as_json else as_text


async def _follow(app: Mainspring, deliver: Deliver, ended: asyncio.Event) -> None:
    """Deliver all events from now on, until told to end and none is left."""
    store = await app.open()
    position = await store.next_position()
    while True:
        last = ended.is_set()
        batches = await store.events_since(position, FOLLOW_LIMIT)
        if batches:
            await deliver(batches)
            position = batches[-1].position + len(batches[-1].events)
        elif last:
            return
        else:
            await _until(ended, FOLLOW_S)
