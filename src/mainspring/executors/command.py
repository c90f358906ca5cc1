"""Commands: an argument list, no shell. Output becomes log lines; the exit code decides."""

from __future__ import annotations

import os
from typing import Annotated

import msgspec

from mainspring.core.model import Failure
from mainspring.executor import AttemptContext, Outcome, plain
from mainspring.executors.program import describe_end, run_program

COMMAND = "command"
"""The task name under which commands are stored."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")


class CommandSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to run."""

    argv: Annotated[list[str], msgspec.Meta(min_length=1)]
    cwd: str | None = None
    env: dict[str, str] = {}


class CommandExecutor:
    """One process group per attempt."""

    async def run(self, attempt: AttemptContext) -> Outcome:
        try:
            spec = msgspec.json.decode(attempt.claim.args, type=CommandSpec)
            code = await run_program(spec.argv, attempt, cwd=spec.cwd, env=_environment(spec))
        except OSError as error:
            return _failed("CommandNotStarted", f"{error.filename or spec.argv[0]}: {error.strerror or error}")
        except ValueError as error:  # As msgspec's are: it is no command, or no system could start it.
            return _failed("CommandNotStarted", f"it cannot be a command: {error}", final=True)
        return (
            Outcome("succeeded", "null") if code == 0 else _failed("CommandFailed", f"the command {describe_end(code)}")
        )


def _environment(spec: CommandSpec) -> dict[str, str]:
    # The worker's own environment may hold secrets (its database URL): a command gets only what it needs to start.
    return {name: os.environ[name] for name in _INHERITED if name in os.environ} | spec.env


def _failed(kind: str, message: str, *, final: bool = False) -> Outcome:
    return Outcome("failed", failure=Failure(kind, plain(message)), error_types=(f"mainspring.{kind}",), final=final)
