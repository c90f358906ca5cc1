"""What a worker and a process for functions say to each other: JSON lines; nothing is pickled."""

from __future__ import annotations

import msgspec

from mainspring.core.model import Claim
from mainspring.executor import Outcome

CHANNEL = 3
"""The number of the open file on which a process talks with the worker."""


class ModuleLocation(msgspec.Struct, frozen=True):
    """The module that a function is in."""

    module: str
    file: str | None


class PoolSetup(msgspec.Struct):
    """The first word to a process: what it should import before it is needed, and when it has served long enough."""

    path: list[str]
    homes: list[ModuleLocation]
    runs: int
    memory: int
    env: dict[str, str] = {}
    """The rest of its environment: given here, since what a process is started with can be read by others."""
    log_level: int = 20
    """What functions log at this level or above is in the logs of their runs."""
    withheld: dict[str, str] = {}
    """The part of it that is kept from what functions start."""
    farewell_s: float = 0.0
    """How long the process may take to end by itself: an app with a lifespan has something to close."""


class RunRequest(msgspec.Struct):
    """A run to execute."""

    home: ModuleLocation
    claim: Claim
    deadline: int | None
    soft_deadline: int | None
    now: int
    """By the clock of the deadlines."""


class PoolMessage(msgspec.Struct, omit_defaults=True):
    """What a process tells: that it is ready, what its run says, and how it ended."""

    ready: bool = False
    log: str | None = None
    progress: float | None = None
    note: str = ""
    outcome: Outcome | None = None
    quiet: bool = False
    """Whether nothing of what it wrote waits to be read: then nobody has to look."""
    spent: bool = False
    """Whether the process should be replaced: it has served long enough, or something of the run remains in it."""
