"""The messages between a worker and a pool process: JSON lines, never pickles."""

from __future__ import annotations

import msgspec

from mainspring.core.model import Claim
from mainspring.executor import Outcome

CHANNEL = 3
"""The descriptor of the socket to the worker."""


class ModuleLocation(msgspec.Struct, frozen=True):
    """The module that a function is in."""

    module: str
    file: str | None


class PoolSetup(msgspec.Struct):
    """The first message to a process: what to import ahead, and when to replace the process."""

    path: list[str]
    homes: list[ModuleLocation]
    runs: int
    memory: int
    env: dict[str, str] = {}
    """The rest of its environment. Sent here, because other processes can read the environment of a start."""
    log_level: int = 20
    """Records of this level or above go to the logs of the runs."""
    withheld: dict[str, str] = {}
    """The part of the environment that is kept from the children of functions."""
    farewell_s: float = 0.0
    """How long the process may take to end by itself: an app with a lifespan has something to close."""


class RunRequest(msgspec.Struct):
    """A run to execute."""

    home: ModuleLocation
    claim: Claim
    deadline: int | None
    soft_deadline: int | None
    now: int
    """The time of the worker, by the clock of the deadlines."""


class PoolMessage(msgspec.Struct, omit_defaults=True):
    """A message of a process: that it is ready, output and progress of its run, and the outcome."""

    ready: bool = False
    log: str | None = None
    progress: float | None = None
    note: str = ""
    outcome: Outcome | None = None
    quiet: bool = False
    """Whether its pipes are empty, so that the worker need not read them."""
    spent: bool = False
    """Whether the process must be replaced: it has served long enough, or something of the run remains in it."""
