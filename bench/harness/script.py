"""What every measured program shares: it reads its measure as JSON, is bounded in time, and answers as JSON."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

Params = dict[str, Any]
Answer = dict[str, Any]
Measure = Callable[[Params], Answer]

LOOK_S = 0.002
"""How often a program looks whether its work is done."""


def serve(measures: Mapping[str, Measure]) -> None:
    """Run the measure that the command line names, and print its answer as the last line."""
    name, params = sys.argv[1], json.loads(sys.argv[2])
    # The process that started this program may be gone, and nothing may be left behind.
    signal.alarm(int(params["limit_s"]))
    answer = json.dumps(measures[name](params))
    with open(sys.stdout.fileno(), "w", closefd=False) as whole:
        # A stdout that is not buffered (PYTHONUNBUFFERED) drops what a pipe did not take at the first go.
        print(answer, file=whole)


def stay_until_told() -> None:
    """Say that everything is in place, and wait for the end of stdin: the watching process closes it, or dies."""
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.read()


def rate_of(call: Callable[[], object], seconds: float) -> float:
    """How often a second something can be called, one call after another."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - began)


async def rate_of_async(call: Callable[[], Awaitable[object]], seconds: float) -> float:
    """The same on an event loop."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        await call()
        count += 1
    return count / (time.perf_counter() - began)


def pace(per_second: int, seconds: float) -> Iterator[float]:
    """How long to sleep before each of the starts that are evenly spread over this time; lateness does not add up."""
    began = time.perf_counter()
    for number in range(int(per_second * seconds)):
        yield max(began + number / per_second - time.perf_counter(), 0.0)


def wait(done: Callable[[], bool], patience_s: float) -> bool:
    """Wait for a condition; whether it came true in time."""
    ends_at = time.perf_counter() + patience_s
    while not done():
        if time.perf_counter() > ends_at:
            return False
        time.sleep(LOOK_S)
    return True


async def wait_async(done: Callable[[], bool], patience_s: float) -> bool:
    """The same on an event loop."""
    ends_at = time.perf_counter() + patience_s
    while not done():
        if time.perf_counter() > ends_at:
            return False
        await asyncio.sleep(LOOK_S)
    return True


def check_all_ran(ran: int, expected: int) -> None:
    """A rate of work that was lost or doubled says nothing."""
    if ran != expected:
        raise SystemExit(f"void: {ran} of {expected} ran")


def first_boundary(period_s: float, notice_s: float) -> float:
    """The first instant, in seconds since the epoch, that is a multiple of the period and not too soon."""
    return (time.time() + notice_s) // period_s * period_s + period_s


def lateness_ms(now: float, period_s: float) -> float:
    """How late something is that was due on the last boundary; a little early counts as early, not as a period late."""
    slack_s = 0.05
    return (now - (now + slack_s) // period_s * period_s) * 1000
