"""A sync function in a child process of its own, so that a deadline or a cancel really ends it.

The child imports the module of the function and finds the task there by name. Arguments, result, log lines and
progress cross as JSON lines; nothing is pickled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from mainspring.core.model import Claim, Failure
from mainspring.executor import AttemptContext, Outcome
from mainspring.task import Task


class Order(msgspec.Struct):
    """What the child is told."""

    module: str
    file: str | None
    path: list[str]
    claim: Claim
    deadline: int | None


class Message(msgspec.Struct, omit_defaults=True):
    """What the child tells, one JSON line each."""

    log: str | None = None
    progress: float | None = None
    note: str = ""
    outcome: Outcome | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode
_LONGEST_LINE = 4 * 1024 * 1024


class ProcessExecutor:
    """One process per attempt."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._tasks = tasks

    async def run(self, attempt: AttemptContext) -> Outcome:
        read_end, write_end = os.pipe()
        try:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "mainspring.executors.child", str(write_end),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                pass_fds=(write_end,), start_new_session=True, limit=_LONGEST_LINE,
            )  # fmt: skip
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        try:
            return await self._converse(child, attempt, read_end)
        except asyncio.CancelledError:
            await end_tree(child, attempt.grace_s)
            raise
        finally:
            kill_tree(child)

    async def _converse(self, child: asyncio.subprocess.Process, attempt: AttemptContext, read_end: int) -> Outcome:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        messages = await _open_reader(read_end)
        child.stdin.write(_encode(self._order(attempt)))
        child.stdin.close()
        _, _, outcome = await asyncio.gather(
            copy_lines(child.stdout, attempt, "stdout"),
            copy_lines(child.stderr, attempt, "stderr"),
            _listen(messages, attempt),
        )
        code = await child.wait()
        return outcome or Outcome("failed", failure=_died(code), error_types=("mainspring.ProcessDied",))

    def _order(self, attempt: AttemptContext) -> Order:
        module = sys.modules[self._tasks[attempt.claim.task].function.__module__]
        file = getattr(module, "__file__", None)
        return Order(module.__name__, file, sys.path, attempt.claim, attempt.deadline)


async def _open_reader(read_end: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb"))
    return reader


async def _listen(messages: asyncio.StreamReader, attempt: AttemptContext) -> Outcome | None:
    outcome = None
    while line := await messages.readline():
        message = _decode(line)
        outcome = message.outcome or outcome
        if attempt.context is not None and message.log is not None:
            attempt.context.log(message.log)
        if attempt.context is not None and message.progress is not None:
            attempt.context.progress(message.progress, message.note)
    return outcome


async def copy_lines(stream: asyncio.StreamReader, attempt: AttemptContext, name: str) -> None:
    """Output as log lines of the run; an endless line is cut into pieces."""
    while True:
        try:
            line = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            line = error.partial
        except asyncio.LimitOverrunError as error:
            line = await stream.readexactly(error.consumed)
        if not line:
            return
        attempt.write(name, line.decode("utf-8", "replace").rstrip("\r\n"))


def _died(code: int) -> Failure:
    if code < 0:
        return Failure("ProcessDied", f"the process was killed by {signal.Signals(-code).name}")
    return Failure("ProcessDied", f"the process ended with code {code} before the function returned")


async def end_tree(child: asyncio.subprocess.Process, grace_s: float) -> None:
    """Ask the process group to end, then kill it."""
    if child.returncode is None and grace_s > 0:
        _signal(child, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), grace_s)
    kill_tree(child)
    await child.wait()


def kill_tree(child: asyncio.subprocess.Process) -> None:
    """Whatever is left of the process group dies."""
    _signal(child, signal.SIGKILL)


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    try:
        os.killpg(child.pid, number)
    except ProcessLookupError:
        return
