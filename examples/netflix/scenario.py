"""Uploads become encodings over Kafka. A worker stands still and is overtaken, one is killed in the middle of an
encoding, and one source cannot be decoded.

`python -m examples.netflix.scenario` plays it; `… scale` lets the load decide how many workers there are.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from examples.netflix.app import PRIORITIES
from examples.running import Process, Stage, connected, find_service, new_stage, report, until
from mainspring.testing.checking import Verdict
from mainspring.testing.servers.process import free_port

HERE = Path(__file__).parent
VIDEOS = 8
STALLED = "v-stalled"
BROKEN = "v-broken"
MOST_WORKERS = 3
SCALE = (
    *("scale", "--min", "1", "--max", str(MOST_WORKERS), "--depth-per-worker", "2", "--interval", "200ms"),
    *("--up-window", "0s", "--up-percent", "900", "--down-window", "1s", "--down-workers", "10"),
)
"""The autoscaler, in a hurry: by default it waits for a minute before it grows, and for five before it shrinks."""


class Outcome(NamedTuple):
    """What came of it."""

    verdict: Verdict
    outputs: dict[str, list[str]]
    """The accepted resolutions of each video, in the order in which they were accepted."""
    accepted: Counter[tuple[str, str]]
    """By video and resolution: how many encodings were accepted."""
    refused: set[tuple[str, str]]
    """Videos and resolutions whose second encoding was finished, and refused."""
    unfinished: int
    """Encodings that died with their worker, or were given up by it, of videos that can be decoded."""
    wasted: int
    """Encodings that were made again although the first was finished by a worker that neither stood still nor died."""
    pages: list[int]
    """The attempts of each encoding that the operator was notified of."""
    dead_letters: int
    repeated: bool
    """Whether a repeated upload got the ids of the first."""


def kafka_url() -> str:
    """The topic `encoding-jobs` of the source, under a prefix of its own."""
    names = f"names=encoding-jobs&bands=1-10&group=encoding-workers&prefix=example-{secrets.token_hex(4)}."
    return f"{find_service('kafka')}?{names}"


async def play(folder: Path | None = None) -> Outcome:
    """The whole scenario."""
    settings = {"MAINSPRING_BROKER": kafka_url(), "ENCODING_RETRY": "200ms", "ENCODER_WORK": "300"}
    with report("Netflix: encodings over Kafka") as tell:
        async with new_stage(HERE / "app.py", settings, folder=folder) as stage, connected(stage.store) as ledger:
            return await _play(stage, ledger, tell)


async def _play(stage: Stage, ledger: Any, tell: Callable[[str], None]) -> Outcome:
    port, stall = free_port(), stage.folder / "stall"
    stall.touch()
    stage.start_module("upload", "examples.netflix.upload", str(port))
    stage.start("scheduler", "server", "--port", "0", "--quiet")
    workers = [stage.worker(f"worker-{n}", "--concurrency", "4", ENCODER_STALL=str(stall)) for n in range(2)]
    await stage.workers_ready(2)
    tell("upload API, scheduler and two workers run")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        answers = {STALLED: await upload(client, STALLED)}
        stalled = await _overtake(stage, ledger, workers, stall, tell)
        answers |= {video: await upload(client, video) for video in [BROKEN, *(f"v{n}" for n in range(VIDEOS))]}
        again = await upload(client, "v0")
    tell(f"{len(answers)} uploads became {sum(map(len, answers.values()))} encodings")
    victim = await _find_busy(ledger, stage, workers)
    stage.kill(victim)
    tell(f"{victim.name} was killed in the middle of an encoding")
    await until(lambda: _complete(ledger, VIDEOS + 1), "output of all resolutions", stage.logs)
    await until(lambda: ledger.fetchval("SELECT count(*) = 4 FROM netflix.pages"), "page for each failure", stage.logs)
    tell("all resolutions are there, and the operator knows what failed")
    await stage.drained()
    return await _outcome(stage, ledger, (stalled, victim), repeated=again == answers["v0"])


async def _overtake(
    stage: Stage, ledger: Any, workers: list[Process], stall: Path, tell: Callable[[str], None]
) -> Process:
    """Let a worker stand still between its encoding and its answer, until another has encoded the same."""
    first = "SELECT process FROM netflix.encodes WHERE video = $1 ORDER BY id LIMIT 1"
    await until(lambda: asyncio.to_thread(lambda: not stall.exists()), "encoder that stands still", stage.logs)
    pid = await ledger.fetchval(first, STALLED)
    stalled = next(worker for worker in workers if worker.pid == pid)
    stage.note_pause(stalled)
    tell(f"{stalled.name} stands still with a finished encoding")
    accepted = "SELECT count(*) > 0 FROM netflix.outputs WHERE video = $1"
    await until(lambda: ledger.fetchval(accepted, STALLED), "encoding by the other worker", stage.logs)
    tell("the other worker has encoded the same, and its output is accepted")
    stalled.send(signal.SIGCONT)
    ended = "SELECT accepted IS NOT NULL FROM netflix.encodes WHERE video = $1 ORDER BY id LIMIT 1"
    await until(lambda: ledger.fetchval(ended, STALLED), "output of the stalled worker", stage.logs)
    tell(f"{stalled.name} goes on, and offers its output")
    return stalled


class Scaled(NamedTuple):
    """What came of a load that decided about the workers."""

    most: int
    """Workers at once."""
    left: int
    """Workers after the load."""
    outputs: dict[str, list[str]]
    """See `Outcome`."""


async def play_scaled(folder: Path | None = None) -> Scaled:
    """Uploads wait for one worker; `mainspring scale` starts others, and drains them when all is encoded."""
    settings = {"MAINSPRING_BROKER": kafka_url(), "ENCODER_WORK": "500"}
    with report(f"Netflix: one to {MOST_WORKERS} workers, as the load asks") as tell:
        staged = new_stage(HERE / "app.py", settings, folder=folder, recorded=False)
        async with staged as stage, connected(stage.store) as ledger:
            return await _play_scaled(stage, ledger, tell)


async def _play_scaled(stage: Stage, ledger: Any, tell: Callable[[str], None]) -> Scaled:
    port = free_port()
    stage.start_module("upload", "examples.netflix.upload", str(port))
    stage.start("scheduler", "server", "--port", "0", "--quiet")
    worker = ("worker", str(stage.app_file), "--concurrency", "1")
    stage.start_module("scale", "mainspring", *SCALE, "--", *worker)
    await stage.workers_ready(1)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        for number in range(VIDEOS):
            await upload(client, f"v{number}")
    tell(f"{VIDEOS} uploads wait for one worker")
    most = await until(lambda: _workers(stage, MOST_WORKERS, MOST_WORKERS), "more workers", stage.logs)
    tell(f"{most} workers encode")
    await until(lambda: _complete(ledger, VIDEOS), "output of all resolutions", stage.logs)
    left = await until(lambda: _workers(stage, 1, 1), "end of what is not needed", stage.logs)
    tell(f"all resolutions are there, and {left} worker is left")
    await stage.stop()
    return Scaled(most, left, await _outputs(ledger))


async def _workers(stage: Stage, least: int, most: int) -> int:
    """How many workers there are, if that is as expected; 0 otherwise."""
    store = await stage.client.open()
    count = sum(worker.state == "active" for worker in await store.list_workers("default"))
    return count if least <= count <= most else 0


async def upload(client: httpx.AsyncClient, video: str) -> list[str]:
    """Send a video to the upload API, once it answers; the ids of its runs."""
    body = {"video": video, "url": f"s3://raw/{video}"}

    async def served() -> httpx.Response | None:
        try:
            return await client.post("/videos", json=body)
        except httpx.TransportError:
            return None  # Repeated: an upload that was accepted meanwhile makes no further run.

    response = await until(served, "answer of the upload API")
    assert response is not None
    response.raise_for_status()
    runs: list[str] = response.json()["runs"]
    return runs


async def _find_busy(ledger: Any, stage: Stage, workers: list[Process]) -> Process:
    busy = "SELECT process FROM netflix.encodes WHERE ended_at IS NULL AND video <> $1 ORDER BY id DESC LIMIT 1"
    pid = await until(lambda: ledger.fetchval(busy, BROKEN), "encoding that runs", stage.logs)
    return next(worker for worker in workers if worker.pid == pid)


async def _complete(ledger: Any, videos: int) -> bool:
    return bool(await ledger.fetchval("SELECT count(*) = $1 FROM netflix.outputs", videos * len(PRIORITIES)))


async def _outputs(ledger: Any) -> dict[str, list[str]]:
    outputs: dict[str, list[str]] = {}
    for row in await ledger.fetch("SELECT video, resolution FROM netflix.outputs ORDER BY at"):
        outputs.setdefault(row["video"], []).append(row["resolution"])
    return outputs


async def _outcome(stage: Stage, ledger: Any, broken: tuple[Process, ...], *, repeated: bool) -> Outcome:
    encodes = await ledger.fetch("SELECT video, resolution, accepted FROM netflix.encodes WHERE video <> $1", BROKEN)
    wasted = (
        "SELECT count(*) FROM netflix.encodes a JOIN netflix.encodes b USING (video, resolution)"
        " WHERE a.id < b.id AND a.ended_at IS NOT NULL AND a.process <> ALL($2) AND video <> $1"
    )
    failed = [run async for run in stage.client.runs.list(states=["failed"])]
    return Outcome(
        verdict=await stage.judge(),
        outputs=await _outputs(ledger),
        accepted=Counter((row["video"], row["resolution"]) for row in encodes if row["accepted"]),
        refused={(row["video"], row["resolution"]) for row in encodes if row["accepted"] is False},
        unfinished=sum(row["accepted"] is None for row in encodes),
        wasted=await ledger.fetchval(wasted, BROKEN, [process.pid for process in broken]),
        pages=[row["attempts"] for row in await ledger.fetch("SELECT attempts FROM netflix.pages")],
        dead_letters=len(failed),
        repeated=repeated,
    )


async def _main() -> None:
    if "scale" in sys.argv[1:]:
        print(await play_scaled())
        return
    outcome = await play()
    print(
        f"{outcome.verdict}\n{outcome.accepted.total()} encodings accepted, {len(outcome.refused)} refused,"
        f" {outcome.unfinished} unfinished, {outcome.wasted} wasted; dead letters: {outcome.dead_letters}"
    )


if __name__ == "__main__":
    asyncio.run(_main())
