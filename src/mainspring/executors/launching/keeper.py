"""Keeps one program: starts it, listens to the worker, and sees to it that nothing of it remains."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress

from mainspring.executors.launching import family
from mainspring.executors.launching.begin import begin
from mainspring.executors.launching.groups import Group
from mainspring.executors.launching.kernel import adopt_orphans
from mainspring.executors.launching.order import LENGTH, Answer, Order

_RESULT = "result"


class WorkerGone(Exception):
    """Nobody is left to answer to."""


class Keeper:
    """`control` is the line to the worker, `watched` becomes readable if the worker dies."""

    def __init__(self, control: socket.socket, files: Sequence[int], watched: int | None) -> None:
        self._control = control
        self._files = files
        self._watched = watched
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._order: Order = {}
        self._pid = 0
        self._code: int | None = None
        self._kill_at: float | None = None
        self._group: Group | None = None
        self._folder: str | None = None
        self._heard = b""

    def keep(self) -> None:
        """The whole life of the program."""
        adopt_orphans()
        with suppress(WorkerGone):
            self._order = _receive(self._control)
            if self._start():
                self._watch()
        survivors = self._end_all()
        if self._pid:
            self._tell(self._last_word(survivors))
        self._clean()

    def _start(self) -> bool:
        order = self._order
        try:
            if order.get("tmp") or order.get("result_limit"):
                self._make_folder()
            if parents := order.get("cgroups"):
                self._group = Group(f"mainspring-{os.getpid()}", parents, order.get("caps", {}))
            self._pid = begin(order, self._files, self._group)
        except OSError as error:
            what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            self._tell({"error": what, "errno": error.errno or 0})
            return False
        finally:
            for file in self._files:
                os.close(file)
        self._tell({"pid": self._pid})
        return True

    def _make_folder(self) -> None:
        folder = self._folder = tempfile.mkdtemp(prefix="mainspring-")
        identity = self._order.get("identity")
        if identity is not None:
            os.chown(folder, identity["uid"], identity["gid"])
        env = self._order["env"] = dict(self._order["env"])
        if self._order.get("tmp"):
            env["TMPDIR"] = env["HOME"] = folder
            self._order["cwd"] = self._order.get("cwd") or folder
        if self._order.get("result_limit"):
            env["MAINSPRING_RESULT"] = os.path.join(folder, _RESULT)
        # Where a sandbox has to be told of the folder, its place in the command is marked.
        self._order["argv"] = [folder if word == FOLDER else word for word in self._order["argv"]]

    def _watch(self) -> None:
        """Until the program has ended."""
        poll = select.poll()
        for file in (self._woken, self._control.fileno(), self._watched):
            if file is not None:
                poll.register(file, select.POLLIN)
        while family.reap(self._note) and self._code is None:
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return
            left = None if self._kill_at is None else max(self._kill_at - time.monotonic(), 0) * 1000 + 1
            ready = [file for file, _ in poll.poll(left)]
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
            if self._watched in ready:
                raise WorkerGone
            if self._control.fileno() in ready:
                self._hear()

    def _note(self, pid: int, status: int) -> None:
        if pid == self._pid:
            self._code = os.waitstatus_to_exitcode(status)

    def _hear(self) -> None:
        words = b""
        with suppress(ConnectionResetError):  # It went without having read all that it was told.
            words = self._control.recv(4096)
        if not words:
            raise WorkerGone
        *lines, self._heard = (self._heard + words).split(b"\n")
        for line in lines:
            grace_s = float(json.loads(line)["end"])
            if grace_s > 0:
                pids = family.descendants(os.getpid())
                family.send([pid for pid in pids if not self._holds_others(pid)], signal.SIGTERM)
            self._kill_at = time.monotonic() + grace_s

    def _holds_others(self, pid: int) -> bool:
        return pid == self._pid and bool(self._order.get("sandboxed"))

    def _end_all(self) -> int:
        if self._group is not None:
            self._group.kill()
            family.send(self._group.members(), signal.SIGKILL)
        return family.kill_all(self._note)

    def _last_word(self, survivors: int) -> Answer:
        answer: Answer = {"code": -signal.SIGKILL if self._code is None else self._code}
        if survivors:
            answer["survivors"] = survivors
        if self._group is not None:
            answer["out_of_memory"] = self._group.out_of_memory
            answer["out_of_processes"] = self._group.out_of_processes
        if limit := self._order.get("result_limit"):
            with suppress(OSError):
                answer["result"] = _read_result(os.path.join(self._folder or "", _RESULT), limit)
        return answer

    def _tell(self, answer: Answer) -> None:
        with suppress(OSError):
            self._control.sendall(json.dumps(answer).encode() + b"\n")

    def _clean(self) -> None:
        if self._group is not None:
            self._group.remove()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


FOLDER = "\0folder"
"""Stands in a command for the private folder."""


def _receive(control: socket.socket) -> Order:
    (length,) = LENGTH.unpack(_receive_exactly(control, LENGTH.size))
    order: Order = json.loads(_receive_exactly(control, length))
    return order


def _receive_exactly(control: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = control.recv(min(size, 1 << 20))
        if not part:
            raise WorkerGone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _read_result(path: str, limit: int) -> str:
    """What the program wrote; no more than a byte over the limit, and never through a link to what it may not read."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as result:
        return result.read(limit + 1).decode("utf-8", "replace")
