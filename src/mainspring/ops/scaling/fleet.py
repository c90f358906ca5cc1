"""The worker processes of one fleet on this host: starts them, and finds them again by name in the store.

A worker outlives the process that started it. So the store's rows, not the child processes, say which workers there
are: the name of each has the name of its fleet in it. Child processes only add what no row can say: that a worker is
starting, and that it has just ended.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mainspring.core.model import Worker


class Ended(NamedTuple):
    """A child process that has ended."""

    pid: int
    code: int
    worked: bool
    """Whether the process was ever listed as a worker."""


class Members(NamedTuple):
    """The workers of a fleet now."""

    active: Sequence[Worker]
    draining: Sequence[Worker]
    starting: int
    """Processes that no row lists yet."""

    @property
    def serving(self) -> int:
        """Workers that take work now or soon."""
        return len(self.active) + self.starting

    @property
    def processes(self) -> int:
        """All of them: a worker that drains still takes its memory."""
        return self.serving + len(self.draining)


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    listed: bool = False


class Fleet:
    """The processes of a fleet."""

    def __init__(
        self, name: str, host: str, argv: Sequence[str], environ: Mapping[str, str], log: Path | None = None
    ) -> None:
        """`argv` is the whole command of one worker. Workers append to `log`, or write where this process does."""
        self.name, self.host = name, host
        self._argv, self._environ, self._log = list(argv), dict(environ), log
        self._children: dict[int, _Child] = {}
        self._gone: set[int] = set()
        """Children that have ended. Their rows look alive until they have been silent for a while."""

    def start(self) -> int:
        """Start one more worker; its pid."""
        output = None if self._log is None else self._log.open("ab")
        try:
            # In its own session: Ctrl-C in the terminal, or the end of this process, must not reach its work.
            process = subprocess.Popen(
                self._argv,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            if output is not None:
                output.close()
        self._children[process.pid] = _Child(process)
        self._gone.discard(process.pid)
        return process.pid

    def reap(self) -> list[Ended]:
        """The children that have ended since the last call."""
        ended = []
        for pid, child in list(self._children.items()):
            code = child.process.poll()
            if code is not None:
                del self._children[pid]
                self._gone.add(pid)
                ended.append(Ended(pid, code, child.listed))
        return ended

    def members(self, living: Sequence[Worker]) -> Members:
        """The members of this fleet among the living workers, also those that an earlier autoscaler started."""
        mine = [each for each in living if self._owns(each) and each.pid not in self._gone]
        for each in mine:
            if each.pid in self._children:
                self._children[each.pid].listed = True
        active = [each for each in mine if each.state == "active" and each.drain_requested_at is None]
        draining = [each for each in mine if each not in active]
        return Members(active, draining, sum(not child.listed for child in self._children.values()))

    def _owns(self, worker: Worker) -> bool:
        return worker.host == self.host and worker.id.rpartition(":")[2].startswith(f"{self.name}.")

    def terminate(self, *, unlisted_only: bool) -> None:
        """Send SIGTERM to child processes, which drain then: to all, or to those that the store cannot ask yet."""
        for child in self._children.values():
            if not (unlisted_only and child.listed):
                child.process.terminate()

    @property
    def children(self) -> int:
        """How many child processes have not ended."""
        return len(self._children)


def choose_to_drain(active: Sequence[Worker], count: int) -> list[Worker]:
    """Which workers to drain: those with the fewest runs, and of these the youngest."""
    return sorted(active, key=lambda each: (each.running, -each.started_at, each.id))[:count]
