"""Reads a pipe on an event loop without blocking it, with back-pressure."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.5
_CHUNK = 64 * 1024


class PipeReader:
    """Passes what arrives in a pipe to `on_data`, until it ends. While `behind` returns true it does not read: the pipe
    fills up, and the writer waits."""

    def __init__(self, read_end: int, on_data: Callable[[bytes], None], behind: Callable[[], bool]) -> None:
        self._read_end = read_end
        self._on_data = on_data
        self._behind = behind
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._pause_s = SHORTEST_PAUSE_S
        self._closed = False
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(read_end, False)
        self._loop.add_reader(read_end, self._read)

    def drain(self) -> None:
        """Read all that is there now."""
        while not self._closed and self._take():
            pass

    def _take(self) -> bool:
        try:
            chunk = os.read(self._read_end, _CHUNK)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            chunk = b""
        if chunk:
            self._on_data(chunk)
        else:
            self.close()
        return bool(chunk)

    def _read(self) -> None:
        if self._take() and not self._closed and self._behind():
            self._loop.remove_reader(self._read_end)
            self._wait()

    def _wait(self) -> None:
        self._later = self._loop.call_later(self._pause_s, self._look_again)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _look_again(self) -> None:
        self._later = None
        if self._behind():
            self._wait()
        else:
            self._pause_s = SHORTEST_PAUSE_S
            self._loop.add_reader(self._read_end, self._read)

    def close(self) -> None:
        """Stop reading."""
        if self._closed:
            return
        self._closed = True
        if self._later is not None:
            self._later.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
        if not self.ended.done():
            with suppress(RuntimeError):  # The loop has ended.
                self.ended.set_result(None)
