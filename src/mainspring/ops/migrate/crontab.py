"""A crontab as jobs: each line runs its command by a shell, at the times and with the variables of the file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import CronTrigger, check_trigger
from mainspring.core.tasks.specs import CommandSpec
from mainspring.errors import InvalidInput
from mainspring.ops.migrate.found import Found, blank_job, left_out, unique_names
from mainspring.ops.migrate.their_cron import their_fires

_VARIABLE = re.compile(r"""\s*(?P<name>[A-Za-z_]\w*|"[^"]+"|'[^']+')\s*=\s*(?P<value>.*?)\s*""")
_LINE = re.compile(r"\s*(?P<schedule>@\w+|(?:\S+\s+){4}\S+)\s+(?P<rest>.+?)\s*")
_PERCENT = re.compile(r"(?<!\\)%")
_PROGRAM = re.compile(r"[\w.+-]+")
_MEANT = {"SHELL", "CRON_TZ", "MAILTO", "MAILFROM", "LOGNAME", "USER"}
"""Variables that cron itself heeds; others are for the command."""
NO_RETRY = RunOptions(retry=Retry(0))
"""Cron runs a command once, whatever comes of it."""


def read_crontab(path: Path, now: Instant, *, zone: str, namespace: str, has_user: bool) -> list[Found]:
    """The jobs of a crontab. `has_user`: each line names a user after its times, as /etc/crontab does."""
    return unique_names(_read_lines(path.read_text(), blank_job(namespace, now), zone, has_user))


def local_zone() -> str:
    """The zone of this machine, in which its cron counts; UTC if it has no name."""
    if named := os.environ.get("TZ", "").removeprefix(":"):
        return named
    parts = Path("/etc/localtime").resolve().as_posix().partition("/zoneinfo/")
    return parts[2] or "UTC"


def _read_lines(text: str, blank: Job, zone: str, has_user: bool) -> Iterator[Found]:
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if variable := _VARIABLE.fullmatch(line):
            variables[variable["name"].strip("\"'")] = _unquoted(variable["value"])
            continue
        source = f"line {number}"
        match = _LINE.fullmatch(line)
        if match is None:
            yield left_out(source, source, f"{line.strip()!r} is no line of a crontab")
            continue
        place = variables.get("CRON_TZ", zone)
        try:
            yield _read_line(source, match, variables, place, blank, has_user)
        except InvalidInput as error:
            yield left_out(source, _name(match["rest"]), error)


def _read_line(
    source: str, line: re.Match[str], variables: dict[str, str], zone: str, blank: Job, has_user: bool
) -> Found:
    schedule, command = line["schedule"], line["rest"]
    lost = []
    if has_user:
        user, _, command = command.partition(" ")
        lost.append(f"user {user}: the command runs as the user of the worker")
    if schedule.lower() == "@reboot":
        problem = "has no counterpart: a job fires by the clock"
        raise InvalidInput("schedule", schedule, problem, "start it with the machine, for example by systemd")
    if variables.get("MAILTO"):
        lost.append(f"MAILTO={variables['MAILTO']}: output is in the logs of the run; `alert` notifies of failures")
    trigger = CronTrigger(schedule, zone)
    check_trigger(trigger)
    command = command.strip()
    spec = _read_command(command, variables)
    # Cron makes up for nothing that it missed while it was not running.
    policy = JobPolicy(misfire="skip")
    job = msgspec.structs.replace(
        blank,
        name=_name(command),
        task="command",
        trigger=trigger,
        args=msgspec.json.encode(spec).decode(),
        policy=policy,
        options=NO_RETRY,
    )
    return Found(source, job.name, job, "", tuple(lost), their_fires(trigger, "debian"))


def _read_command(text: str, variables: dict[str, str]) -> CommandSpec:
    """A percent sign ends the command; what follows is its input, with further ones as line feeds."""
    command, *lines = (part.replace("\\%", "%") for part in _PERCENT.split(text))
    env = {name: value for name, value in variables.items() if name not in _MEANT}
    return CommandSpec(
        argv=[variables.get("SHELL", "/bin/sh"), "-c", command.strip()],
        env=env,
        stdin="".join(f"{line}\n" for line in lines) if lines else None,
    )


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value


def _name(command: str) -> str:
    """The program of a command, which is what people call the line by."""
    parts = [part for part in re.split(r"&&|;", command) if not part.lstrip().startswith("cd ")]
    words = [word for word in " ".join(parts).split() if "=" not in word.partition("/")[0]]
    program = Path(words[0]).name if words else ""
    found = _PROGRAM.search(program)
    return found[0] if found else "command"
