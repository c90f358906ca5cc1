"""Executes commands: an argument list, without a shell. Output becomes log lines, and the exit code decides."""

from __future__ import annotations

import errno
import os
import shlex
import signal
from collections.abc import Sequence

import msgspec

from mainspring.core.tasks.isolation import Isolation, Level, format_size
from mainspring.core.tasks.specs import CommandSpec
from mainspring.executor import AttemptContext, Outcome
from mainspring.executors.facts import facts_of
from mainspring.executors.failures import failed_by
from mainspring.executors.launching.order import Launch
from mainspring.executors.programs.confinement import (
    IsolationRefused,
    confine,
    describe_ending,
    describe_oom,
    environment,
)
from mainspring.executors.programs.host import HostProbe, identify
from mainspring.executors.programs.output import Output
from mainspring.executors.programs.program import Ending, Launcher, NotStarted, describe_end, run_program
from mainspring.settings import CommandLevel, Settings

COMMAND = "command"
"""The task name under which commands are stored."""
SHELL = "/bin/sh"
_WRAPPER_FAILED = 1
"""The exit code of bubblewrap when it cannot start the program."""
_LONGEST_WORDS = 300
_NEVER_STARTS = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.EISDIR, errno.ELOOP}
    | {errno.ENAMETOOLONG, errno.E2BIG, errno.EINVAL}
)
"""The program or its folder is missing, forbidden, or not executable: a retry would fail, too. A lack of memory,
processes or open files may pass, and is retried."""


class CommandExecutor:
    """Runs one program per attempt, and ends all processes that it started."""

    def __init__(self, launcher: Launcher, probe: HostProbe, settings: Settings) -> None:
        self._launcher = launcher
        self._probe = probe
        self._settings = settings

    async def run(self, attempt: AttemptContext) -> Outcome:
        least = least_level(self._settings)
        isolation = attempt.options.isolation or Isolation(least)
        try:
            _check_level(isolation, least)
            spec = msgspec.json.decode(attempt.claim.args, type=CommandSpec)
            order = await self._order(spec, attempt, isolation)
            output = Output(attempt, self._settings.output_limit, isolation.output)
            warning = None if spec.warn is None else signal.Signals[f"SIG{spec.warn}"]
            ending = await run_program(self._launcher, order, attempt, output, _given(spec), warning)
        except NotStarted as error:
            never = error.errno in _NEVER_STARTS
            return failed_by("CommandNotStarted", error.strerror or "it could not be started", final=never)
        except IsolationRefused as refusal:
            return failed_by("IsolationUnavailable", f"this worker cannot offer {refusal}")
        except ValueError as error:  # msgspec's errors are ValueErrors: it is no command, or no system could start it.
            return failed_by("CommandNotStarted", f"it is not a valid command: {error}", final=True)
        if output.overflowed:
            return failed_by("CommandFailed", f"it wrote more than its limit of {format_size(isolation.output or 0)}")
        return self._judge(spec, ending, isolation, output)

    async def _order(self, spec: CommandSpec, attempt: AttemptContext, isolation: Isolation) -> Launch:
        if spec.shell and not self._settings.allow_shell:
            raise ValueError("this worker runs no shell: set allow_shell to permit it")
        host = await self._probe.host() if isolation.confined else None
        env = environment(isolation, host, facts_of(attempt) | spec.env)
        order: Launch = {"argv": _argv(spec), "env": env, "cwd": spec.cwd}
        if spec.result == "file":
            order["result_limit"] = self._settings.payload_limit
        return confine(isolation, host, order)

    def _judge(self, spec: CommandSpec, ending: Ending, isolation: Isolation, output: Output) -> Outcome:
        if not ending.began and ending.code == _WRAPPER_FAILED:
            return _unstarted(output)
        if ending.code in spec.success:
            if ending.out_of_memory and not isolation.ignore_oom:
                return failed_by(
                    "CommandFailed", f"the command {describe_end(ending.code)}, but {describe_oom(isolation)}"
                )
            return self._result(spec, ending, output)
        final = ending.code in spec.final or (spec.retried is not None and ending.code not in spec.retried)
        end = describe_ending(ending, isolation)
        # If it met a limit, that is the reason. Otherwise its last error line nearly always is.
        words = "" if ":" in end else _last_words(output)
        return failed_by("CommandFailed", f"the command {end}{words}", final=final)

    def _result(self, spec: CommandSpec, ending: Ending, output: Output) -> Outcome:
        if spec.result is None:
            return Outcome("succeeded", "null")
        text = ending.result if spec.result == "file" else _text(output, "stdout")
        limit = self._settings.payload_limit
        try:
            if not text:
                raise ValueError("there is none")
            if len(text.encode()) > limit:
                raise ValueError(f"it has more than the {limit} bytes of payload_limit")
            return Outcome("succeeded", msgspec.json.encode(msgspec.json.decode(text)).decode())
        except ValueError as error:
            where = "result file" if spec.result == "file" else "last line of output"
            return failed_by("ResultInvalid", f"the {where} is no JSON result: {error}", final=True)


def least_level(settings: Settings) -> CommandLevel:
    """The least isolation of commands. A worker that is root could read every secret of the host, so its commands run
    as other users unless the settings say otherwise."""
    return settings.isolation or ("limits" if os.geteuid() == 0 else "none")


_STRENGTHS: Sequence[Level] = ("none", "process", "limits", "sandbox")


def _check_level(isolation: Isolation, least: CommandLevel) -> None:
    """The permission to submit commands must not grant the rights of the worker."""
    if _STRENGTHS.index(isolation.level) < _STRENGTHS.index(least):
        raise IsolationRefused(
            f"commands the isolation {isolation.level}: they have {least} at least, by its setting isolation"
        )
    if least != "none" and isolation.user is not None and _is_this_user(isolation.user):
        raise IsolationRefused(
            f"user {isolation.user}: that is its own, and by its setting isolation no command has it"
        )


def _is_this_user(name: str) -> bool:
    try:
        return identify(name)["uid"] == os.geteuid()
    except KeyError:
        return False


def _text(output: Output, stream: str) -> str:
    return output.last_lines.get(stream, b"").decode("utf-8", "replace")


def _last_words(output: Output) -> str:
    """Leave out a line that is too long instead of cutting it: half a secret would not be recognized."""
    line = _text(output, "stderr").strip()
    return f": {line}" if 0 < len(line) <= _LONGEST_WORDS else ""


def _argv(spec: CommandSpec) -> list[str]:
    if isinstance(spec.argv, list):
        return spec.argv
    if spec.shell:
        return [SHELL, "-c", spec.argv]
    words = shlex.split(spec.argv)
    if not words:
        raise ValueError("it is empty")
    return words


def _unstarted(output: Output) -> Outcome:
    """The last line of bubblewrap says why: reported like an error of the system if it concerns the program or its
    folder."""
    reason = _text(output, "stderr").strip().removeprefix("bwrap: ")
    for what in ("execvp ", "Can't chdir to "):
        if reason.startswith(what):
            never = reason.endswith(tuple(f": {os.strerror(number)}" for number in _NEVER_STARTS))
            return failed_by("CommandNotStarted", reason.removeprefix(what), final=never)
    return failed_by("CommandNotStarted", f"its sandbox could not be made: {reason or 'bubblewrap does not say why'}")


def _given(spec: CommandSpec) -> bytes:
    if spec.stdin is None:
        return b""
    return spec.stdin.encode() if isinstance(spec.stdin, str) else msgspec.json.encode(spec.stdin) + b"\n"
