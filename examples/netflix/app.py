"""An encoding pipeline: one upload makes four encodings, in order by video, each accepted once.

Settings: `MAINSPRING_STORE`, `MAINSPRING_BROKER` (`kafka://…?names=encoding-jobs&bands=1-10&group=encoding-workers`),
`DATABASE_URL`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from examples.netflix import encoder
from mainspring import Mainspring, Retry, RunHandle

PRIORITIES = {"4K": 1, "1080p": 2, "720p": 3, "480p": 4}
FIRST_RETRY = os.environ.get("ENCODING_RETRY", "1m")

app = Mainspring(name="netflix")


@app.lifespan
async def database() -> AsyncIterator[Any]:
    """The connection pool of each worker."""
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=10) as pool:
        yield pool


@app.task(timeout="1h", retry=Retry(3, delay=FIRST_RETRY, factor=2), alert="page_operator")
async def encode(video: str, url: str, resolution: str) -> str:
    """Encode one resolution. The store lets one worker at a time claim the run; the output table accepts one result."""
    started = await app.state.fetchval(
        "INSERT INTO netflix.encodes (video, resolution, process) VALUES ($1, $2, $3) RETURNING id",
        video, resolution, os.getpid(),
    )  # fmt: skip
    output = await encoder.encode(url, resolution)
    # Shielded: a finished encoding has cost too much to be dropped by a cancellation. The table judges who was first.
    await asyncio.shield(_offer(started, video, resolution, output))
    return output


async def _offer(started: int, video: str, resolution: str, output: str) -> None:
    """Compare-and-set: the first output of a resolution is accepted, and one that comes later changes nothing."""
    await app.state.execute(
        "WITH accepted AS (INSERT INTO netflix.outputs (video, resolution, url) VALUES ($2, $3, $4)"
        " ON CONFLICT DO NOTHING RETURNING true)"
        " UPDATE netflix.encodes SET ended_at = clock_timestamp(), accepted = EXISTS (TABLE accepted) WHERE id = $1",
        started, video, resolution, output,
    )  # fmt: skip


@app.task
async def page_operator(failure: dict[str, Any]) -> None:
    """Tell the operator on call about an encoding that failed for good."""
    await app.state.execute(
        "INSERT INTO netflix.pages VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        failure["run_id"], failure["task"], failure["attempts"],
    )  # fmt: skip


async def create_encodings(video: str, url: str) -> list[RunHandle[str]]:
    """One video, four runs. The video is the key, so they run in order; a repeated upload makes no further run."""
    return [
        await encode.options(key=video, priority=priority, idempotency_key=f"{video}/{resolution}").submit(
            video, url, resolution
        )
        for resolution, priority in PRIORITIES.items()
    ]
