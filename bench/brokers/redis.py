"""`python -m bench --store postgres --only redis [--peers dramatiq taskiq huey arq celery rq] [--quick]`: Mainspring
with its queue on Redis and its runs on PostgreSQL, beside peers that keep all they have on the same Redis.

One `up` and one `worker`, both at work, as the peers' two processes are. Locks are taken in this process: Mainspring's
`app.lock`, its bare lease, and the lock of redis-py (asyncio), one after another and by 16 that want the same.
Redlock is in `bench.electors.redlock`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis
from redis.asyncio.lock import Lock as RedisLock

from bench.cluster.arena import OURS, take_turns
from bench.cluster.contestants import MAINSPRING, Contestant
from bench.cluster.rows import judge, percentile_row, rate_row
from bench.cluster.stage import Stage, set_stage
from bench.cluster.throughput import BATCH, check_recorded, drain
from bench.electors.redlock import measure_redlock
from bench.harness.figures import Row, Series, percentile, rate, show
from bench.harness.intake import CALLERS
from bench.harness.running import Failed, scratch_folder
from bench.harness.script import Answer
from mainspring import Mainspring
from mainspring.adapter import AdapterContext
from mainspring.broker import Notice
from mainspring.brokers.redis import RedisBroker
from mainspring.core.instants import SECOND
from mainspring.core.model import Worker
from mainspring.leases.redis import RedisLease

if TYPE_CHECKING:
    from bench.cluster.arena import Arena

HOLDERS = 16
WARM_S = 3
CARRIED = 50_000
TAKEN_AT_ONCE = 500
PATIENCE_S = 30.0
FAST, FAST_S = 5_000, 4
"""At this rate it is measured for this long only: what cannot keep up would take minutes to catch up."""
SUBMITTED = 0.9
"""A contestant that submits less than this share of the rate has no figure at it."""
FALLBACK_RATE = 50
HASTY = replace(MAINSPRING, label="Mainspring, hasty")
"""With `durable=false`: then it loses no more and no less than the peers if its server crashes."""


def measure(arena: Arena) -> list[Row]:
    """All of it."""
    measures = (_carry, _drain, _latency, _locks, lambda arena: measure_redlock(arena, HOLDERS), _fallback)
    rows = []
    for each in measures:
        for row in each(arena):
            print(f"  {row.measure}: {row.cells} {row.ratio}", file=sys.stderr)
            rows.append(row)
    return rows


def _everybody(arena: Arena) -> list[Contestant]:
    return [MAINSPRING, *(peer for peer in arena.peers if not peer.on_postgres)]


@contextmanager
def _stage(each: Contestant, arena: Arena, slots: int) -> Iterator[Stage]:
    """Ours has a broker, and an `up` that dispatches in place of one of its two workers."""
    with set_stage(each, arena.servers, arena.folder, slots) as stage:
        if each in (MAINSPRING, HASTY):
            arena.servers.redis_says("FLUSHALL")
            stage.environment["MAINSPRING_BROKER"] = arena.servers.redis
            stage.environment["MAINSPRING_DURABLE"] = str(each is MAINSPRING).lower()
            stage.working = lambda *_: _dispatched(stage)
        yield stage


@contextmanager
def _dispatched(stage: Stage) -> Iterator[None]:
    commands = [stage.command("node", {}), stage.command("work", {})]
    with stage.started(commands) as stage.workers:
        yield


def _carry(arena: Arena) -> list[Row]:
    """What the broker itself does: put in line, and take and acknowledge, in batches."""

    async def carry() -> tuple[float, float]:
        broker, worker = RedisBroker(arena.servers.redis + "?timeout=10s", AdapterContext()), Worker(id="bench")
        notices = [Notice(f"{n:026d}", 0, "default", "default", "default", 5, n) for n in range(CARRIED)]
        began = time.perf_counter()
        await broker.publish(notices)
        put = time.perf_counter()
        subscription = await broker.subscribe(worker, lambda: None)
        while deliveries := await subscription.receive(TAKEN_AT_ONCE):
            await subscription.ack(deliveries)
        taken = time.perf_counter()
        await broker.close()
        return CARRIED / (put - began), CARRIED / (taken - put)

    arena.servers.redis_says("FLUSHALL")
    put, taken = asyncio.run(carry())
    return [
        Row("put in line, in bulk", {OURS: show(put, "/s")}),
        Row("taken and acknowledged", {OURS: show(taken, "/s")}),
    ]


def _drain(arena: Arena) -> list[Row]:
    def work_off(each: Contestant) -> Answer:
        count = each.count // arena.size(1, 4)
        with _stage(each, arena, count) as stage:
            stage.ask("fill", {"count": count, "batch": BATCH})
            stage.settle()
            drained = drain(stage, count)
            check_recorded(stage, count)
            return {"rates": [drained.rate]}

    series = take_turns(_everybody(arena), arena.size(3, 1), "drain by Redis", work_off)
    row = rate_row(f"drain of {MAINSPRING.count // arena.size(1, 4):,} no-op runs, two processes", series)
    label, best = _best(series)
    return [judge(row, series[OURS].figure(rate), best, 3, label) if best else row]


def _best(series: dict[str, Series]) -> tuple[str, float | None]:
    others = {label: own.figure(rate) or 0.0 for label, own in series.items() if label != OURS}
    label = max(others, key=lambda name: others[name], default="")
    return label, others.get(label)


def _latency(arena: Arena) -> list[Row]:
    limits = {0.5: 1.5, 0.99: 3.0}
    seldom = _latency_at(100, 1, arena, [*_everybody(arena), HASTY])
    hasty = seldom.pop(HASTY.label)
    rows = [
        percentile_row("start latency at 100/s, p50 / p99", seldom, limits),
        percentile_row("the same, as durable as they are", seldom | {OURS: hasty}, limits),
    ]
    for per_second in (1_000, FAST):
        series = _latency_at(per_second, CALLERS, arena, _everybody(arena))
        rows.append(percentile_row(f"start latency at {per_second:,}/s, p50 / p99", series, {}))
    return rows


def _latency_at(per_second: int, callers: int, arena: Arena, everybody: Sequence[Contestant]) -> dict[str, Series]:
    seconds = WARM_S + (arena.size(10, 4) if per_second < FAST else FAST_S)
    count, warm = per_second * seconds, per_second * WARM_S
    pace = {"per_second": per_second, "seconds": seconds, "callers": callers}

    def send(each: Contestant) -> Answer:
        with _stage(each, arena, count) as stage, stage.working():
            stage.warm_up(1)
            sent = stage.ask("send", pace)["sent"]
            reached = count / (max(sent) - min(sent))
            if reached < SUBMITTED * per_second:
                raise Failed(f"only {show(reached, '/s')} submitted")
            stage.wait(lambda: stage.slate.ran() == count, PATIENCE_S, "sending was")
            took = [(began - at) * 1000 for began, at in zip(stage.slate.times, sent, strict=True)]
        return {"samples_ms": took[warm:]}

    return take_turns(everybody, arena.size(3, 1), f"latency by Redis, {per_second}/s", send)


Hold = Callable[[], AbstractAsyncContextManager[Any]]


def _locks(arena: Arena) -> list[Row]:
    seconds = arena.size(3, 1)

    async def each() -> dict[str, tuple[float, float]]:
        found = {}
        with scratch_folder(arena.folder) as folder:
            async with _lockers(arena.servers.redis, folder) as lockers:
                for _ in range(2):  # The second time everything is warm.
                    for label, hold in lockers.items():
                        found[label] = (await _alone(hold, seconds), await _contended(hold, seconds))
        return found

    found = asyncio.run(each())
    theirs = found["redis-py"]
    rows = []
    for number, name in enumerate(("lock acquired and released", f"the same, wanted by {HOLDERS} at once")):
        cells = {OURS: show(found["app.lock"][number], "/s"), "bare lease": show(found["lease"][number], "/s")}
        row = Row(
            f"{name}: app.lock {cells[OURS]}, lease {cells['bare lease']}, redis-py {show(theirs[number], '/s')}", cells
        )
        rows.append(judge(row, found["app.lock"][number], theirs[number], 1, "redis-py's Lock"))
    return rows


@asynccontextmanager
async def _lockers(url: str, folder: Path) -> AsyncIterator[dict[str, Hold]]:
    client, lease = Redis.from_url(url), RedisLease(url, AdapterContext())
    app = Mainspring(f"sqlite:///{folder}/locks.db", lease=url)

    @asynccontextmanager
    async def leased() -> AsyncIterator[None]:
        while True:
            hold = await lease.acquire("bench-lease", "bench", 30 * SECOND)
            if hold is not None:
                break
            await asyncio.sleep(0.01)
        yield
        await lease.release(hold)

    yield {
        "app.lock": lambda: app.lock("bench", wait=60),
        "lease": leased,
        "redis-py": lambda: RedisLock(client, "bench-theirs", timeout=30),
    }
    await app.close()
    await lease.close()
    await client.aclose()


async def _alone(hold: Hold, seconds: float) -> float:
    return await _count(hold, seconds)


async def _contended(hold: Hold, seconds: float) -> float:
    return sum(await asyncio.gather(*(_count(hold, seconds) for _ in range(HOLDERS))))


async def _count(hold: Hold, seconds: float) -> float:
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        async with hold():
            done += 1
    return done / (time.perf_counter() - began)


def _fallback(arena: Arena) -> list[Row]:
    """Redis stands still while runs are submitted at a pace: the longest that one of them waits for its start."""
    times, pid = [], int(_info(arena, "process_id"))
    seconds, count = 6, 6 * FALLBACK_RATE
    for _ in range(arena.size(5, 2)):
        with _stage(MAINSPRING, arena, count) as stage, stage.working():
            stage.warm_up(1)
            stopping = threading.Timer(seconds / 2, os.kill, (pid, signal.SIGSTOP))
            stopping.start()
            try:
                sent = stage.ask("send", {"per_second": FALLBACK_RATE, "seconds": seconds})["sent"]
                stage.wait(lambda: stage.slate.ran() == count, PATIENCE_S, "falling back was")
                times.append(max(began - at for began, at in zip(stage.slate.times, sent, strict=True)))
            finally:
                stopping.join()
                os.kill(pid, signal.SIGCONT)
    text = f"{show(percentile(times, 0.5))} / {show(max(times), 's')}"
    row = Row("Redis stands still: the longest wait of a run for its start, median / worst", {OURS: text})
    row.target, row.met = "< 1 s", max(times) < 1.0
    return [row]


def _info(arena: Arena, name: str) -> str:
    for line in arena.servers.redis_says("INFO", "server").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    raise Failed(f"Redis does not report its {name}")
