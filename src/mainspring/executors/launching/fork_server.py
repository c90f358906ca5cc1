"""Where shims come from: a process so small that forking it costs little, and without threads, so that it is safe.

Two shims are always there already and wait for an order, which they take from the line themselves: a program does not
have to wait for a fork of its shim, nor for what a shim does before it can keep anything.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from mainspring.executors.launching import family
from mainspring.executors.launching.groups import remove_groups
from mainspring.executors.launching.kernel import (
    adopt_orphans,
    die_with_parent,
    hide_memory,
    outlive_parent,
    watch_process,
)
from mainspring.executors.launching.shim import Shim, remove_folder

_MOST_FILES = 16
_SPARES = 2
_LAST_STREAM = 2
_CHUNK = 64 * 1024


_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and resets itself for what it starts."""


def main(line: int, worker: int) -> None:
    """Have shims ready for each message on the line, with the files that come with it, until the worker is gone."""
    hide_memory()  # Orders hold secrets, and programs that are not confined have the user of their shims.
    while (free := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        pass  # The worker had it closed; a file that comes with a message is not to get its number.
    os.close(free)
    os.set_inheritable(line, False)
    parent = socket.socket(fileno=line)
    watched = watch_process(worker)
    if os.getppid() != worker:
        return
    adopt_orphans()
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN and number not in _BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)  # Whoever started the worker ignored it; no program is to.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A terminal sends them to all; the worker decides. Not ignored, for programs would go on ignoring them.
        signal.signal(number, lambda *_: None)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tempfile.gettempdir()  # It is found by trying, once for all shims.
    gc.freeze()
    ForkServer(parent, watched, woken).work()


class ForkServer:
    """`line` brings messages, `watched` becomes readable if the worker dies, `woken` if a shim ends."""

    def __init__(self, line: socket.socket, watched: int | None, woken: int) -> None:
        self._line = line
        self._watched = watched
        self._woken = woken
        self._told, self._tell = os.pipe()
        """A shim tells its pid when it has taken a message, and then what it is going to make for its program."""
        os.set_blocking(self._told, False)
        self._words = b""
        self._shims: set[int] = set()
        self._spares: set[int] = set()
        self._made: dict[int, list[str]] = {}
        self._failed = False
        """Whether a shim could not even get ready: the next could not either."""

    def work(self) -> None:
        """Until the worker is gone, or has hung up."""
        poll = select.poll()
        poll.register(self._line.fileno(), 0)  # Messages are for the shims; that it is closed is told all the same.
        for file in (self._woken, self._told, self._watched):
            if file is not None:
                poll.register(file, select.POLLIN)
        while self._fill() and not self._failed:
            ready = [file for file, _ in poll.poll()]
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
            self._hear()
            self._look_after()
            if self._watched in ready or self._line.fileno() in ready:
                return

    def _fill(self) -> bool:
        """Have enough shims waiting; False if there is not even one, since then nobody could be served."""
        with suppress(OSError):
            while len(self._spares) < _SPARES:
                this = os.getpid()
                pid = os.fork()
                if pid == 0:
                    self._wait_and_keep(this)
                self._shims.add(pid)
                self._spares.add(pid)
        return bool(self._spares)

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            *lines, self._words = (self._words + os.read(self._told, _CHUNK)).split(b"\n")
            for line in lines:
                pid, made = json.loads(line)
                self._spares.discard(pid)
                if made:
                    self._made[pid] = made

    def _wait_and_keep(self, fork_server: int) -> NoReturn:
        """The whole life of a shim. Without a fork_server nobody would take care of one that waits."""
        code = 1
        try:
            os.setsid()
            die_with_parent(fork_server)
            shim = Shim(self._watched, self._say)
            message, files, _, _ = socket.recv_fds(self._line, 1, _MOST_FILES)
            if message:
                outlive_parent()
                self._say([])
                for file in files:
                    os.set_inheritable(file, False)
                self._line.close()
                control, *rest = files
                shim.keep(socket.socket(fileno=control), rest)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _say(self, made: Sequence[str]) -> None:
        os.write(self._tell, json.dumps([os.getpid(), made]).encode() + b"\n")

    def _look_after(self) -> None:
        """A shim that was killed leaves its program to this process, which ends it, and what it made, which goes."""
        ended: dict[int, int] = {}

        def note(pid: int, status: int) -> None:
            ended[pid] = status
            self._shims.discard(pid)

        family.reap(note)
        if any(ended.values()):
            family.kill_all(note, self._with_families)
        self._hear()  # Whatever they had to tell is told by now.
        for pid, status in ended.items():
            self._failed |= pid in self._spares and os.waitstatus_to_exitcode(status) > 0
            self._spares.discard(pid)
            made = self._made.pop(pid, [])
            if made and status != 0:
                self._shims.add(_remove(made))

    def _with_families(self) -> set[int]:
        return self._shims.union(*(family.descendants(pid) for pid in self._shims))


def _remove(left: Sequence[str]) -> int:
    """Remove folders and control groups, in a process of its own, for that may take long; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            folder, *groups = left
            remove_groups(groups)
            remove_folder(folder)
        finally:
            os._exit(0)
    return pid
