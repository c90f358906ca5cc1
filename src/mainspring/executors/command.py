"""Commands: an argument list, no shell. Output becomes log lines; the exit code decides."""

from __future__ import annotations

import asyncio
import os
import signal

import msgspec

from mainspring.core.model import Failure
from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.process import copy_lines, end_tree, kill_tree

COMMAND = "command"
"""The task name under which commands are stored."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")


class CommandSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to run."""

    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] = {}


class CommandExecutor:
    """One process group per attempt."""

    async def run(self, attempt: AttemptContext) -> Outcome:
        spec = msgspec.json.decode(attempt.claim.args, type=CommandSpec)
        # The worker's own environment may hold secrets (its database URL): a command gets only what it needs to start.
        env = {name: os.environ[name] for name in _INHERITED if name in os.environ} | spec.env
        try:
            child = await asyncio.create_subprocess_exec(
                *spec.argv, cwd=spec.cwd, env=env, start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            failure = Failure("CommandNotStarted", f"{spec.argv[0]}: {error.strerror or error}")
            return Outcome("failed", failure=failure, error_types=("mainspring.CommandNotStarted",))
        try:
            return await self._watch(child, attempt)
        except asyncio.CancelledError:
            await end_tree(child, attempt.grace_s)
            raise
        finally:
            kill_tree(child)

    async def _watch(self, child: asyncio.subprocess.Process, attempt: AttemptContext) -> Outcome:
        assert child.stdout
        assert child.stderr
        await asyncio.gather(
            copy_lines(child.stdout, attempt, "stdout"), copy_lines(child.stderr, attempt, "stderr"), child.wait()
        )
        code = child.returncode or 0
        if code == 0:
            return Outcome("succeeded", "null")
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        failure = Failure("CommandFailed", f"the command {ended}")
        return Outcome("failed", failure=failure, error_types=("mainspring.CommandFailed",))
