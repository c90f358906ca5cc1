"""Memory that all processes of a measure share: which runs ran, how often, and when they began.

Standard library only, since it is used in the peers' environments too. A mark costs about 0.2 µs, far less than
anything that is measured; two processes that mark the same run at the same instant could count one too few, which
would have to happen to a run that was doubled already.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

VARIABLE = "BENCH_SLATE"
PLACE = 9
"""Bytes of a run: when it began (8), how often it ran (1)."""
HEAD = 8
"""Bytes before the first: when work began."""


class Slate:
    """The runs of a measure are numbered from 0."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.size = (len(self._memory) - HEAD) // PLACE
        self._head = memoryview(self._memory)[:HEAD].cast("d")
        self.times = memoryview(self._memory)[HEAD : HEAD + 8 * self.size].cast("d")
        self.counts = memoryview(self._memory)[HEAD + 8 * self.size :]

    @classmethod
    def create(cls, path: Path, size: int) -> Slate:
        """A clean one for this many runs."""
        path.write_bytes(bytes(HEAD + PLACE * size))
        return cls(path)

    @classmethod
    def given(cls) -> Slate:
        """The one that the environment names."""
        return cls(Path(os.environ[VARIABLE]))

    def mark(self, number: int) -> None:
        """A run begins. CLOCK_MONOTONIC is the machine's: what one process reads, another can compare."""
        self.times[number] = time.monotonic()
        self.counts[number] += 1

    def clear(self) -> None:
        """As new."""
        self._memory[:] = bytes(len(self._memory))

    def ran(self, first: int = 0, count: int | None = None) -> int:
        """How many of these runs have begun."""
        part = self.counts[first : self.size if count is None else first + count]
        return len(part) - bytes(part).count(0)

    def doubled(self) -> int:
        """How many ran more than once."""
        return self.size - bytes(self.counts).count(0) - bytes(self.counts).count(1)

    def begin(self) -> None:
        """Work begins now: for those that do much of it before they start the first run."""
        self._head[0] = time.monotonic()

    def began_at(self) -> float:
        """When work began: so far as is known, with the first run."""
        return self._head[0] or min(began for began in self.times if began)
