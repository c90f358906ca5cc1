"""The control group of one program, version 1 or 2: limits, membership, what happened in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress

from mainspring.executors.launching.order import Caps

UNIFIED = "unified"
"""The key of the folder of version 2."""
GROUP_PREFIX = "mainspring-"
"""The prefix of the names of groups."""
CPU = "cpuacct"
"""The controller of version 1 that counts CPU time; version 2 always does."""
_LIMITS = {
    ("memory", 1): (("memory.limit_in_bytes", "memory"), ("memory.memsw.limit_in_bytes", "memory")),
    ("pids", 1): (("pids.max", "processes"),),
    ("unified", 2): (("memory.max", "memory"), ("memory.swap.max", "swap"), ("pids.max", "processes")),
}
_OPTIONAL = ("memory.memsw.limit_in_bytes", "memory.swap.max")
"""Not every kernel counts swap."""
_REMOVE_S = 1.0


class Group:
    """The groups of one program, one per hierarchy."""

    def __init__(self, name: str, parents: dict[str, str], caps: Caps) -> None:
        self._folders: dict[str, str] = {}
        try:
            for controller, folder in folders_of(name, parents).items():
                os.mkdir(folder)
                self._folders[controller] = folder
                self._limit(controller, folder, caps)
        except OSError:
            self.remove()
            raise

    def _limit(self, controller: str, folder: str, caps: Caps) -> None:
        version = 2 if controller == UNIFIED else 1
        values = {**caps, "swap": 0} if "memory" in caps else {**caps}
        for file, cap in _LIMITS.get((controller, version), ()):
            value = values.get(cap)
            path = os.path.join(folder, file)
            if isinstance(value, int) and not (file in _OPTIONAL and not os.path.exists(path)):
                _write(path, str(value))

    def enter(self, pid: int) -> None:
        """Put a process, and all its later children, into the groups."""
        for folder in self._folders.values():
            _write(os.path.join(folder, "cgroup.procs"), str(pid))

    def members(self) -> list[int]:
        """The processes in any of the groups."""
        found: set[int] = set()
        for folder in self._folders.values():
            with suppress(OSError, ValueError):
                found.update(int(pid) for pid in _read(os.path.join(folder, "cgroup.procs")).split())
        return sorted(found)

    def kill(self) -> None:
        """Kill all members in one step, where the kernel can."""
        for folder in self._folders.values():
            with suppress(OSError):
                _write(os.path.join(folder, "cgroup.kill"), "1")

    @property
    def out_of_memory(self) -> bool:
        """Whether a member was killed for the memory that the group used."""
        return any(
            self._count(controller, "oom_kill", "memory.oom_control", "memory.events") for controller in self._folders
        )

    @property
    def out_of_processes(self) -> bool:
        """Whether a member was refused a new process."""
        return any(self._count(controller, "max", "pids.events") for controller in self._folders)

    def cpu_used(self) -> int | None:
        """Microseconds of CPU time that members have used, including ended ones; None if it is not counted."""
        for controller, folder in self._folders.items():
            with suppress(OSError, ValueError):
                if controller == CPU:
                    return int(_read(os.path.join(folder, "cpuacct.usage"))) // 1000
                if controller == UNIFIED:
                    return self._count(controller, "usage_usec", "cpu.stat")
        return None

    def _count(self, controller: str, word: str, *files: str) -> int:
        for file in files:
            with suppress(OSError):
                for line in _read(os.path.join(self._folders[controller], file)).splitlines():
                    name, _, count = line.partition(" ")
                    if name == word:
                        return int(count)
        return 0

    def remove(self) -> None:
        """Remove the groups."""
        remove_groups(self._folders.values())


def folders_of(name: str, parents: dict[str, str]) -> dict[str, str]:
    """The folders of a group with this name."""
    return {controller: os.path.join(parent, name) for controller, parent in parents.items()}


def remove_groups(folders: Iterable[str]) -> None:
    """Remove control groups. The kernel may take a moment to release members that have just ended."""
    deadline = time.monotonic() + _REMOVE_S
    for folder in folders:
        while True:
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
            else:
                break


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
