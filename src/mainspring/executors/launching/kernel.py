"""What the standard library does not offer of the kernel: Linux only, nothing elsewhere."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVILEGES = 38
_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True) if _LINUX else None


def _prctl(option: int, value: int) -> None:
    if _libc is not None and _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt_orphans() -> None:
    """Whoever loses its parent among this process's descendants becomes its child: nobody gets away by `setsid`."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """If the parent is killed, so is this process."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Take that back."""
    _prctl(_SET_DEATH_SIGNAL, 0)


def gain_no_privileges() -> None:
    """From now on no program that is executed can gain any."""
    _prctl(_SET_NO_NEW_PRIVILEGES, 1)


def watch_process(pid: int) -> int | None:
    """A file that can be read once the process has ended; None where there is no such thing."""
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None
