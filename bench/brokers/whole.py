"""Whole programs on a broker: Mainspring with its runs on PostgreSQL, and its peers. Two processes of each work.

Mainspring's are one `up` and one `worker`, so that one of them also schedules.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.brokers.contestants import counting, keeps_results
from bench.brokers.servers import BrokerServer
from bench.cluster.arena import Arena
from bench.cluster.contestants import MAINSPRING, Contestant
from bench.cluster.stage import DATABASE, Stage, set_stage
from bench.cluster.throughput import BATCH, check_recorded, drain
from bench.harness.figures import rate
from bench.harness.script import Answer

PER_SECOND = 100
WARM_S = 3
PATIENCE_S = 30.0
FALLBACK_RATE = 50
FALLBACK_S = 6


@contextmanager
def _stage(
    each: Contestant, server: BrokerServer, arena: Arena, slots: int, *, delivered: bool = False
) -> Iterator[Stage]:
    """A queue or topic of its own on the broker; in PostgreSQL an empty database."""
    name = f"bench{secrets.token_hex(3)}"
    if each.module:
        own = {"BENCH_BROKER": server.for_peers(), "BENCH_QUEUE": name}
        if keeps_results(each):
            own["BENCH_RESULTS"] = arena.servers.database(DATABASE)
    else:
        own = {"MAINSPRING_BROKER": server.own(f"{name}-")} | ({"BENCH_DELIVERED": "yes"} if delivered else {})
    with set_stage(each, arena.servers, arena.folder, slots, own) as stage:
        if not each.module:
            stage.working = lambda *_: _dispatched(stage)
        yield stage


@contextmanager
def _dispatched(stage: Stage) -> Iterator[None]:
    with stage.started([stage.command("node", {}), stage.command("work", {})]) as stage.workers:
        yield


def submit(each: Contestant, server: BrokerServer, arena: Arena) -> Answer:
    """Submissions a second, by 32 callers at once."""
    with _stage(each, server, arena, 1) as stage:
        return {"rates": [rate(stage.ask("together", {"seconds": arena.size(3, 1)}))]}


def work_off(each: Contestant, server: BrokerServer, arena: Arena) -> Answer:
    """Runs a second of a backlog of no-op runs, until the last is recorded where it is recorded."""
    count = each.count // arena.size(1, 4)
    with _stage(counting(each, count), server, arena, count) as stage:
        stage.ask("fill", {"count": count, "batch": BATCH})
        stage.settle()
        drained = drain(stage, count)
        check_recorded(stage, count)
        return {"rates": [drained.rate], "cost_us": drained.cost_us}


def start_at_a_pace(each: Contestant, server: BrokerServer, arena: Arena, *, delivered: bool = False) -> Answer:
    """Milliseconds from the call of submit to the first line of the function, at 100 a second. If `delivered`, the
    broker delivers every run of ours; otherwise the store hands most of them to idle workers, as it does for users."""
    seconds = WARM_S + arena.size(10, 4)
    count, warm = PER_SECOND * seconds, PER_SECOND * WARM_S
    with _stage(each, server, arena, count, delivered=delivered) as stage, stage.working():
        stage.warm_up(1)
        sent = stage.ask("send", {"per_second": PER_SECOND, "seconds": seconds})["sent"]
        stage.wait(lambda: stage.slate.ran() == count, PATIENCE_S, "sending was")
        took = [(began - at) * 1_000 for began, at in zip(stage.slate.times, sent, strict=True)]
    return {"samples_ms": took[warm:]}


def fall_back(server: BrokerServer, arena: Arena) -> tuple[float, float]:
    """The broker is killed while runs are submitted at a pace, all of which it delivers. Seconds from its death to the
    first start of a run that was submitted after it, and the longest that a run waited for its start."""
    count = FALLBACK_S * FALLBACK_RATE
    killed: list[float] = []

    def kill(stage: Stage) -> None:
        """Once a third has run: the program that submits may take a while to start."""
        while stage.slate.ran() < count // 3:
            time.sleep(0.01)
        killed.append(time.monotonic())
        server.kill()

    with _stage(MAINSPRING, server, arena, count, delivered=True) as stage, stage.working():
        stage.warm_up(1)
        stopping = threading.Thread(target=kill, args=(stage,), daemon=True)
        stopping.start()
        try:
            sent = stage.ask("send", {"per_second": FALLBACK_RATE, "seconds": FALLBACK_S})["sent"]
            stage.wait(lambda: stage.slate.ran() == count, PATIENCE_S, "falling back was")
        finally:
            stopping.join(PATIENCE_S)
            server.start()
        began = list(stage.slate.times)
    after = [at for at, asked in zip(began, sent, strict=True) if asked > killed[0]]
    longest = max(at - asked for at, asked in zip(began, sent, strict=True))
    return min(after) - killed[0], longest
