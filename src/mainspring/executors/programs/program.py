"""Starts, reads and ends a program together with all that it starts: the worker's side of `launching`."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from mainspring.executor import AttemptContext
from mainspring.executors.launching.order import LENGTH, Launch
from mainspring.executors.programs.output import Output
from mainspring.executors.programs.pipe_reader import PipeReader

LAST_OUTPUT_S = 1.0
"""How long to read on after all processes have ended: a process elsewhere may hold the other end of the pipe."""
_CHUNK = 64 * 1024
_FAREWELL_S = 2.0
_MOMENT_S = 0.2
_MOST_LOST = 4
"""How many shims may be killed over one launch before it fails: two may be waiting, and two more after them."""
_LOST = "its shim was killed, and the program with it"
ROOT = str(Path(__file__).resolve().parents[3])
_READ = "import os; exec(os.read(0, 65536))"
_FORK_SERVER = "import sys; sys.path.append({root!r}); from mainspring.executors.launching.fork_server import main; "
_FORK_SERVER += "main({line}, {worker})"
"""Given as input, not as an argument: `pkill -f mainspring` would otherwise kill the processes that clean up after a
worker, too."""


class Ending(msgspec.Struct):
    """How a program ended."""

    code: int
    """Negative for a signal, unless it is wrapped."""
    wrapped: bool = False
    """Whether the code is bubblewrap's, which turns a signal into 128 + N."""
    out_of_memory: bool = False
    out_of_processes: bool = False
    out_of_cpu: bool = False
    survivors: int = 0
    result: str | None = None
    began: bool = True
    """False if bubblewrap ended before it had executed the program; the output is its own then."""


class _Start(msgspec.Struct):
    """The first reply of the shim."""

    pid: int = 0
    error: str = ""
    errno: int = 0


_Word = TypeVar("_Word", _Start, Ending)


class NotStarted(OSError):
    """The program could not be started; the message says what was missing or refused."""


class ShimLost(NotStarted):
    """The program's shim has been killed, and the program with it."""


class LaunchUnread(ShimLost):
    """The shim was killed before it had read the launch: nothing has started."""


class Launcher:
    """Starts programs by way of a fork server: see `launching`. Used on one event loop."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._fork_server: subprocess.Popen[bytes] | None = None
        self._dismiss: weakref.finalize[..., Launcher] | None = None
        self._closed = False

    async def start(self, order: Launch, files: Sequence[int]) -> Program:
        """Start a program with these open files. Raises NotStarted if that fails."""
        for _ in range(_MOST_LOST):
            try:
                return await self._start(order, files)
            except ShimLost as error:
                if await asyncio.to_thread(_has_ended, self._fork_server):
                    self._let_go()  # The fork server was killed, and the launch was never done.
                elif not isinstance(error, LaunchUnread):
                    raise
        return await self._start(order, files)

    async def _start(self, order: Launch, files: Sequence[int]) -> Program:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._send([theirs.fileno(), *files])
            ours.setblocking(False)
            program = Program(ours)
            await program.begin(order)
        except BaseException:
            ours.close()
            raise
        return program

    def _send(self, files: Sequence[int]) -> None:
        if self._line is not None:
            with suppress(OSError):  # The fork server is gone: start another.
                socket.send_fds(self._line, [b"k"], files)
                return
            self._let_go()
        if self._closed:
            raise ShimLost(errno.ESHUTDOWN, "this worker has stopped")
        self._line = self._open()
        socket.send_fds(self._line, [b"k"], files)

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            code = _FORK_SERVER.format(root=ROOT, line=theirs.fileno(), worker=os.getpid()).encode()
            argv = [sys.executable, "-I", "-S", "-c", _READ, f"keeps the programs of {os.getpid()}"]
            # Without the environment of the worker: it may hold secrets, and programs can read it in /proc.
            self._fork_server = _popen(argv, theirs.fileno(), code)
        self._dismiss = weakref.finalize(self, _dismiss, ours, self._fork_server)
        return ours

    def close(self) -> None:
        """Start no more programs. Those that still run go on until they are closed."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        if self._dismiss is not None:
            self._dismiss()
        self._line = self._fork_server = self._dismiss = None


def _popen(argv: Sequence[str], line: int, given: bytes) -> subprocess.Popen[bytes]:
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, given)
    finally:
        os.close(write_end)
    try:
        return subprocess.Popen(argv, pass_fds=[line], stdin=read_end, env={})
    finally:
        os.close(read_end)


def _has_ended(fork_server: subprocess.Popen[bytes] | None) -> bool:
    """Whether the fork server has ended. Its socket closes a moment before that is visible."""
    try:
        return fork_server is None or fork_server.wait(_MOMENT_S) is not None
    except subprocess.TimeoutExpired:
        return False


def _dismiss(line: socket.socket, fork_server: subprocess.Popen[bytes]) -> None:
    line.close()
    try:
        fork_server.wait(_FAREWELL_S)
    except subprocess.TimeoutExpired:
        fork_server.kill()
        fork_server.wait()


class Program:
    """A running program. Closing it, or the death of this process, kills it with all that it started."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._heard = b""
        self.pid = 0

    async def begin(self, order: Launch) -> None:
        """Send the launch, and wait until the program has started."""
        text = msgspec.json.encode(order)
        try:
            await asyncio.get_running_loop().sock_sendall(self._control, LENGTH.pack(len(text)) + text)
            answer = await self._hear(_Start)
        except ConnectionError as error:  # A reset instead of an end of file: the launch was not read.
            raise LaunchUnread(errno.EPIPE, "its shim was killed before the program started") from error
        if answer.error:
            raise NotStarted(answer.errno, answer.error)
        self.pid = answer.pid

    async def wait(self) -> Ending:
        """Wait until the program and all its processes have ended; returns how."""
        try:
            return await self._hear(Ending)
        except ConnectionError as error:
            raise ShimLost(errno.EPIPE, _LOST) from error

    async def end(self, grace_s: float) -> None:
        """Send SIGTERM to all its processes, and SIGKILL after the grace."""
        with suppress(ConnectionError):
            request = msgspec.json.encode({"end": grace_s}) + b"\n"
            await asyncio.get_running_loop().sock_sendall(self._control, request)

    def kill(self) -> None:
        """Kill all its processes. `wait` still returns."""
        with suppress(OSError):
            self._control.send(b'{"end":0}\n')

    def warn(self, number: int) -> None:
        """Send the program itself a signal."""
        with suppress(OSError):
            self._control.send(b'{"warn":%d}\n' % number)

    async def _hear(self, kind: type[_Word]) -> _Word:
        loop = asyncio.get_running_loop()
        while b"\n" not in self._heard:
            if not (words := await loop.sock_recv(self._control, _CHUNK)):
                raise ShimLost(errno.EPIPE, _LOST)
            self._heard += words
        line, _, self._heard = self._heard.partition(b"\n")
        return msgspec.json.decode(line, type=kind)

    def close(self) -> None:
        """Close the socket to the shim, which ends the program."""
        self._control.close()


async def run_program(
    launcher: Launcher,
    order: Launch,
    attempt: AttemptContext,
    output: Output,
    given: bytes = b"",
    warning: signal.Signals | None = None,
) -> Ending:
    """Run a program to its end, with `given` as its input and `warning` sent at its soft deadline. Processes that it
    leaves behind are killed. If cancelled, all of them are ended."""
    pipes = {"stdout": os.pipe(), "stderr": os.pipe()}
    source = _source(given)
    files = [source, *(write_end for _, write_end in pipes.values())]
    status = _Status() if order.get("sandboxed") else None
    if status is not None:
        order = status.asked_for(order, len(files))
        files.append(status.write_end)
    starting = asyncio.get_running_loop().create_task(launcher.start(order, files))
    try:
        program = await asyncio.shield(starting)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            await _end_early(starting, attempt)
        for read_end, _ in pipes.values():
            os.close(read_end)
        if status is not None:
            status.close()
        raise
    finally:
        for file in files:
            os.close(file)
    if warning is not None:
        attempt.on_overdue = partial(program.warn, warning)
    readers = [
        PipeReader(read_end, _output_of(stream, output, program), attempt.behind)
        for stream, (read_end, _) in pipes.items()
    ]
    try:
        ending = await _accompany(program, attempt, readers)
        if status is not None:
            ending.began = status.tells_of_end()
        return ending
    finally:
        if status is not None:
            status.close()
        program.close()
        for reader in readers:
            reader.close()
        output.finish()


class _Status:
    """The status that bubblewrap writes, where its program cannot write: an exit code only if the program was
    executed."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)

    def asked_for(self, order: Launch, number: int) -> Launch:
        """The launch with bubblewrap writing its status to this descriptor."""
        bubblewrap, *rest = order["argv"]
        return {**order, "argv": [bubblewrap, "--json-status-fd", str(number), *rest]}

    def tells_of_end(self) -> bool:
        """Whether the program was executed. Bubblewrap has ended, so its status is complete."""
        try:
            return b'"exit-code"' in os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False

    def close(self) -> None:
        """Close the read end. The caller closes the other end."""
        os.close(self._read_end)


async def _end_early(starting: asyncio.Task[Program], attempt: AttemptContext) -> None:
    """End a program that may just be starting: wait for its start first, so that its end is certain."""
    try:
        program = await starting
    except NotStarted:
        return
    try:
        await program.end(attempt.grace_s)
        await program.wait()
    finally:
        program.close()


def _output_of(stream: str, output: Output, program: Program) -> Callable[[bytes], None]:
    def keep(chunk: bytes) -> None:
        output.take(stream, chunk)
        if output.overflowed:
            program.kill()

    return keep


def _source(given: bytes) -> int:
    if not given:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        return os.dup(file.fileno())


async def _accompany(program: Program, attempt: AttemptContext, readers: Sequence[PipeReader]) -> Ending:
    listening = [reader.ended for reader in readers]
    try:
        ending = await program.wait()
    except asyncio.CancelledError:
        await program.end(attempt.grace_s)
        await program.wait()
        await asyncio.wait(listening, timeout=LAST_OUTPUT_S)
        raise
    if not all(each.done() for each in listening):
        await asyncio.wait(listening, timeout=LAST_OUTPUT_S)
    return ending


def describe_end(code: int) -> str:
    """An exit code, for people."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
