"""Processes of one machine that use one file wake each other: each that waits for changes has a datagram socket in a
folder beside the file, and whoever has committed a change sends a byte to all that are there.

A hint and no more: a byte that is lost, a folder that cannot be made, a process on another machine that shares the file
are no trouble, since everybody also looks at the file itself (see `watch`). Nothing that a byte says is believed: it
makes its reader look.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

log = logging.getLogger("mainspring")

POSSIBLE: Final = os.path.isdir("/proc/self/fd") and hasattr(socket, "AF_UNIX")
"""Whether a socket can be reached by way of an open folder: its own path may be longer than an address."""
FOLDER: Final = ".wake"
ABANDONED_S: Final = 7 * 24 * 3600.0
"""A socket of another machine, or from before this one was started, goes away after so long."""
_GONE: Final = (errno.ECONNREFUSED, errno.ENOENT)


def _machine() -> str:
    """Which kernel this is: a socket can be reached from there only, and only there it is known to be dead."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return socket.gethostname()


class Wake:
    """Of one file. `tell` may be called from any thread."""

    def __init__(self, path: str) -> None:
        self._folder = Path(os.path.realpath(path) + FOLDER)
        self._machine = _machine()
        self._name = f"{self._machine}.{os.getpid()}.{secrets.token_hex(4)}"
        self._fd: int | None = None
        self._sender: socket.socket | None = None
        self._ear: socket.socket | None = None
        self._lock = threading.Lock()
        self._others: tuple[str, ...] = ()
        self._listed_at_ns = -1
        self._closed = not POSSIBLE

    def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard`, on a thread of its own, soon after another process has told of something."""
        with self._lock:
            if self._closed or self._ear is not None:
                return
            ear = self._bind() or self._bind()  # The last one out may have removed the folder just now.
            if ear is None:
                return
            self._ear = ear
        threading.Thread(target=self._hear, args=(ear, heard), name="mainspring-sqlite-wake", daemon=True).start()

    def _bind(self) -> socket.socket | None:
        if not self._open(make=True):
            return None
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            ear.bind(self._address(self._name))
            os.chmod(self._address(self._name), 0o666)  # Whoever may enter the folder may wake.
        except OSError as error:
            log.debug("cannot be woken by other processes: %s", error)
            ear.close()
            self._let_go()
            return None
        return ear

    def tell(self) -> None:
        """Something has changed. Never waits, and never fails."""
        with self._lock:
            if self._closed or not self._open(make=False):
                return
            with suppress(OSError):
                self._list()
            for name in self._others:
                self._send(name)

    def close(self) -> None:
        """Listen no more, and leave nothing behind."""
        with self._lock:
            # First, since the thread that is woken looks at it once, and would otherwise wait for ever.
            self._closed = True
            if self._ear is not None:
                with suppress(OSError):
                    self._send(self._name)  # Its thread waits.
                with suppress(OSError):
                    os.unlink(self._address(self._name))
                with suppress(OSError):
                    self._folder.rmdir()  # The last one out.
            self._let_go()

    def _let_go(self) -> None:
        if self._sender is not None:
            self._sender.close()
        if self._fd is not None:
            os.close(self._fd)
        self._fd = self._sender = None
        self._others, self._listed_at_ns = (), -1

    def _open(self, *, make: bool) -> bool:
        """Whether the folder is there."""
        if self._fd is not None:
            return True
        try:
            if make:
                with suppress(FileExistsError):
                    self._folder.mkdir(mode=self._folder.parent.stat().st_mode & 0o777)
            self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if make:
                log.debug("processes cannot wake each other by %s: %s", self._folder, error)
            return False
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        return True

    def _address(self, name: str) -> str:
        return f"/proc/self/fd/{self._fd}/{name}"

    def _list(self) -> None:
        """Who is there, if somebody has come or gone since the last time."""
        assert self._fd is not None, "it has been opened"
        found = os.fstat(self._fd)
        if found.st_nlink == 0:  # The last one out has removed it, and somebody else has made another since.
            self._let_go()
            if not self._open(make=False):
                return
            assert self._fd is not None
            found = os.fstat(self._fd)
        if found.st_mtime_ns == self._listed_at_ns:
            return
        names = os.listdir(self._fd)
        self._others = tuple(name for name in names if name.startswith(self._machine) and name != self._name)
        # What comes within the same tick of the file system's clock would be missed: list again until it is past.
        settled = time.time_ns() - found.st_mtime_ns > 100_000_000
        self._listed_at_ns = found.st_mtime_ns if settled else -1
        for name in names:
            if not name.startswith(self._machine):
                self._forget_if_abandoned(name)

    def _forget_if_abandoned(self, name: str) -> None:
        with suppress(OSError):
            if time.time() - os.stat(name, dir_fd=self._fd).st_mtime > ABANDONED_S:
                os.unlink(name, dir_fd=self._fd)

    def _send(self, name: str) -> None:
        if self._sender is None or self._fd is None:
            return
        try:
            self._sender.sendto(b"!", self._address(name))
        except OSError as error:
            if (
                error.errno in _GONE
            ):  # Its process has died. A full queue, on the other hand, wakes as well as one more.
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._fd)

    def _hear(self, ear: socket.socket, heard: Callable[[], None]) -> None:
        with ear:
            while not self._closed:
                try:
                    ear.recv(16)
                    ear.setblocking(False)
                    with suppress(BlockingIOError):
                        while True:
                            ear.recv(16)  # Many before it looks are one.
                    ear.setblocking(True)
                except OSError:
                    return
                if not self._closed:
                    heard()
