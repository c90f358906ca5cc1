"""System calls that the standard library does not offer. On Linux only; elsewhere they do nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

_SET_DEATH_SIGNAL = 1
_SET_DUMPABLE = 4
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVILEGES = 38
_NEW_MOUNTS, _NEW_IPC = 0x00020000, 0x08000000
_MOUNT_NO_SUID, _MOUNT_NO_DEVICES, _MOUNT_NO_EXEC = 2, 4, 8
_MOUNT_BIND, _MOUNT_ALL_BELOW, _MOUNT_FOLLOWER = 4096, 16384, 1 << 19
_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True) if _LINUX else None


def _check(answer: int, what: str = "") -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what or None)


def _prctl(option: int, value: int) -> None:
    if _libc is not None:
        _check(_libc.prctl(option, value, 0, 0, 0))


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants: none escapes by `setsid` or a double fork."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Die when the parent dies."""
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undo `die_with_parent`."""
    _prctl(_SET_DEATH_SIGNAL, 0)


def gain_no_privileges() -> None:
    """Let no program that is executed from now on gain privileges, as by set-user-id."""
    _prctl(_SET_NO_NEW_PRIVILEGES, 1)


def hide_memory() -> None:
    """Keep other processes of the same user from reading the memory and the environment of this process, and from
    tracing it. Forks are hidden, too. A program that it executes is not, and has to hide itself."""
    _prctl(_SET_DUMPABLE, 0)


def leave_mounts() -> None:
    """Give this process and its children their own mounts and System V IPC. What is mounted here is visible nowhere
    else, and ends with the last of these processes. What the host unmounts is unmounted here, too. Needs
    CAP_SYS_ADMIN."""
    if _libc is None:
        raise OSError(38, "this system has no mount namespaces")
    _check(_libc.unshare(_NEW_MOUNTS | _NEW_IPC))
    _check(_libc.mount(None, b"/", None, _MOUNT_ALL_BELOW | _MOUNT_FOLLOWER, None), "/")


def mount_memory(place: str, size: int, user: int, group: int) -> None:
    """Mount an empty folder in memory, for this user alone, of at most `size` bytes."""
    options = f"size={size},mode=700,uid={user},gid={group},nr_inodes={max(size // 4096, 1024)}"
    _mount("tmpfs", place, "tmpfs", _MOUNT_NO_SUID | _MOUNT_NO_DEVICES, options)


def mount_processes(place: str) -> None:
    """Mount a view of /proc without the processes of other users."""
    _mount("proc", place, "proc", _MOUNT_NO_SUID | _MOUNT_NO_DEVICES | _MOUNT_NO_EXEC, "hidepid=2")


def mount_again(file: int, place: str) -> None:
    """Show the folder of a descriptor at another place, too."""
    _mount(f"/proc/self/fd/{file}", place, None, _MOUNT_BIND | _MOUNT_ALL_BELOW, None)


def _mount(source: str, place: str, kind: str | None, flags: int, options: str | None) -> None:
    assert _libc is not None, "leave_mounts has succeeded before"
    words = [None if word is None else word.encode() for word in (source, place, kind, options)]
    _check(_libc.mount(*words[:3], flags, words[3]), place)


def watch_process(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the system has none."""
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None
