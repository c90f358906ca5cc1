"""A sync function in a child process of its own, so that a deadline or a cancel really ends it.

The child imports the module of the function and finds the task there by name. Arguments, result, log lines and
progress cross as JSON lines; nothing is pickled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from mainspring.core.model import Claim, Failure
from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.program import Channel, describe_end, run_program
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


class ProcessExecutor:
    """One process per attempt."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._tasks = tasks

    async def run(self, attempt: AttemptContext) -> Outcome:
        order = _encode(self._order(attempt))
        outcome: Outcome | None = None

        def hear(line: bytes) -> None:
            nonlocal outcome
            message = _decode(line)
            outcome = message.outcome or outcome
            _pass_on(message, attempt)

        channel = Channel(hear)
        argv = [sys.executable, "-m", "mainspring.executors.child", str(channel.write_end), str(os.getpid())]
        code = await run_program(argv, attempt, order=order, channel=channel)
        if outcome is not None:
            return outcome
        failure = Failure("ProcessDied", f"the process {describe_end(code)} before the function returned")
        return Outcome("failed", failure=failure, error_types=("mainspring.ProcessDied",))

    def _order(self, attempt: AttemptContext) -> Order:
        module = sys.modules[self._tasks[attempt.claim.task].function.__module__]
        file = getattr(module, "__file__", None)
        # With `python -m package.module` the module is called `__main__`, and only its spec has its name.
        name = module.__spec__.name if module.__spec__ else module.__name__
        return Order(name, file, sys.path, attempt.claim, attempt.deadline)


def _pass_on(message: Message, attempt: AttemptContext) -> None:
    if attempt.context is not None and message.log is not None:
        attempt.context.log(message.log)
    if attempt.context is not None and message.progress is not None:
        attempt.context.progress(message.progress, message.note)
