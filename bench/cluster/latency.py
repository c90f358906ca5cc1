"""From the call of `submit` in one process to the first line of the function in another."""

from __future__ import annotations

from bench.cluster.arena import Arena, take_turns
from bench.cluster.contestants import Contestant
from bench.cluster.rows import percentile_row
from bench.cluster.stage import set_stage
from bench.harness.figures import Row
from bench.harness.script import Answer

PER_SECOND = 100
WARM_S = 3
"""Runs of the first seconds, in which workers are still being started, do not count."""
PATIENCE_S = 30


def measure_latency(arena: Arena) -> list[Row]:
    """At a hundred a second, with two worker processes that have nothing else to do."""
    seconds = WARM_S + arena.size(10, 4)
    count, warm = PER_SECOND * seconds, PER_SECOND * WARM_S

    def send(each: Contestant) -> Answer:
        with (
            set_stage(each, arena.servers, arena.folder, count) as stage,
            stage.working(each.spawn if each.across else 0),
        ):
            if each.across:
                stage.warm_up(1)
            sent = stage.ask("send", {"per_second": PER_SECOND, "seconds": seconds})["sent"]
            stage.wait(lambda: stage.slate.ran() == count, PATIENCE_S, "sending was")
            took = [(began - at) * 1000 for began, at in zip(stage.slate.times, sent, strict=True)]
        return {"samples_ms": took[warm:]}

    series = take_turns(arena.everybody, arena.size(3, 1), "latency", send)
    return [percentile_row(f"start latency at {PER_SECOND}/s, p50 / p99", series, {0.5: 2.5, 0.99: 5.0})]
