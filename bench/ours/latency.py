"""From calling `submit()` to the first line of the function, while the worker is otherwise idle."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from bench.harness.script import Answer, Params, check_all_ran, pace, wait_async
from bench.ours.opening import measure, new_app, path_of, running
from bench.ours.submit import Bare
from mainspring import Mainspring, Task

PATIENCE_S = 5.0
ROW = 200
"""Characters of a bare row: about what a run takes."""


def _probe(app: Mainspring, samples: list[float]) -> Task[..., Any]:
    # CLOCK_MONOTONIC is the machine's: what one process reads can be compared with what another reads.
    @app.task
    async def probe(sent_at: float) -> None:
        samples.append((time.monotonic() - sent_at) * 1000)

    return probe


async def _send(probe: Task[..., Any], params: Params) -> None:
    for pause in pace(params["per_second"], params["seconds"]):
        await asyncio.sleep(pause)
        await probe.submit(sent_at=time.monotonic())


async def _collect(samples: list[float], params: Params) -> Answer:
    expected = int(params["per_second"] * params["seconds"])
    await wait_async(lambda: len(samples) >= expected, PATIENCE_S)
    check_all_ran(len(samples), expected)
    return {"samples_ms": samples, "expected": expected}


@measure
async def within(params: Params) -> Answer:
    """Submitted in the process that works."""
    app, samples = new_app(params), list[float]()
    probe = _probe(app, samples)
    async with app, running(app):
        await probe.submit(sent_at=0.0)
        await wait_async(lambda: bool(samples), PATIENCE_S)
        samples.clear()
        await _send(probe, params)
        return await _collect(samples, params)


@measure
async def floor(params: Params) -> Answer:
    """What the disk alone takes at this pace: one bare row, committed and synced, on a file as new as that of `within`.

    A disk that is left alone between commits is slower to sync than one that is kept busy.
    """
    bare, samples = Bare(f"{path_of(params)}.bare", "x" * ROW, durable=True, warm=0), list[float]()
    for pause in pace(params["per_second"], params["seconds"]):
        await asyncio.sleep(pause)
        began = time.perf_counter()
        bare.insert()
        samples.append((time.perf_counter() - began) * 1000)
    bare.close()
    return {"samples_ms": samples, "expected": len(samples)}


@measure
async def across(params: Params) -> Answer:
    """Submitted by another process, which the worker learns of by looking at the file."""
    app, samples = new_app(params), list[float]()
    _probe(app, samples)
    async with app, running(app):
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.ours", "send", json.dumps(params), stdout=asyncio.subprocess.DEVNULL
        )
        await asyncio.wait_for(sender.wait(), params["seconds"] + PATIENCE_S)
        return await _collect(samples, params)


@measure
async def send(params: Params) -> Answer:
    """The other process of `across`."""
    app = new_app(params)
    async with app:
        await _send(_probe(app, []), params)
    return {}
