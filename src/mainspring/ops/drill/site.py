"""What a drill is played on: a primary and a standby, and the means to fail, promote, redirect and fail back."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from mainspring.errors import InvalidInput, MainspringError

CONNECT_S = 5.0
LOOK_S = 0.1
"""How often a drill looks whether something has happened."""
PROMOTE_S = 60
STEP_S = 15 * 60.0
"""How long one step by hand or by command may take: the recovery time objective."""

_REPLICATION = """
SELECT pg_is_in_recovery() AS in_recovery,
  EXISTS (SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming') AS streaming,
  CASE WHEN pg_last_wal_receive_lsn() IS NOT DISTINCT FROM pg_last_wal_replay_lsn() THEN 0
    ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0) END::float8 AS lag_s
"""


class Replication(msgspec.Struct, frozen=True):
    """How a server follows another."""

    in_recovery: bool
    streaming: bool
    lag_s: float


class Site(Protocol):
    """A primary and a standby. Steps block; they raise MainspringError if they cannot be taken."""

    primary: str
    """The URL of the primary's database."""
    standby: str
    servers: tuple[str, ...]
    """Servers of the API whose health is watched; those that survive the failure of the primary."""
    task: str
    args: Mapping[str, Any]
    """What the drill submits; it succeeds, and takes no time."""
    long_args: Mapping[str, Any]
    """Arguments with which it runs until long after the failure."""
    failing_args: Mapping[str, Any]
    """Arguments with which it fails."""

    def rehearse(self) -> str:
        """Check what the later steps need before anything is failed; returns what was found, for people."""

    def fail(self) -> None:
        """Stop or kill the primary, with everything that runs beside it."""

    def promote(self) -> None:
        """Make the standby the server to write to."""

    def redirect(self) -> str:
        """Send clients to the standby; returns how, for people."""

    def restore(self) -> None:
        """Start what failed again, as the standby of what is primary now."""

    def fail_back(self) -> None:
        """Make the first primary the primary again, without losing a commit."""


class CommandSite:
    """A site that exists. What the operator has a command for is done by it; a promotion needs none; for the rest the
    drill waits until the operator has done it."""

    def __init__(self, primary: str, standby: str, commands: Mapping[str, str], servers: tuple[str, ...]) -> None:
        self.primary, self.standby, self.servers = primary, standby, servers
        self._commands = commands
        self.task = "command"
        self.args: Mapping[str, Any] = {"argv": ["true"]}
        self.long_args: Mapping[str, Any] = {"argv": ["sleep", "60"]}
        self.failing_args: Mapping[str, Any] = {"argv": ["false"]}

    def rehearse(self) -> str:
        """Whether the shell finds the program of each command. MainspringError names one that it does not find."""
        for step, command in self._commands.items():
            program = next((word for word in _words(command) if "=" not in word), "")
            looked = subprocess.run(["sh", "-c", 'command -v -- "$1"', "sh", program], capture_output=True, check=False)
            if looked.returncode:
                option = f"--{step.replace('_', '-')}-with"
                raise MainspringError(f"{option} names no program that can be executed: '{program}'")
        return f"the programs of {len(self._commands)} commands exist" if self._commands else "no command is given"

    def fail(self) -> None:
        """Stop the primary by command; without one, the operator stops it."""
        if not self._command("fail"):
            wait_until(lambda: not answers(self.primary), "the primary is stopped")

    def promote(self) -> None:
        """Promote the standby by command; without one, by SQL."""
        if not self._command("promote"):
            ask(self.standby, f"SELECT pg_promote(true, {PROMOTE_S})")

    def redirect(self) -> str:
        """Redirect clients by command; without one, they find the primary by their URL."""
        return "by the given command" if self._command("redirect") else "clients try every host of their URL"

    def restore(self) -> None:
        """Rebuild the old primary by command; without one, the operator does it."""
        self._command("restore")
        wait_until(lambda: is_following(self.primary), "the first primary follows the new one")

    def fail_back(self) -> None:
        """Fail back by command; without one, the operator does it."""
        self._command("fail_back")
        wait_until(lambda: answers(self.primary) and not is_following(self.primary), "the first primary is promoted")

    def _command(self, step: str) -> bool:
        command = self._commands.get(step)
        if command is None:
            return False
        try:
            done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=STEP_S, check=False)
        except subprocess.TimeoutExpired:
            raise MainspringError(f"`{command}` has not ended after {STEP_S:g} s") from None
        if done.returncode:
            raise MainspringError(f"`{command}` ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return True


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise MainspringError(f"`{command}` cannot be read by a shell: {error}") from None


def wait_until(holds: Callable[[], bool], what: str, limit_s: float = STEP_S) -> None:
    """Look until something holds; MainspringError if it does not in time."""
    deadline = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > deadline:
            raise MainspringError(f"not within {limit_s:g} s: {what}")
        time.sleep(LOOK_S)


def join_hosts(primary: str, standby: str) -> str:
    """The URL with which clients find whichever of the two is the primary."""
    first, second = urlsplit(primary), urlsplit(standby)
    user, _, hosts = first.netloc.rpartition("@")
    if first.path != second.path:
        remedy = "name the same database on both servers"
        raise InvalidInput("standby", second.path, f"is not the database of the primary ({first.path})", remedy)
    netloc = f"{user}@{hosts}" if user else hosts
    query = "&".join(filter(None, (first.query, "target_session_attrs=primary")))
    return urlunsplit((first.scheme, f"{netloc},{second.netloc.rpartition('@')[2]}", first.path, query, ""))


def ask(url: str, query: str) -> list[Mapping[str, Any]]:
    """The rows of a query, by name. Blocks; call it where no event loop runs."""
    return asyncio.run(fetch(url, query))


async def fetch(url: str, query: str, *values: object) -> list[Mapping[str, Any]]:
    """As `ask`, on this event loop."""
    import asyncpg

    from mainspring.stores.postgres.server.errors import mapped_errors

    with mapped_errors(url):
        connection = await asyncpg.connect(url, timeout=CONNECT_S, command_timeout=PROMOTE_S + CONNECT_S)
        try:
            return [dict(row) for row in await connection.fetch(query, *values)]
        finally:
            await connection.close(timeout=CONNECT_S)


def answers(url: str) -> bool:
    """Whether a server answers."""
    try:
        return bool(ask(url, "SELECT 1 AS one"))
    except (MainspringError, OSError, TimeoutError):
        return False


def is_following(url: str) -> bool:
    """Whether a server answers, and follows another."""
    try:
        return replication(url).in_recovery
    except (MainspringError, OSError, TimeoutError):
        return False


def replication(standby: str) -> Replication:
    """How a standby follows."""
    return msgspec.convert(ask(standby, _REPLICATION)[0], Replication)
