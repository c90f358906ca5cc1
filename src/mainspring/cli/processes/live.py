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
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from mainspring.cli.backends.opening import check_made
from mainspring.cli.output.errors import INTERRUPTED
from mainspring.cli.output.screen import Screen
from mainspring.cli.processes.lines import LinePrinter
from mainspring.cli.processes.logs import set_up_logging
from mainspring.cli.processes.succession import Succession
from mainspring.core.instants import SECOND
from mainspring.core.model import Event, EventBatch
from mainspring.errors import MainspringError, StoreFailed, StoreRefused, StoreUnavailable
from mainspring.operations.views import event_view
from mainspring.process.background import is_cancelled
from mainspring.process.eventloop import new_loop
from mainspring.process.secrets import masker, secrets_of
from mainspring.sdk.app import Mainspring
from mainspring.services.runtime import Runtime
from mainspring.services.supervisor import EXIT_FAILED
from mainspring.settings import unknown_variables
from mainspring.wiring import build_runtime, hear_runs, show_events

FOLLOW_S = 0.1
FOLLOW_LIMIT = 200
LAST_RESORT_S = 25.0
"""So long after it should have stopped, a process in which something hangs ends all the same."""
LEFTOVERS_S = 1.0
FAREWELL_S = 2.0
"""How long each of those beside the node may take to end, where a database that does not answer holds them up."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
"""How long to wait for a database that is away before the next try."""
NOTICE_S = 0.5
"""How often to look for a notice."""

Deliver = Callable[[Sequence[EventBatch]], Awaitable[None]]


class ServeOptions(NamedTuple):
    """What to run, for how long, and what comes before."""

    app: Mainspring
    screen: Screen
    prepare: Callable[[], Awaitable[None]]
    schedule: bool
    stop_after_s: float | None
    quiet: bool
    work: bool = True
    create: bool = True
    """Whether to make the database if there is none; otherwise it is waited for."""
    beside: Callable[[Runtime], Awaitable[Callable[[], Awaitable[None]]]] | None = None
    """Starts something beside the node; its answer stops that."""

    @property
    def tells_by_relay(self) -> bool:
        """Whether the scheduler's relay shows what happens."""
        return self.schedule and not self.quiet and not self.screen.session.as_json

    @property
    def tells_itself(self) -> bool:
        """Whether the worker says what it does: it never reads the events of the fleet."""
        return not self.schedule and not self.quiet


class StopRequests:
    """Requests to stop: the first drains, the second stops at once, the third ends the process here and now.

    A task may block the loop or ignore its cancellation for ever; so every request is heard outside of the loop, and
    sets a time by which the process ends all the same.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, drain_s: float) -> None:
        self._loop = loop
        self._patience_s = (drain_s + LAST_RESORT_S, LAST_RESORT_S)
        self._count = 0
        self._over = threading.Event()
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.signalled = asyncio.Event()
        """Set if a request was a signal: somebody waits for the end, whatever is under way."""
        self.failed = False
        """Whether the process stops because something in it has failed for good."""
        self._before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.signalled.set)
        self.request()

    def request(self) -> None:
        """One more request. From any thread."""
        self._count += 1
        if self._count > 2:
            _end(INTERRUPTED)
        self.end_after(self._patience_s[self._count - 1], INTERRUPTED)
        with suppress(RuntimeError):  # The loop has ended, and so has what was to be stopped.
            self._loop.call_soon_threadsafe((self.first if self._count == 1 else self.second).set)

    def request_first(self) -> None:
        """A request, unless there was one before. From any thread."""
        if self._count == 0:
            self.request()

    @property
    def is_requested(self) -> bool:
        """Whether there was a request."""
        return self._count > 0

    def fail(self, why: str) -> None:
        """Stop, because something has failed that this process cannot mend: let work finish if that still can be done,
        then end with a code that says so. From any thread."""
        logging.getLogger("mainspring").critical("stopping this process: %s", why)
        if not self.failed:
            self.failed = True
            self.end_after(self._patience_s[0], EXIT_FAILED)
            self.request_first()

    def request_first_after(self, seconds: float) -> None:
        """A request that comes by itself, unless there was one before or all is over."""
        self._in_thread(seconds, self.request_first)

    def request_first_once(self, file: str) -> None:
        """A request as soon as a file exists: a host that will be taken away is given notice so."""

        def watch() -> None:
            while not self._over.wait(NOTICE_S):
                if os.path.exists(file):
                    self.request_first()
                    return

        threading.Thread(target=watch, name="mainspring-notice", daemon=True).start()

    def end_after(self, seconds: float, code: int) -> None:
        """End the process, unless all is over before."""
        self._in_thread(seconds, lambda: _end(code))

    def _in_thread(self, seconds: float, act: Callable[[], None]) -> None:
        def watch() -> None:
            if not self._over.wait(seconds):
                act()

        threading.Thread(target=watch, name="mainspring-stopping", daemon=True).start()

    def all_over(self) -> None:
        """Nothing is left to stop: signals mean again what they meant before."""
        self._over.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _end(code: int) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def serve(service: ServeOptions) -> int:
    """Run until a signal comes or the time is up; the exit code."""
    _set_up_logging(service)
    for variable in unknown_variables(os.environ):
        service.screen.warn(f"{variable} belongs to no setting, and is ignored")
    succession = Succession(service.stop_after_s)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        stopping = StopRequests(runner.get_loop(), service.app.settings.drain_grace / SECOND)
        if succession.stop_after_s is not None:
            stopping.request_first_after(succession.stop_after_s)
        if service.app.settings.notice is not None:
            stopping.request_first_once(service.app.settings.notice)
        try:
            code = runner.run(_serve(service, stopping, succession))
            # All work is reported or handed back. What a task may still do on this loop is not waited for.
            stopping.end_after(LEFTOVERS_S, EXIT_FAILED if stopping.failed else code)
            runner.close()
        finally:
            stopping.all_over()
    return EXIT_FAILED if stopping.failed else code


def _set_up_logging(service: ServeOptions) -> None:
    settings = service.app.settings
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    if service.screen.session.debug:
        level = min(level, logging.INFO)
    set_up_logging(level, settings.log_format, masker(secrets_of(settings)))
    if service.work:
        hear_runs(settings)


async def _serve(service: ServeOptions, stopping: StopRequests, succession: Succession) -> int:
    app, session = service.app, service.screen.session
    colored = session.colored() and not session.as_json
    lines = LinePrinter(colored=colored, on_closed=stopping.request_first, file=session.stdout)
    try:
        runtime = await _begin(service, stopping, succession, lines)
        if runtime is None:
            service.screen.hint("Stopped.")
            return 0
        told = asyncio.Event()
        follower = asyncio.create_task(_follow(app, _to_lines(service, lines), told))
        beside = asyncio.create_task(_run_beside(service, runtime, stopping))
        node = runtime.node
        if node is not None:
            node.on_failure = stopping.request_first
        if node is None or node.failure is None:
            await stopping.first.wait()
        code = await _stop(runtime, stopping, service.screen)
        told.set()
        await _briefly(beside)
        await _briefly(follower)
        if node is not None and node.failure is not None:
            raise node.failure
        return code
    finally:
        await _briefly(asyncio.ensure_future(app.close()))
        lines.close()


async def _begin(
    service: ServeOptions, stopping: StopRequests, succession: Succession, lines: LinePrinter
) -> Runtime | None:
    """The node, at work. While the database is away, try again and again; None if a signal ends that."""
    pause_s, random = FIRST_PAUSE_S, Random()
    while True:
        starting = asyncio.create_task(_start(service, lines, stopping, succession))
        stop = asyncio.create_task(stopping.signalled.wait())
        await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            await _briefly(starting, wait_s=0.0)
            return None
        stop.cancel()
        try:
            return starting.result()
        except StoreUnavailable as error:
            if isinstance(error, StoreRefused | StoreFailed):
                raise
            wait_s = pause_s * (0.5 + 0.5 * random.random())
            service.screen.warn(f"{error}; trying again in {wait_s:.1f} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.first.wait(), wait_s)
                if not stopping.signalled.is_set():  # Its time is up, and it never began.
                    raise
                return None
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _start(service: ServeOptions, lines: LinePrinter, stopping: StopRequests, succession: Succession) -> Runtime:
    app = service.app
    if not service.create:
        check_made(app)
    await succession.settle(await app.open())
    await service.prepare()
    runtime = build_runtime(
        *(app, app.settings),
        schedule=service.schedule,
        work=service.work,
        show=lines.put if service.tells_by_relay else None,
        tell=_teller(service, lines) if service.tells_itself else None,
        on_failed=stopping.fail,
        on_replaced=lambda unfinished: succession.pass_on(unfinished, stopping=stopping.is_requested),
        # A process that only works ends with its worker; one that schedules goes on without it.
        on_drain=None if service.schedule else stopping.request_first,
    )
    await runtime.start()
    return runtime


def _teller(service: ServeOptions, lines: LinePrinter) -> Callable[[Event, str], None]:
    """What the worker here does, as it does it: as JSON, or as readable lines."""
    if service.screen.session.as_json:
        return lambda event, _: lines.put(service.screen.encode(event_view(None, event)), "")
    return show_events(lines.put)


async def _briefly(task: asyncio.Future[Any], wait_s: float = FAREWELL_S) -> None:
    """Wait for a task, but not long: what hangs is cancelled, and no fault. Others' faults are raised."""
    done, _ = await asyncio.wait({task}, timeout=wait_s)
    if done:
        task.result()
        return
    task.cancel()
    await asyncio.wait({task}, timeout=LEFTOVERS_S)


async def _run_beside(service: ServeOptions, runtime: Runtime, stopping: StopRequests) -> None:
    """Run what is beside the node until the process is to stop; if it cannot be started, the process is."""
    if service.beside is None:
        return
    starting = asyncio.ensure_future(service.beside(runtime))
    stop = asyncio.create_task(stopping.first.wait())
    await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # What has not begun when everything ends need not begin.
        starting.cancel()
        await asyncio.wait({starting})
        return
    try:
        end = starting.result()
    except BaseException:
        stopping.request_first()
        stop.cancel()
        raise
    await stop
    await end()


async def _stop(runtime: Runtime, stopping: StopRequests, screen: Screen) -> int:
    """Let running work finish; at the second request, stop at once."""
    if runtime.node is not None and runtime.node.failure is not None:
        await runtime.stop(0.0)  # No result of what still runs could be reported.
        return 1
    worker = runtime.node.worker if runtime.node is not None else None
    busy = worker.runner.busy if worker is not None else 0
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


def _to_lines(service: ServeOptions, lines: LinePrinter) -> Deliver | None:
    """Events as JSON; None if others show them."""
    if service.quiet or service.tells_by_relay or service.tells_itself:
        return None

    async def as_json(batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            for offset, event in enumerate(batch.events):
                lines.put(service.screen.encode(event_view(batch.position + offset, event)), "")

    return as_json


async def _follow(app: Mainspring, deliver: Deliver | None, ended: asyncio.Event) -> None:
    """Deliver all events from now on, until told to end and none is left."""
    if deliver is None:
        return
    store = await app.open()
    position: int | None = None
    while True:
        last = ended.is_set()
        batches: Sequence[EventBatch] = ()
        try:
            if position is None:
                position = await store.next_position()
            batches = await store.events_since(position, FOLLOW_LIMIT)
        except StoreUnavailable:
            pass  # The node tells of that, and this goes on where it was.
        except (MainspringError, asyncio.CancelledError) as error:
            if is_cancelled() or last:
                raise
            logging.getLogger("mainspring").error("events cannot be shown at the moment: %r", error)
        if batches:
            await deliver(batches)
            position = batches[-1].position + len(batches[-1].events)
        elif last:
            return
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), FOLLOW_S)
