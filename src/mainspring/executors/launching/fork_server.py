"""Forks shims. The process is so small that forking it is cheap, and has no threads, so that forking it is safe.

Two shims always wait for an order, which they read from the socket themselves. So no program waits for the fork of its
shim, or for the preparations of the shim.
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
"""Signals that Python ignores, and resets itself for its children."""


def main(line: int, worker: int) -> None:
    """Keep shims ready for each message on the socket and the files that come with it, until the worker is gone."""
    hide_memory()  # Orders hold secrets, and unconfined programs have the same user as their shims.
    while (free := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        pass  # The worker had it closed; no file that comes with a message may get its number.
    os.close(free)
    os.set_inheritable(line, False)
    parent = socket.socket(fileno=line)
    watched = watch_process(worker)
    if os.getppid() != worker:
        return
    adopt_orphans()
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN and number not in _BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)  # The worker inherited this; programs must not.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A terminal sends them to all, and the worker decides. Not ignored, because programs would inherit that.
        signal.signal(number, lambda *_: None)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tempfile.gettempdir()  # Found by trial, once for all shims.
    gc.freeze()
    ForkServer(parent, watched, woken).work()


class ForkServer:
    """`line` is the socket of messages. `watched` becomes readable if the worker dies, `woken` if a shim ends."""

    def __init__(self, line: socket.socket, watched: int | None, woken: int) -> None:
        self._line = line
        self._watched = watched
        self._woken = woken
        self._reports, self._report_to = os.pipe()
        """A shim writes its pid here when it has taken a message, and then the paths that it will create."""
        os.set_blocking(self._reports, False)
        self._words = b""
        self._shims: set[int] = set()
        self._spares: set[int] = set()
        self._made: dict[int, list[str]] = {}
        self._failed = False
        """Whether a shim could not get ready: the next could not either."""

    def work(self) -> None:
        """Serve until the worker is gone, or has closed the socket."""
        poll = select.poll()
        poll.register(self._line.fileno(), 0)  # Messages are for the shims; only its closing matters here.
        for file in (self._woken, self._reports, self._watched):
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
        """Keep enough shims waiting; returns False if there is none."""
        with suppress(OSError):
            while len(self._spares) < _SPARES:
                this = os.getpid()
                pid = os.fork()
                if pid == 0:
                    self._serve_one(this)
                self._shims.add(pid)
                self._spares.add(pid)
        return bool(self._spares)

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            *lines, self._words = (self._words + os.read(self._reports, _CHUNK)).split(b"\n")
            for line in lines:
                pid, made = json.loads(line)
                self._spares.discard(pid)
                if made:
                    self._made[pid] = made

    def _serve_one(self, parent: int) -> NoReturn:
        """The whole life of a shim. One that waits dies with the fork server."""
        code = 1
        try:
            os.setsid()
            die_with_parent(parent)
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
        os.write(self._report_to, json.dumps([os.getpid(), made]).encode() + b"\n")

    def _look_after(self) -> None:
        """End the programs of shims that were killed, and remove what those had created."""
        ended: dict[int, int] = {}

        def note(pid: int, status: int) -> None:
            ended[pid] = status
            self._shims.discard(pid)

        family.reap(note)
        if any(ended.values()):
            family.kill_all(note, self._with_families)
        self._hear()  # Whatever they wrote is there by now.
        for pid, status in ended.items():
            self._failed |= pid in self._spares and os.waitstatus_to_exitcode(status) > 0
            self._spares.discard(pid)
            made = self._made.pop(pid, [])
            if made and status != 0:
                self._shims.add(_remove(made))

    def _with_families(self) -> set[int]:
        return self._shims.union(*(family.descendants(pid) for pid in self._shims))


def _remove(left: Sequence[str]) -> int:
    """Remove folders and control groups in a new process, because that may take long; returns its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            folder, *groups = left
            remove_groups(groups)
            remove_folder(folder)
        finally:
            os._exit(0)
    return pid
