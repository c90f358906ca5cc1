"""Runs a node in this process: starts it, prints what it does, and stops it in bounded time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from types import FrameType
from typing import Any, NamedTuple

from mainspring.cli.opening import check_made
from mainspring.cli.output.errors import FAILED, INTERRUPTED
from mainspring.cli.output.screen import Screen
from mainspring.cli.processes.burst import until_empty
from mainspring.cli.processes.lines import LinePrinter, listen
from mainspring.cli.processes.logs import set_up_logging
from mainspring.cli.processes.succession import Succession
from mainspring.core.instants import SECOND
from mainspring.errors import StoreFailed, StoreRefused, StoreUnavailable
from mainspring.process import systemd
from mainspring.process.eventloop import new_loop
from mainspring.process.secrets import masker, secrets_of
from mainspring.sdk.app import Mainspring
from mainspring.services.node import Node
from mainspring.services.runtime import Runtime
from mainspring.services.supervisor import EXIT_FAILED
from mainspring.settings import unknown_variables
from mainspring.wiring import build_runtime, hear_runs

LAST_RESORT_S = 25.0
"""How long after its deadline a process in which something hangs is ended by force."""
LEFTOVERS_S = 1.0
UNDO_S = 10.0
"""How long a start that a signal interrupts may take to undo itself: its worker may be registered, and has to be taken
off the list. Each step of that is bounded in time."""
FAREWELL_S = 2.0
"""How long each part beside the node may take to end while the database does not answer."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
"""How long to wait between attempts to open a database that does not answer."""
NOTICE_S = 0.5
"""How often to look for the notice file."""


class ServeOptions(NamedTuple):
    """What to run, for how long, and what to do first."""

    app: Mainspring
    screen: Screen
    prepare: Callable[[], Awaitable[None]]
    schedule: bool
    stop_after_s: float | None
    quiet: bool
    work: bool = True
    create: bool = True
    """Whether to create the database if it does not exist; otherwise the process waits for it."""
    beside: Callable[[Runtime], Awaitable[Callable[[], Awaitable[None]]]] | None = None
    """Starts something beside the node, and returns what stops it."""
    burst: bool = False
    """Whether to stop once the queues of the worker are empty. Stopped before, the process fails."""


class StopRequests:
    """Requests to stop: the first drains, the second stops without waiting, the third ends the process immediately.

    A task may block the event loop or ignore its cancellation. So every request is received outside of the loop, and
    sets a time after which the process is ended by force.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, drain_s: float) -> None:
        self._loop = loop
        self._patience_s = (drain_s + LAST_RESORT_S, LAST_RESORT_S)
        self._count = 0
        self._over = threading.Event()
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.signalled = asyncio.Event()
        """Set if a request was a signal: then the process stops even while it is starting."""
        self.failed = False
        """Whether the process stops because of a failure that it cannot mend."""
        self._before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.signalled.set)
        self.request()

    def request(self) -> None:
        """Count one more request. Callable from any thread."""
        self._count += 1
        if self._count > 2:
            _end(INTERRUPTED)
        self.end_after(self._patience_s[self._count - 1], INTERRUPTED)
        with suppress(RuntimeError):  # The loop has ended, and so has what was to be stopped.
            self._loop.call_soon_threadsafe((self.first if self._count == 1 else self.second).set)

    def request_first(self) -> None:
        """Request a stop, unless there was a request before. Callable from any thread."""
        if self._count == 0:
            self.request()

    @property
    def is_requested(self) -> bool:
        """Whether there was a request."""
        return self._count > 0

    def fail(self, why: str) -> None:
        """Stop because of a failure that this process cannot mend: let work finish if possible, then end with the exit
        code of a failure. Callable from any thread."""
        logging.getLogger("mainspring").critical("stopping this process: %s", why)
        if not self.failed:
            self.failed = True
            self.end_after(self._patience_s[0], EXIT_FAILED)
            self.request_first()

    def request_first_after(self, seconds: float) -> None:
        """Request a stop after a time, unless there was a request before."""
        self._in_thread(seconds, self.request_first)

    def request_first_once(self, file: str) -> None:
        """Request a stop as soon as a file exists: some hosts announce their shutdown this way."""

        def watch() -> None:
            while not self._over.wait(NOTICE_S):
                if os.path.exists(file):
                    self.request_first()
                    return

        threading.Thread(target=watch, name="mainspring-notice", daemon=True).start()

    def end_after(self, seconds: float, code: int) -> None:
        """End the process by force after a time, unless it has ended before."""
        self._in_thread(seconds, lambda: _end(code))

    def _in_thread(self, seconds: float, act: Callable[[], None]) -> None:
        def watch() -> None:
            if not self._over.wait(seconds):
                act()

        threading.Thread(target=watch, name="mainspring-stopping", daemon=True).start()

    def all_over(self) -> None:
        """Nothing is left to stop: restore the signal handlers."""
        self._over.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _end(code: int) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def serve(service: ServeOptions) -> int:
    """Run until a signal arrives or the time is up; returns the exit code."""
    _set_up_logging(service)
    for variable in unknown_variables(os.environ):
        service.screen.warn(f"{variable} is ignored: no setting has this name")
    succession = Succession(service.stop_after_s)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        stopping = StopRequests(runner.get_loop(), service.app.settings.drain_grace / SECOND)
        if succession.stop_after_s is not None:
            stopping.request_first_after(succession.stop_after_s)
        if service.app.settings.notice is not None:
            stopping.request_first_once(service.app.settings.notice)
        try:
            code = runner.run(_serve(service, stopping, succession))
            # All work is reported or handed back. Tasks that still run on this loop are not waited for.
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
        beside = asyncio.create_task(_run_beside(service, runtime, stopping))
        node = runtime.node
        if node is not None:
            node.on_failure = stopping.request_first
        end_signs = systemd.keep_alive(lambda: _is_well(node))
        systemd.notify(systemd.READY)
        emptied = not service.burst
        if node is None or node.failure is None:
            emptied = await _until_stopped(service, node, stopping)
        systemd.notify(systemd.STOPPING)
        code = await _stop(runtime, stopping, service.screen) or (0 if emptied else FAILED)
        end_signs()
        await _briefly(beside)
        if node is not None and node.failure is not None:
            raise node.failure
        return code
    finally:
        await _briefly(asyncio.ensure_future(app.close()))
        lines.close()


async def _until_stopped(service: ServeOptions, node: Node | None, stopping: StopRequests) -> bool:
    """Wait for a request to stop, or until the queues are empty, if that was asked for; whether nothing is left."""
    if not service.burst or node is None or node.worker is None:
        await stopping.first.wait()
        return True
    worker = node.worker
    emptied = asyncio.create_task(until_empty(await service.app.open(), lambda: worker.row))
    stop = asyncio.create_task(stopping.first.wait())
    await asyncio.wait({emptied, stop}, return_when=asyncio.FIRST_COMPLETED)
    if emptied.done():
        emptied.result()
        stopping.request_first()
        await stop
        return True
    emptied.cancel()
    service.screen.warn("stopped before its queues were empty")
    return False


def _is_well(node: Node | None) -> bool:
    """Whether every loop turns. A database that is away is no reason to restart: it does not come back sooner."""
    return node is None or not (node.supervisor.troubles() or node.watchdog())


async def _begin(
    service: ServeOptions, stopping: StopRequests, succession: Succession, lines: LinePrinter
) -> Runtime | None:
    """Start the node. While the database does not answer, try again; None if a signal ends that."""
    pause_s, random = FIRST_PAUSE_S, Random()
    while True:
        starting = asyncio.create_task(_start(service, lines, stopping, succession))
        stop = asyncio.create_task(stopping.signalled.wait())
        await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting}, timeout=UNDO_S)
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
                if not stopping.signalled.is_set():  # Its time is up before it could start.
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
        listener=None if service.quiet else listen(lines, app.settings, as_json=service.screen.session.as_json),
        on_failed=stopping.fail,
        on_replaced=lambda unfinished: succession.pass_on(unfinished, stopping=stopping.is_requested),
        # A process that only works ends with its worker. One that schedules goes on without it.
        on_drain=None if service.schedule else stopping.request_first,
    )
    await runtime.start()
    return runtime


async def _briefly(task: asyncio.Future[Any]) -> None:
    """Wait for a task, but not long: a task that hangs is cancelled. Errors of the task are raised."""
    done, _ = await asyncio.wait({task}, timeout=FAREWELL_S)
    if done:
        task.result()
        return
    task.cancel()
    await asyncio.wait({task}, timeout=LEFTOVERS_S)


async def _run_beside(service: ServeOptions, runtime: Runtime, stopping: StopRequests) -> None:
    """Run what is beside the node until the process stops. If it cannot start, the process stops."""
    if service.beside is None:
        return
    starting = asyncio.ensure_future(service.beside(runtime))
    stop = asyncio.create_task(stopping.first.wait())
    await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # The process stops before this has started.
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
        await runtime.stop(0.0)  # No result could be reported.
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
    screen.hint("Stopped at once: unfinished runs have been handed back.")
    return INTERRUPTED
