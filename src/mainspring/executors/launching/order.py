"""What the worker tells a shim, and what it answers: JSON objects."""

from __future__ import annotations

import struct
from typing import TypedDict

LENGTH = struct.Struct("!I")
"""An order comes after its length; requests and answers are lines."""


class Identity(TypedDict):
    """Who a program runs as."""

    uid: int
    gid: int
    groups: list[int]


class Caps(TypedDict, total=False):
    """What a control group limits."""

    memory: int
    processes: int
    cpu: int
    """Microseconds of processor time that all members may use together."""


class Launch(TypedDict, total=False):
    """A program to run. Its open files 0, 1, 2 and so on are those that come with the order."""

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    identity: Identity | None
    users: list[int]
    """The first and the last of the user ids of which the program gets one that no other run has; instead of an
    identity."""
    private: int
    """If above zero: its temporary folders are its own, in memory, have at most so many bytes, and go when it ends."""
    shown: list[str]
    """Folders that it sees as they are, though they are within temporary folders."""
    rlimits: dict[str, int]
    """By the name of the constant, as in `RLIMIT_CPU`."""
    caps: Caps
    cgroups: dict[str, str]
    """The folders, by controller, in which to make a control group for the program."""
    locked: bool
    """Whether the program may gain no privileges, as by programs that are set-user-id."""
    tmp: bool
    """Whether it gets a temporary folder of its own, which is `$TMPDIR` and goes when it ends."""
    sandboxed: bool
    """Whether the program is bubblewrap, which must outlive a polite request, or its inmates die of that."""
    result_limit: int
    """If above zero: `$MAINSPRING_RESULT` names a file, and so much of what is written there is answered."""


class ShimRequest(TypedDict, total=False):
    """What the worker may ask while the program runs."""

    end: float
    """Ask the family to end, and kill it after so many seconds."""
    warn: int
    """Send the program, and nobody else, this signal."""


class ShimReply(TypedDict, total=False):
    """A shim's word: first `pid` or `error`, at the end `code`."""

    pid: int
    error: str
    errno: int
    code: int
    """The exit code of the program, negative for a signal."""
    wrapped: bool
    """Whether that is the word of bubblewrap, which makes 128 + N of a signal."""
    out_of_memory: bool
    out_of_processes: bool
    out_of_cpu: bool
    survivors: int
    """How many could not be killed."""
    result: str
    """What was written to the result file."""
