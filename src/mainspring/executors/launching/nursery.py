"""Where keepers come from: a process so small that forking it costs little, and without threads, so that it is safe.

Two keepers are always there already and wait for an order, which they take from the line themselves: a program does not
have to wait for a fork of its keeper.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import struct
import traceback
from contextlib import suppress
from typing import NoReturn

from mainspring.executors.launching import family
from mainspring.executors.launching.keeper import Keeper
from mainspring.executors.launching.kernel import adopt_orphans, die_with_parent, outlive_parent, watch_process

_MOST_FILES = 16
_SPARES = 2
_PID = struct.Struct("=i")


_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and resets itself for what it starts."""


def main(line: int, worker: int) -> None:
    """Have keepers ready for each message on the line, with the files that come with it, until the worker is gone."""
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
    gc.freeze()
    Nursery(parent, watched, woken).work()


class Nursery:
    """`line` brings messages, `watched` becomes readable if the worker dies, `woken` if a keeper ends."""

    def __init__(self, line: socket.socket, watched: int | None, woken: int) -> None:
        self._line = line
        self._watched = watched
        self._woken = woken
        self._taken, self._take = os.pipe()
        """A keeper that has taken a message tells its pid."""
        os.set_blocking(self._taken, False)
        self._keepers: set[int] = set()
        self._spares: set[int] = set()

    def work(self) -> None:
        """Until the worker is gone, or has hung up."""
        poll = select.poll()
        poll.register(self._line.fileno(), 0)  # Messages are for the keepers; that it is closed is told all the same.
        for file in (self._woken, self._taken, self._watched):
            if file is not None:
                poll.register(file, select.POLLIN)
        while self._fill():
            ready = [file for file, _ in poll.poll()]
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
            self._note_taken()
            self._look_after()
            if self._watched in ready or self._line.fileno() in ready:
                return

    def _fill(self) -> bool:
        """Have enough keepers waiting; False if there is not even one, since then nobody could be served."""
        with suppress(OSError):
            while len(self._spares) < _SPARES:
                this = os.getpid()
                pid = os.fork()
                if pid == 0:
                    self._wait_and_keep(this)
                self._keepers.add(pid)
                self._spares.add(pid)
        return bool(self._spares)

    def _note_taken(self) -> None:
        with suppress(BlockingIOError):
            for (pid,) in _PID.iter_unpack(os.read(self._taken, 1024 * _PID.size)):
                self._spares.discard(pid)

    def _wait_and_keep(self, nursery: int) -> NoReturn:
        """The whole life of a keeper. Without a nursery nobody would take care of one that waits."""
        code = 1
        try:
            os.setsid()
            die_with_parent(nursery)
            message, files, _, _ = socket.recv_fds(self._line, 1, _MOST_FILES)
            if message:
                outlive_parent()
                os.write(self._take, _PID.pack(os.getpid()))
                for file in files:
                    os.set_inheritable(file, False)
                self._line.close()
                control, *rest = files
                Keeper(socket.socket(fileno=control), rest, self._watched).keep()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _look_after(self) -> None:
        """A keeper that was killed leaves its program to this process, which ends it."""
        deserted = False

        def note(pid: int, status: int) -> None:
            nonlocal deserted
            self._keepers.discard(pid)
            self._spares.discard(pid)
            deserted = deserted or status != 0

        family.reap(note)
        if deserted:
            family.kill_all(note, self._with_families)

    def _with_families(self) -> set[int]:
        return self._keepers.union(*(family.descendants(pid) for pid in self._keepers))
