"""Supervises one program: starts it, obeys the worker, and ends all that the program started."""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from mainspring.executors.launching import family
from mainspring.executors.launching.begin import begin, rehearse
from mainspring.executors.launching.groups import GROUP_PREFIX, Group, folders_of
from mainspring.executors.launching.kernel import adopt_orphans
from mainspring.executors.launching.order import LENGTH, Launch, ShimReply, ShimRequest
from mainspring.executors.launching.seclusion import UserTaken, sweep, withdraw

_RESULT = "result"
_SHORTEST_S = 0.005
_LAST_CPU_US = 500_000
"""How long a program that has used up its CPU time may take to end by itself."""
_CLEAN_S = 0.5
"""How long the end of a program waits for the removal of its private folder."""
_CORES = os.cpu_count() or 1


class WorkerGone(Exception):
    """The worker has ended."""


class Shim:
    """`watched` becomes readable if the worker dies. `report` receives the folder and the control groups that will
    be created for the program: the fork server removes them if this process is killed. A shim is ready before there is
    a program."""

    def __init__(self, watched: int | None, report: Callable[[Sequence[str]], None]) -> None:
        self._watched = watched
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        if watched is not None:
            self._poll.register(watched, select.POLLIN)
        self._order: Launch = {}
        self._pid = 0
        self._code: int | None = None
        self._kill_at: float | None = None
        self._out_of_cpu = False
        self._say_made = report
        self._name = f"{GROUP_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
        self._group: Group | None = None
        self._user: UserTaken | None = None
        self._folder: str | None = None
        self._heard = b""
        adopt_orphans()
        _rehearse()

    def keep(self, control: socket.socket, files: Sequence[int]) -> None:
        """Run the program with these files to its end; `control` is the socket to the worker."""
        self._control, self._files = control, files
        with suppress(WorkerGone):
            self._order = _receive(control)
            if self._start():
                self._watch()
        survivors = self._end_all()
        last_word = self._last_word(survivors) if self._pid else None
        # First, so that nothing is left of the program when its end is known.
        late = self._clean()
        if self._user is not None and not late:
            self._user.give_back()
        if last_word is not None:
            self._tell(last_word)
        if late:
            os.waitpid(late, 0)

    def _start(self) -> bool:
        order = self._order
        try:
            needs_folder, parents = order.get("tmp") or order.get("result_limit"), order.get("cgroups", {})
            if needs_folder or parents:
                # Before they exist: a shim that is killed in between leaves nothing unknown.
                self._say_made([self._path(), *folders_of(self._name, parents).values()])
            self._seclude()
            if needs_folder:
                self._make_folder()
            if parents:
                self._group = Group(self._name, parents, order.get("caps", {}))
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

    def _seclude(self) -> None:
        """Separate the program from other runs. Its private temporary folders cease to exist with the last of their
        processes, and with them what this shim created there."""
        order = self._order
        if users := order.get("users"):
            self._user = UserTaken(*users)
            order["identity"] = self._user.identity
        if size := order.get("private"):
            withdraw(size, order.get("shown", []), order.get("identity"))
            folder = tempfile.gettempdir()
            order["env"] = {**order["env"], "TMPDIR": folder, "HOME": folder}
            order["cwd"] = order.get("cwd") or folder

    def _path(self) -> str:
        return os.path.join(tempfile.gettempdir(), self._name)

    def _make_folder(self) -> None:
        folder = self._path()
        os.mkdir(folder, 0o700)
        self._folder = folder
        identity = self._order.get("identity")
        if identity is not None:
            os.chown(folder, identity["uid"], identity["gid"])
        env = self._order["env"] = dict(self._order["env"])
        if self._order.get("tmp"):
            env["TMPDIR"] = env["HOME"] = folder
            self._order["cwd"] = self._order.get("cwd") or folder
        if self._order.get("result_limit"):
            env["MAINSPRING_RESULT"] = os.path.join(folder, _RESULT)
        # In the command of a sandbox, a mark stands for the folder.
        self._order["argv"] = [folder if word == FOLDER else word for word in self._order["argv"]]

    def _watch(self) -> None:
        """Wait until the program has ended."""
        self._poll.register(self._control, select.POLLIN)
        while family.reap(self._note) and self._code is None:
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                return
            ready = [file for file, _ in self._poll.poll(self._patience_ms())]
            self._calm()
            if self._watched in ready:
                raise WorkerGone
            if self._control.fileno() in ready:
                self._hear()

    def _calm(self) -> None:
        """Empty the wake-up pipe."""
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _rest(self, most_s: float) -> None:
        select.select([self._woken], [], [], most_s)
        self._calm()

    def _patience_ms(self) -> float | None:
        """How long to wait before the next deadline."""
        waits = []
        if self._kill_at is not None:
            waits.append(self._kill_at - time.monotonic())
        if (limit := self._order.get("caps", {}).get("cpu")) and self._group is not None and not self._out_of_cpu:
            left_us = limit - (self._group.cpu_used() or 0)
            if left_us <= 0:
                self._out_of_cpu = True
                family.send([pid for pid in self._group.members() if not self._holds_others(pid)], signal.SIGXCPU)
                left_us = _LAST_CPU_US
                self._kill_at = min(self._kill_at or math.inf, time.monotonic() + _LAST_CPU_US / 1e6)
            # Even on all cores at once it cannot be used up sooner.
            waits.append(left_us / 1e6 / _CORES)
        return max(min(waits), _SHORTEST_S) * 1000 + 1 if waits else None

    def _note(self, pid: int, status: int) -> None:
        if pid == self._pid:
            self._code = os.waitstatus_to_exitcode(status)

    def _hear(self) -> None:
        words = b""
        with suppress(ConnectionResetError):  # The worker ended without having read all.
            words = self._control.recv(4096)
        if not words:
            raise WorkerGone
        *lines, self._heard = (self._heard + words).split(b"\n")
        for line in lines:
            request: ShimRequest = json.loads(line)
            if "warn" in request:
                family.send(self._program(), request["warn"])
            else:
                self._end(request["end"])

    def _end(self, grace_s: float) -> None:
        if grace_s > 0:
            pids = family.descendants(os.getpid())
            family.send([pid for pid in pids if not self._holds_others(pid)], signal.SIGTERM)
        self._kill_at = time.monotonic() + grace_s

    def _program(self) -> Sequence[int]:
        """The program itself. In a sandbox it is the first child of bubblewrap."""
        return family.descendants(self._pid)[1:2] if self._order.get("sandboxed") else [self._pid]

    def _holds_others(self, pid: int) -> bool:
        return pid == self._pid and bool(self._order.get("sandboxed"))

    def _end_all(self) -> int:
        if self._group is not None:
            self._group.kill()
            family.send(self._group.members(), signal.SIGKILL)
        return family.kill_all(self._note) if family.kill_children(self._note, self._rest) else 0

    def _last_word(self, survivors: int) -> ShimReply:
        answer: ShimReply = {"code": -signal.SIGKILL if self._code is None else self._code}
        if survivors:
            answer["survivors"] = survivors
        if self._order.get("sandboxed"):
            answer["wrapped"] = True
        if self._group is not None:
            answer["out_of_memory"] = self._group.out_of_memory
            answer["out_of_processes"] = self._group.out_of_processes
        if self._out_of_cpu:
            answer["out_of_cpu"] = True
        if limit := self._order.get("result_limit"):
            with suppress(OSError):
                answer["result"] = _read_result(os.path.join(self._folder or "", _RESULT), limit)
        return answer

    def _tell(self, answer: ShimReply) -> None:
        with suppress(OSError):
            self._control.sendall(json.dumps(answer).encode() + b"\n")

    def _clean(self) -> int:
        """Remove what was created for the program; returns the pid of a process that still removes, or 0."""
        if self._group is not None:
            self._group.remove()
        if self._user is not None:
            sweep(self._user.identity["uid"], withdrawn="private" in self._order or "sandboxed" in self._order)
        if self._folder is None:
            return 0
        with suppress(OSError):
            os.rmdir(self._folder)  # Nearly always empty.
            return 0
        pid = os.fork()
        if pid == 0:
            remove_folder(self._folder)
            os._exit(0)
        deadline = time.monotonic() + _CLEAN_S
        while time.monotonic() < deadline:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return 0
            time.sleep(_SHORTEST_S / 4)
        return pid


def remove_folder(path: str) -> None:
    """Remove the private folder of a program, if it still exists."""
    shutil.rmtree(path, ignore_errors=True)


def _rehearse() -> None:
    """Do once what every order needs. After a fork the first use of each page of memory is slow, so it is done before
    an order arrives."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        order = json.dumps({"argv": ["", ""], "env": {"": ""}, "cwd": None, "rlimits": {"": 0}}).encode()
        ours.sendall(LENGTH.pack(len(order)) + order)
        _receive(theirs)
    rehearse()


FOLDER = "\0folder"
"""Stands for the private folder in a command."""


def _receive(control: socket.socket) -> Launch:
    (length,) = LENGTH.unpack(_receive_exactly(control, LENGTH.size))
    order: Launch = json.loads(_receive_exactly(control, length))
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
    """The result file, up to a byte over the limit. Links are not followed: they may lead to files that the program may
    not read."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as result:
        return result.read(limit + 1).decode("utf-8", "replace")
