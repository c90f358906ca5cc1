"""The worker's side of one pool process, which executes one run at a time."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from contextlib import suppress
from functools import partial

import msgspec

from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.launching.order import Launch
from mainspring.executors.pool.messages import PoolMessage, PoolSetup, RunRequest
from mainspring.executors.programs.output import Output
from mainspring.executors.programs.pipe_reader import PipeReader
from mainspring.executors.programs.program import Ending, Launcher, NotStarted, Program

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PoolMessage).decode
PROGRESS_S = 0.02
"""How often at most the progress of a run is passed on."""


class ProcessDied(Exception):
    """The process ended before it reported the outcome of its run."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending = ending


class PoolProcess:
    """Uses callbacks of the loop, which cost less than coroutines. Created by `start_process`."""

    def __init__(
        self, program: Program, channel: socket.socket, streams: dict[str, int], longest: int, trusted: bool
    ) -> None:
        self._program = program
        self._longest = longest
        self._trusted = trusted
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._condemned = False
        self._progress: tuple[float, str] | None = None
        self._progress_sent_at = 0.0
        self._attempt: AttemptContext | None = None
        self._output: Output | None = None
        self._message: asyncio.Future[PoolMessage | None] = self._loop.create_future()
        self.spent = False
        """Whether the process must not be used again."""
        self.ending: Ending | None = None
        """How the process ended, once known."""
        self._streams = [
            PipeReader(file, partial(self._keep, stream), self._behind) for stream, file in streams.items()
        ]
        self._answers = PipeReader(os.dup(channel.fileno()), self._hear, self._behind)
        self._answers.ended.add_done_callback(lambda _: self._answer(None))

    @property
    def computes(self) -> bool:
        """Whether the process is using a core right now. False where that is unknown."""
        with suppress(OSError, IndexError), open(f"/proc/{self._program.pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
        return False

    async def get_ready(self, setup: PoolSetup, output: Output | None) -> None:
        """Let the process import what it will need; raises ProcessDied if it ends first. Output written meanwhile
        belongs to the run for which the process is started, if there is one."""
        self._output = output
        try:
            await self._ask(_encode(setup))
        except ProcessDied:
            for reader in self._streams:
                reader.drain()
            if output is not None:
                output.finish()
            raise

    async def run(self, order: RunRequest, attempt: AttemptContext, output: Output) -> Outcome:
        """Execute one run. Raises ProcessDied if the process dies. If cancelled, the process gets SIGTERM, then
        SIGKILL."""
        self._attempt, self._output = attempt, output
        quiet = False
        try:
            message = await self._ask(_encode(order))
            quiet = message.quiet
            self.spent = self.spent or message.spent
        except asyncio.CancelledError:
            self.spent = True
            await self._program.end(attempt.grace_s)
            await self._program.wait()
            raise
        except BaseException:
            self.spent = True
            raise
        finally:
            # By the end of the run its output is in the pipes. The process says if they are empty, because a read
            # costs more than all else here while other threads wait for the interpreter.
            for reader in () if quiet else self._streams:
                reader.drain()
            output.finish()
            self._attempt = self._output = None
        assert message.outcome is not None, "a request for a run is answered by its outcome"
        if message.spent:
            self.ending = await self._end()
        return message.outcome

    async def _end(self) -> Ending | None:
        """End the process now: nothing of the run may outlive its end."""
        self._program.kill()
        with suppress(NotStarted):  # Its shim was killed, and the process with it.
            return await self._program.wait()
        return None

    async def _ask(self, words: bytes) -> PoolMessage:
        self._message = self._loop.create_future()
        await self._say(words + b"\n")
        message = await self._message
        if message is not None:
            return message
        raise ProcessDied(await self._program.wait())

    async def _say(self, words: bytes) -> None:
        sent = 0
        with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
            sent = self._channel.send(words)
        if sent < len(words):
            with suppress(BrokenPipeError, ConnectionResetError):  # It has died, which the reader notices.
                await self._loop.sock_sendall(self._channel, words[sent:])

    def _hear(self, words: bytes) -> None:
        """The function itself may write anything here: none of it may harm the worker."""
        if self._condemned:
            return
        *lines, self._rest = (self._rest + words).split(b"\n")
        if max(len(self._rest), *map(len, lines), 0) > self._longest:
            self._condemn("its process sent a message that is longer than any can be")
            return
        for line in lines:
            try:
                message = _decode(line)
            except (msgspec.MsgspecError, UnicodeError):
                self._condemn("its process sent the worker an invalid message")
                return
            if message.ready or message.outcome is not None:
                self._tell_progress()
                self._answer(message)
            elif self._attempt is not None:
                self._pass_on(message, self._attempt)

    def _condemn(self, why: str) -> None:
        self._condemned, self._rest = True, b""
        if self._attempt is not None:
            self._attempt.write("log", f"{why}, and is killed")
        self._program.kill()

    def _pass_on(self, message: PoolMessage, attempt: AttemptContext) -> None:
        if message.log is not None:
            if self._trusted:
                attempt.write("log", message.log)
            else:  # Within the same limit as what is printed.
                self._keep("log", message.log.encode() + b"\n")
        if message.progress is not None:
            self._progress = (message.progress, message.note)
            if self._loop.time() - self._progress_sent_at >= PROGRESS_S:
                self._tell_progress()

    def _tell_progress(self) -> None:
        """Pass on the latest progress."""
        context = self._attempt.context if self._attempt is not None else None
        if self._progress is not None and context is not None:
            self._progress_sent_at = self._loop.time()
            context.progress(*self._progress)
        self._progress = None

    def _behind(self) -> bool:
        return self._attempt is not None and self._attempt.behind()

    def _answer(self, message: PoolMessage | None) -> None:
        if not self._message.done():
            self._message.set_result(message)

    def _keep(self, stream: str, chunk: bytes) -> None:
        if self._output is not None:
            self._output.take(stream, chunk)
            if self._output.overflowed:
                self._program.kill()

    def hang_up(self) -> None:
        """Let the process know that no run will come, so that it ends by itself."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)

    def await_end(self, seconds: float) -> None:
        """Block until the process has ended, or this time is over."""
        ready = select.poll()
        ready.register(self._channel, select.POLLIN)
        ready.poll(1000 * seconds)

    def close(self) -> None:
        """End the process, and all that it started."""
        self.spent = True
        for reader in (self._answers, *self._streams):
            reader.close()
        self._program.close()
        self._channel.close()


async def start_process(
    launcher: Launcher, launch: Launch, setup: PoolSetup, longest: int, output: Output | None = None
) -> PoolProcess:
    """Start a pool process and wait until it is ready. Raises NotStarted or ProcessDied if that fails.

    Its messages have at most `longest` bytes. A process started for a single run, which has an `output`, is untrusted.
    """
    ours, theirs = socket.socketpair()
    pipes = [(*os.pipe(), stream) for stream in ("stdout", "stderr")]
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        files = [nothing, *(write_end for _, write_end, _ in pipes), theirs.fileno()]
        program = await launcher.start(launch, files)
    except BaseException:
        ours.close()
        for read_end, _, _ in pipes:
            os.close(read_end)
        raise
    finally:
        os.close(nothing)
        theirs.close()
        for _, write_end, _ in pipes:
            os.close(write_end)
    ours.setblocking(False)
    streams = {stream: read_end for read_end, _, stream in pipes}
    process = PoolProcess(program, ours, streams, longest, trusted=output is None)
    try:
        await process.get_ready(setup, output)
    except BaseException:
        process.close()
        raise
    return process
