"""An event loop in virtual time: nothing waits, time jumps to the next timer, and nothing from outside can get in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Stuck(RuntimeError):
    """All tasks wait, and no timer is left: a deadlock."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in a fixed order: by virtual time, then by when they were scheduled.

    Threads and sockets are refused: whatever needs them would make two runs of one seed differ.
    """

    def __init__(self) -> None:
        super().__init__()
        self._virtual_s = 0.0

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_s

    def _process_events(self, event_list: list[Any]) -> None:
        return None

    def _write_to_self(self) -> None:
        return None

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Refused."""
        raise RuntimeError("threads do not exist in virtual time: make the task async")
