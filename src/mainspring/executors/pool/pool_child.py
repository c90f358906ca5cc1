"""What a pool process does: it executes one function after another for its worker."""

from __future__ import annotations

import asyncio
import fcntl
import importlib
import importlib.util
import logging
import os
import resource
import signal
import socket
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from types import FrameType, ModuleType
from typing import Any, TypeVar

import msgspec

from mainspring.core.instants import Instant
from mainspring.executor import ExecutableTask, Outcome, RunContext, TaskHooks, plain
from mainspring.executors.captured_output import hear_logging
from mainspring.executors.failures import failed
from mainspring.executors.function import call
from mainspring.executors.launching.kernel import adopt_orphans, hide_memory
from mainspring.executors.pool.messages import CHANNEL, ModuleLocation, PoolMessage, PoolSetup, RunRequest
from mainspring.process.lifetime import Lifetime
from mainspring.process.secrets import take_over

T = TypeVar("T")
FindTask = Callable[[ModuleType, str], ExecutableTask]
"""Finds the task of a name in a module; raises if there is none."""
_encode = msgspec.json.Encoder().encode
_read_order = msgspec.json.Decoder(RunRequest).decode
_handler_of = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
"""Without the conversion to enumerations, which would cost a run as much as its arguments do."""
_RSS_UNIT = 1024 if sys.platform == "linux" else 1


class Stopped(BaseException):
    """Raised in the function when it is asked to end: it may clean up within its grace."""


class PoolChild:
    """Serves the requests of the worker."""

    def __init__(self, channel: socket.socket, find_task: FindTask) -> None:
        self._channel = channel
        self._find_task = find_task
        self._heard = b""
        self._talking = threading.Lock()
        self._context: RunContext | None = None
        self._modules: dict[ModuleLocation, ModuleType | BaseException] = {}
        self._tasks: dict[str, ExecutableTask] = {}
        self._stopped = False
        self._runner: asyncio.Runner | None = None
        self._lives: dict[int, Lifetime[None]] = {}
        self._threads = 1

    def serve(self) -> None:
        """Serve until the worker closes the socket, or this process has served long enough."""
        # Adopt all processes that functions leave behind.
        adopt_orphans()
        on_term = self._on_term
        signal.signal(signal.SIGTERM, on_term)
        # Duplicated, because functions may replace them.
        streams = [os.dup(number) for number in (1, 2)]
        setup = msgspec.json.decode(self._hear(), type=PoolSetup)
        os.environ.update(setup.env)
        take_over(setup.withheld)
        sys.path[:] = setup.path
        for home in setup.homes:
            self._load(home)
        if not logging.getLogger().handlers:  # Otherwise the app has its own, whose output belongs to the run.
            hear_logging(setup.log_level)
        surroundings, self._threads = _Surroundings(), threading.active_count()
        self._tell(PoolMessage(ready=True))
        served = 0
        while not self._stopped and (line := self._hear()):
            outcome = self._run(_read_order(line))
            served += 1
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
            spent = served >= setup.runs or memory >= setup.memory or _has_children()
            spent = spent or threading.active_count() > self._threads
            if spent:
                self._leave()
            surroundings.restore()
            if _handler_of(signal.SIGTERM) != on_term:
                signal.signal(signal.SIGTERM, on_term)
            self._tell(PoolMessage(outcome=outcome, quiet=_is_empty(streams), spent=spent))

        self._leave()

    def _enter(self, hooks: TaskHooks) -> None:
        """Enter the lifespan of an app, and keep an event loop for its hooks and async tasks."""
        if id(hooks) in self._lives or not hooks.needs_loop:
            return
        self._runner = self._runner or asyncio.Runner()
        life = Lifetime(hooks.alive)
        self._drive(life.begin())
        hooks.drive = self._drive
        self._lives[id(hooks)] = life
        self._threads = max(self._threads, threading.active_count())  # Those of the lifespan stay.

    def _leave(self) -> None:
        """Leave all lifespans; what fails then is of no consequence to any run."""
        for life in self._lives.values():
            try:
                self._drive(life.end())
            except Exception:
                logging.getLogger("mainspring").exception("a lifespan failed while it ended")
        self._lives.clear()

    def _drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end on the event loop that this process keeps, or on one of its own."""
        if self._runner is None:
            return asyncio.run(work)
        return self._runner.run(work, context=copy_context())

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True
        if self._context is None:
            os._exit(0)
        self._context.cancel()
        raise Stopped("the run was asked to end")

    def _hear(self) -> bytes:
        while b"\n" not in self._heard:
            words = self._channel.recv(1 << 16)
            if not words:
                return b""
            self._heard += words
        line, _, self._heard = self._heard.partition(b"\n")
        return line

    def _tell(self, message: PoolMessage) -> None:
        # Locked, so that messages stay whole: threads of the function may write at the same time.
        with self._talking:
            self._channel.sendall(_encode(message) + b"\n")

    def _run(self, order: RunRequest) -> Outcome:
        self._context = context = RunContext(
            order.claim,
            order.deadline,
            lambda _, text: self._tell(PoolMessage(log=plain(text))),
            lambda fraction, note: self._tell(PoolMessage(progress=fraction, note=plain(note))),
            order.soft_deadline,
            _clock(order.now),
        )
        try:
            try:
                task = self._find(order)
                self._enter(task.hooks)
            except BaseException as error:
                return failed(error)
            return call(task, order.claim.args, context, self._drive if task.is_async else None)
        except Stopped as stop:
            return failed(stop)  # It was raised after the function had returned.
        finally:
            self._context = None
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()

    def _find(self, order: RunRequest) -> ExecutableTask:
        name = order.claim.task
        task = self._tasks.get(name)
        if task is None:
            module = self._load(order.home)
            if isinstance(module, BaseException):
                raise module
            task = self._tasks[name] = self._find_task(module, name)
        return task

    def _load(self, home: ModuleLocation) -> ModuleType | BaseException:
        if home not in self._modules:
            try:
                self._modules[home] = load(home)
            except BaseException as error:
                self._modules[home] = error
        return self._modules[home]


def _clock(now: Instant) -> Callable[[], Instant]:
    """The worker's clock, from its time a moment ago."""
    offset = now - time.monotonic_ns() // 1000
    return lambda: offset + time.monotonic_ns() // 1000


class _Surroundings:
    """The environment and the working folder, which a function may change and which are restored after it."""

    def __init__(self) -> None:
        # Python's own dictionary: comparing it takes a microsecond, comparing `os.environ` sixty.
        self._now: dict[Any, Any] = getattr(os.environ, "_data", {})
        self._then = dict(self._now)
        self._variables = dict(os.environ)
        self._folder = os.getcwd()

    def restore(self) -> None:
        if self._now != self._then or not self._now:
            os.environ.clear()
            os.environ.update(self._variables)
        with suppress(OSError):
            os.chdir(self._folder)


def _is_empty(pipes: Sequence[int]) -> bool:
    """Whether all data in the pipes has been read."""
    try:
        return not any(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0] for pipe in pipes)
    except OSError:
        return False


def _has_children() -> bool:
    """Whether child processes are left. Ended ones are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def load(home: ModuleLocation) -> ModuleType:
    """Import the module of a function. A module that is `__main__` in the worker gets another name, so that its main
    part does not run."""
    if home.module != "__main__" and importlib.util.find_spec(home.module):
        return importlib.import_module(home.module)
    name = "__mainspring_main__" if home.module == "__main__" else home.module
    spec = importlib.util.spec_from_file_location(name, home.file or "")
    if spec is None or spec.loader is None:
        raise RuntimeError(f"module {home.module} cannot be imported in a child process: put the task into a file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def serve_worker(find_task: FindTask) -> None:
    """Serve on the socket to the worker, until it closes; then end this process."""
    hide_memory()  # Before any secret arrives: other runs and commands may have the same user.
    channel = socket.socket(fileno=CHANNEL)
    channel.set_inheritable(False)
    with suppress(BrokenPipeError, ConnectionResetError):
        PoolChild(channel, find_task).serve()
    # Without waiting for threads that a function left behind.
    os._exit(0)
