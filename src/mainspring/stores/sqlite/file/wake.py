"""Processes of one machine that use one file wake each other: each that waits for changes has a datagram socket in a
folder beside the file, and a process that has committed a change sends a byte to all sockets there.

A hint and no more: a byte that is lost, a folder that cannot be made, a process on another machine that shares the file
do no harm, since every process also checks the file itself (see `watch`). The content of a byte is not trusted: it only
makes its reader check the file.
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
"""After this time a socket of another machine, or from before this machine's start, is removed."""
_GONE: Final = (errno.ECONNREFUSED, errno.ENOENT)


def _machine() -> str:
    """Which kernel this is: a socket can be reached from there only, and only there it is known to be dead."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return socket.gethostname()


class Wake:
    """Wakes the other processes that use one file. `publish` may be called from any thread."""

    def __init__(self, path: str) -> None:
        self._folder = Path(os.path.realpath(path) + FOLDER)
        self._machine = _machine()
        self._name = f"{self._machine}.{os.getpid()}.{secrets.token_hex(4)}"
        self._fd: int | None = None
        self._sender: socket.socket | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._others: tuple[str, ...] = ()
        self._listed_at_ns = -1
        self._closed = not POSSIBLE

    def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard`, on its own thread, soon after another process has published a change."""
        with self._lock:
            if self._closed or self._socket is not None:
                return
            bound = self._bind() or self._bind()  # The last process may have removed the folder just now.
            if bound is None:
                return
            self._socket = bound
        threading.Thread(target=self._hear, args=(bound, heard), name="mainspring-sqlite-wake", daemon=True).start()

    def _bind(self) -> socket.socket | None:
        if not self._open(make=True):
            return None
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            bound.bind(self._address(self._name))
            os.chmod(self._address(self._name), 0o666)  # Every process that can write to the folder may wake this one.
        except OSError as error:
            log.debug("cannot be woken by other processes: %s", error)
            bound.close()
            self._let_go()
            return None
        return bound

    def publish(self) -> None:
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
            if self._socket is not None:
                with suppress(OSError):
                    self._send(self._name)  # Its thread waits.
                with suppress(OSError):
                    os.unlink(self._address(self._name))
                with suppress(OSError):
                    self._folder.rmdir()  # This was the last process.
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
        """The present sockets, read anew if the folder has changed since the last time."""
        assert self._fd is not None, "it has been opened"
        found = os.fstat(self._fd)
        if found.st_nlink == 0:  # The last process removed it, and another has made a new one since.
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
            if error.errno in _GONE:  # Its process has died. A full queue, in contrast, wakes its reader anyway.
                with suppress(OSError):
                    os.unlink(name, dir_fd=self._fd)

    def _hear(self, bound: socket.socket, heard: Callable[[], None]) -> None:
        with bound:
            while not self._closed:
                try:
                    bound.recv(16)
                    bound.setblocking(False)
                    with suppress(BlockingIOError):
                        while True:
                            bound.recv(16)  # Several bytes before the reader looks count as one.
                    bound.setblocking(True)
                except OSError:
                    return
                if not self._closed:
                    heard()
