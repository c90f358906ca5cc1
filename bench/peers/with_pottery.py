"""Pottery's Redlock: `python -m bench.peers with_pottery locks PARAMS`.

Its settings: the asynchronous lock, held for 30 s at most, hiredis.
"""

from __future__ import annotations

import asyncio
import time

from pottery import AIORedlock
from redis.asyncio import Redis

from bench.harness.script import Answer, Measure, Params


async def _count(masters: list[Redis], key: str, seconds: float) -> float:
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        async with AIORedlock(key=key, masters=masters, auto_release_time=30):
            done += 1
    return done / (time.perf_counter() - began)


async def _locks(params: Params) -> Answer:
    """Acquired and released a second: by one, and by this many that want the same."""
    masters = [Redis.from_url(url) for url in params["servers"]]
    await _count(masters, "warm", 0.3)
    alone = await _count(masters, "alone", params["seconds"])
    counts = (_count(masters, "wanted", params["seconds"]) for _ in range(params["holders"]))
    together = sum(await asyncio.gather(*counts))
    for master in masters:
        await master.aclose()
    return {"alone": alone, "together": together}


MEASURES: dict[str, Measure] = {"locks": lambda params: asyncio.run(_locks(params))}
