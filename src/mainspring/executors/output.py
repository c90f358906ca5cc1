"""What a program writes, as lines of its run: live at first, and bounded however much it is."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from mainspring.core.instants import Instant
from mainspring.core.isolation import format_size
from mainspring.executor import AttemptContext

LONGEST_LINE = 64 * 1024
"""A longer line of output is cut into pieces."""


class _Chunk(NamedTuple):
    at: Instant
    stream: str
    data: bytes


class Output:
    """Takes chunks. The first half of what it may keep becomes lines at once; of the rest the last half is kept as it
    is, which costs next to nothing however fast it comes, and becomes lines at the end, after a mark that says how much
    was cut."""

    def __init__(self, attempt: AttemptContext, keep: int, most: int | None = None) -> None:
        self._attempt = attempt
        self._half = max(keep // 2, 1)
        self._most = most
        self._rest: dict[str, bytes] = {}
        self._tail: deque[_Chunk] = deque()
        self._tail_size = 0
        self._cut = 0
        self._size = 0
        self.last_line = b""
        """The last line of the standard output that is not empty."""

    @property
    def overflowed(self) -> bool:
        """Whether it was more than it may be at all."""
        return self._most is not None and self._size > self._most

    def take(self, stream: str, data: bytes) -> None:
        """What was just read."""
        room = self._half - self._size if not self._tail else 0
        self._size += len(data)
        if room > 0:
            self._split(stream, data[:room], None)
            data = data[room:]
        if data:
            self._keep(_Chunk(self._attempt.now(), stream, data))

    def _keep(self, chunk: _Chunk) -> None:
        self._tail.append(chunk)
        self._tail_size += len(chunk.data)
        while self._tail_size - len(self._tail[0].data) >= self._half:
            dropped = self._tail.popleft()
            self._tail_size -= len(dropped.data)
            self._cut += len(dropped.data)

    def finish(self) -> None:
        """It is all that there was."""
        if excess := self._tail_size - self._half:
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
        if excess > 0:
            first = self._tail[0]
            self._tail[0] = first._replace(data=first.data[excess:])
            self._cut += excess

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
        if stream == "stdout" and line.strip():
            self.last_line = line
