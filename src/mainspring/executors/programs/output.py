"""Turns the output of a program into lines of its run: live at first, and bounded in total."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from mainspring.core.instants import Instant
from mainspring.core.tasks.isolation import format_size
from mainspring.executor import AttemptContext

LONGEST_LINE = 64 * 1024
"""A longer line of output is split."""
LINE_COST = 32
"""The cost of a line besides its text: half a million lines of one letter cost the store more than a megabyte."""


class _Chunk(NamedTuple):
    at: Instant
    stream: str
    data: bytes
    cost: int


def _cost(data: bytes) -> int:
    return len(data) + LINE_COST * data.count(b"\n")


def _part(data: bytes, cost: int, wanted: int) -> int:
    """How many bytes of the data cost about `wanted`."""
    return len(data) if wanted >= cost else len(data) * wanted // cost


class Output:
    """Takes chunks. The first half of what may be kept becomes lines at once. Of the rest, the last half is kept as it
    is, which is cheap, and becomes lines at the end, after a line that says how much was cut."""

    def __init__(self, attempt: AttemptContext, keep: int, most: int | None = None) -> None:
        self._attempt = attempt
        self._half = max(keep // 2, 1)
        self._most = most
        self._rest: dict[str, bytes] = {}
        self._tail: deque[_Chunk] = deque()
        self._tail_cost = 0
        self._head_cost = 0
        self._cut = 0
        self._size = 0
        self.last_lines: dict[str, bytes] = {}
        """The last non-empty line of each stream."""

    @property
    def overflowed(self) -> bool:
        """Whether the output exceeds the limit that ends the program."""
        return self._most is not None and self._size > self._most

    def take(self, stream: str, data: bytes) -> None:
        """Add what was just read."""
        self._size += len(data)
        cost = _cost(data)
        if not self._tail and self._head_cost < self._half:
            end = _part(data, cost, self._half - self._head_cost)
            self._head_cost += cost
            self._split(stream, data[:end], None)
            data = data[end:]
            cost = _cost(data)
        if data:
            self._keep(_Chunk(self._attempt.now(), stream, data, cost))

    def _keep(self, chunk: _Chunk) -> None:
        self._tail.append(chunk)
        self._tail_cost += chunk.cost
        while self._tail_cost - self._tail[0].cost >= self._half:
            dropped = self._tail.popleft()
            self._tail_cost -= dropped.cost
            self._cut += len(dropped.data)

    def finish(self) -> None:
        """The output has ended: write the rest."""
        if (excess := self._tail_cost - self._half) > 0:
            self._trim(excess)
        if self._cut:
            self._end_lines()
            text = f"... {format_size(self._cut)} of output cut ..."
            self._attempt.write("log", text, self._tail[0].at if self._tail else None)
        for chunk in self._tail:
            self._split(chunk.stream, chunk.data, chunk.at)
        self._end_lines()
        self._tail.clear()

    def _trim(self, excess: int) -> None:
        first = self._tail[0]
        start = _part(first.data, first.cost, excess)
        self._tail[0] = first._replace(data=first.data[start:])
        self._cut += start

    def _split(self, stream: str, data: bytes, at: Instant | None) -> None:
        *lines, rest = (self._rest.get(stream, b"") + data).split(b"\n")
        for line in lines:
            self._line(stream, line, at)
        while len(rest) > LONGEST_LINE:
            self._line(stream, rest[:LONGEST_LINE], at)
            rest = rest[LONGEST_LINE:]
        self._rest[stream] = rest

    def _end_lines(self) -> None:
        for stream, rest in self._rest.items():
            if rest:
                self._line(stream, rest, None)
        self._rest.clear()

    def _line(self, stream: str, line: bytes, at: Instant | None) -> None:
        for start in range(0, len(line), LONGEST_LINE) or (0,):
            text = line[start : start + LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")
            self._attempt.write(stream, text, at)
        if line.strip():
            self.last_lines[stream] = line
