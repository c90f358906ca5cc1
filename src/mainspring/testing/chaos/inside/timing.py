"""The store's time in a process whose own wall clock may lie: the histories of all processes are on one clock."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND, Instant

_SAMPLES: Final = 30
_QUESTION: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
FAKETIME: Final = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
"""The library that shows a process another wall clock; None where it is not installed."""


class StoreTime(SystemClock):
    """The store's clock as monotonic time since an epoch, which all processes of one host share."""

    def __init__(self, epoch: Instant) -> None:
        self._epoch = epoch

    def now(self) -> Instant:
        return self._epoch + round(self.monotonic() * SECOND)


async def measure_epoch(url: str) -> Instant:
    """What the server's clock showed when monotonic time began: by the quickest of several answers."""
    clock = SystemClock()
    connection = await import_module("asyncpg").connect(url)  # An extra, which the embedded store does without.
    try:
        samples = []
        for _ in range(_SAMPLES):
            sent_at = clock.monotonic()
            server: Instant = await connection.fetchval(_QUESTION)
            heard_at = clock.monotonic()
            samples.append((heard_at - sent_at, server - round((sent_at + heard_at) / 2 * SECOND)))
    finally:
        with suppress(OSError, asyncio.TimeoutError):
            await connection.close(timeout=1)
    return min(samples)[1]


def live_skewed() -> None:
    """To be called in a process that `skewed` may have been done to: its children see the true time; and it can sleep,
    which the library breaks (it takes the end of a sleep, a monotonic time, for a wall clock's)."""
    if FAKETIME is not None and os.environ.get("LD_PRELOAD") == str(FAKETIME):
        del os.environ["LD_PRELOAD"]
        vars(time)["sleep"] = _sleep


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def skewed(seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is so far ahead; timers stay as they are."""
    if FAKETIME is None or seconds == 0:
        return {}
    return {"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"{seconds:+d}s", "DONT_FAKE_MONOTONIC": "1"}
