"""The messages between worker and shim: JSON objects."""

from __future__ import annotations

import struct
from typing import TypedDict

LENGTH = struct.Struct("!I")
"""A launch is preceded by its length; requests and replies are lines."""


class Identity(TypedDict):
    """The user and groups of a program."""

    uid: int
    gid: int
    groups: list[int]


class Caps(TypedDict, total=False):
    """The limits of a control group."""

    memory: int
    processes: int
    cpu: int
    """Microseconds of CPU time that all members may use together."""


class Launch(TypedDict, total=False):
    """A program to run. Its descriptors 0, 1, 2 and so on are the files sent with the message."""

    argv: list[str]
    env: dict[str, str]
    cwd: str | None
    identity: Identity | None
    users: list[int]
    """The first and the last user id of a range, of which the program gets one that no other run has. Replaces the
    identity."""
    private: int
    """If above zero, the program has private temporary folders in memory, of at most this many bytes, until it ends."""
    shown: list[str]
    """Folders within temporary folders that the program sees nevertheless."""
    rlimits: dict[str, int]
    """Limits by the name of the constant, such as `RLIMIT_CPU`."""
    caps: Caps
    cgroups: dict[str, str]
    """The folders, by controller, in which to create a control group for the program."""
    locked: bool
    """Whether the program is kept from gaining privileges, as by set-user-id."""
    tmp: bool
    """Whether the program gets a private `$TMPDIR`, removed when it ends."""
    sandboxed: bool
    """Whether the program is bubblewrap, which must not get SIGTERM: its program would die of that."""
    result_limit: int
    """If above zero, `$MAINSPRING_RESULT` names a file, and this many bytes of it are returned."""


class ShimRequest(TypedDict, total=False):
    """A request of the worker while the program runs."""

    end: float
    """Send SIGTERM to all processes of the program, and SIGKILL after this many seconds."""
    warn: int
    """Send this signal to the program alone."""


class ShimReply(TypedDict, total=False):
    """A reply of the shim: first `pid` or `error`, at the end `code`."""

    pid: int
    error: str
    errno: int
    code: int
    """The exit code of the program, negative for a signal."""
    wrapped: bool
    """Whether the code is bubblewrap's, which turns a signal into 128 + N."""
    out_of_memory: bool
    out_of_processes: bool
    out_of_cpu: bool
    survivors: int
    """How many processes could not be killed."""
    result: str
    """The content of the result file."""
