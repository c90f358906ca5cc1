"""Finds, signals and waits for all processes that descend from this one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

PATIENCE_S = 5.0
"""How long to wait for killed processes: one that reads from a lost disk cannot die."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02
_MOMENT_S = 0.008
"""How long to wait for killed children before looking for further descendants."""


def parents() -> dict[int, int]:
    """The parent of every visible process."""
    found = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def descendants(root: int) -> list[int]:
    """All descendants of a process, the oldest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def children() -> list[int]:
    """The children of this process that the system lists: some may be missing while others end."""
    with suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
        return [int(pid) for pid in file.read().split()]
    return []


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to each process that still exists and is ours."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reap(on_end: Callable[[int, int], None]) -> bool:
    """Reap all children that have ended; returns whether any are left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        on_end(pid, status)


def kill_children(on_end: Callable[[int, int], None], rest: Callable[[float], None]) -> bool:
    """Kill the children of this process; returns whether any are left. Nearly always that is enough: the first process
    of a sandbox takes all others along. Looking at all processes of a host would take milliseconds. `rest` waits for a
    time, or until a child ends."""
    if not reap(on_end):
        return False
    send(children(), signal.SIGKILL)
    deadline = time.monotonic() + _MOMENT_S
    while reap(on_end):
        if (left_s := deadline - time.monotonic()) <= 0:
            return True
        rest(left_s)
    return False


def kill_all(on_end: Callable[[int, int], None], spared: Callable[[], set[int]] = set) -> int:
    """Kill all descendants except those spared, repeatedly, because they may fork meanwhile; returns how many did not
    die."""
    deadline, pause = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
    while reap(on_end):
        doomed = [pid for pid in descendants(os.getpid()) if pid not in spared()]
        if not doomed or time.monotonic() > deadline:
            return len(doomed)
        send(doomed, signal.SIGKILL)
        if not reap(on_end):
            return 0
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return 0
