"""A program and all that it starts: begun, listened to, and ended as a whole."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from mainspring.executor import AttemptContext

LONGEST_LINE = 64 * 1024
"""A longer line of output is cut into pieces."""
LAST_OUTPUT_S = 1.0
"""How long to read on after the program has ended: one that it left behind may hold its output open for ever."""
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.5
_CHUNK = 64 * 1024

Hear = Callable[[bytes], None]


class Pipe:
    """A pipe that we read. Not one of asyncio's: those would have to close before its `wait` sees that the program has
    ended."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()

    def close(self, *, both: bool) -> None:
        """Close the end that the program has its own copy of, or both ends, before `listen`."""
        os.close(self.write_end)
        if both:
            os.close(self._read_end)

    async def listen(self, hear: Hear, longest: int | None, attempt: AttemptContext) -> None:
        """Give each line, without its end, to `hear`."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(self._read_end, "rb", 0)
        )
        rest = b""
        try:
            while chunk := await reader.read(_CHUNK):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    hear(line)
                while longest is not None and len(rest) > longest:
                    hear(rest[:longest])
                    rest = rest[longest:]
                await _catch_up(attempt)
            if rest:
                hear(rest)
        finally:
            transport.close()


async def _catch_up(attempt: AttemptContext) -> None:
    """Read no more while the store is behind: the pipe fills up, and the program waits."""
    pause = SHORTEST_PAUSE_S
    while attempt.behind():
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


class Channel(Pipe):
    """A pipe on which the program talks to us, one message a line; it is told the number of `write_end`."""

    def __init__(self, hear: Hear) -> None:
        super().__init__()
        self.hear = hear


async def run_program(
    argv: Sequence[str],
    attempt: AttemptContext,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    order: bytes = b"",
    channel: Channel | None = None,
) -> int:
    """Run a program to its end, its output as log lines of the run, `order` as its input; its exit code, negative for
    a signal. What it started and left behind dies with it. Cancelled, it ends all of them."""
    output, errors = Pipe(), Pipe()
    pipes = [output, errors, *([channel] if channel else [])]
    try:
        program = await asyncio.create_subprocess_exec(
            *argv, cwd=cwd, env=env, start_new_session=True, pass_fds=[channel.write_end] if channel else (),
            stdin=PIPE if order else DEVNULL, stdout=output.write_end, stderr=errors.write_end,
        )  # fmt: skip
    except BaseException:
        for pipe in pipes:
            pipe.close(both=True)
        raise
    for pipe in pipes:
        pipe.close(both=False)
    ears = [
        output.listen(_writer(attempt, "stdout"), LONGEST_LINE, attempt),
        errors.listen(_writer(attempt, "stderr"), LONGEST_LINE, attempt),
    ]
    if channel is not None:
        ears.append(channel.listen(channel.hear, None, attempt))
    return await _accompany(program, attempt, order, [asyncio.create_task(ear) for ear in ears])


async def _accompany(
    program: Process, attempt: AttemptContext, order: bytes, listening: Sequence[asyncio.Task[None]]
) -> int:
    try:
        if program.stdin is not None:
            program.stdin.write(order)
            program.stdin.close()
        code = await program.wait()
        _signal(program, signal.SIGKILL)
        await asyncio.wait(listening, timeout=LAST_OUTPUT_S)
        return code
    except asyncio.CancelledError:
        await _end(program, attempt.grace_s)
        raise
    finally:
        _signal(program, signal.SIGKILL)
        for ear in listening:
            ear.cancel()


async def _end(program: Process, grace_s: float) -> None:
    """Ask the process group to end, then kill it."""
    if program.returncode is None and grace_s > 0:
        _signal(program, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(program.wait(), grace_s)
    _signal(program, signal.SIGKILL)
    await program.wait()


def _signal(program: Process, number: signal.Signals) -> None:
    # Nobody is left, or somebody who has become another user and is no longer ours to end.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, number)


def _writer(attempt: AttemptContext, stream: str) -> Hear:
    return lambda line: attempt.write(stream, line.decode("utf-8", "replace").rstrip("\r"))


def describe_end(code: int) -> str:
    """An exit code in words."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
