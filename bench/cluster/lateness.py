"""How late functions start when thousands of jobs are due on one second."""

from __future__ import annotations

import time

from bench.cluster.arena import Arena, take_turns
from bench.cluster.contestants import APSCHEDULER, MAINSPRING, Contestant
from bench.cluster.rows import percentile_row
from bench.cluster.stage import Stage, set_stage
from bench.harness.figures import Row
from bench.harness.running import Failed
from bench.harness.script import Answer

NOTICE_S = 20
"""For storing the jobs and starting the processes."""
WARM = 1_000
PER_SECOND = 150
"""How many jobs APScheduler stores in a second, at the least."""
PATIENCE_S = 30
EARLY_MS = 0.5
"""By how much two clocks of one machine may differ after they were read one after the other."""
LIMITS_MS = {1_000: 50.0, 10_000: 500.0}
ROUNDS = {1_000: 3, 10_000: 1}
"""A round takes some 25 seconds, most of it notice: without peers, all of them fit into three minutes."""


def _due_at(stage: Stage, jobs: int) -> int:
    notice = NOTICE_S + (jobs / PER_SECOND if stage.contestant is APSCHEDULER else 0)
    return int(time.time() + notice) + 1


def _fire(stage: Stage, jobs: int) -> Answer:
    due_at = _due_at(stage, jobs)
    params = {"jobs": jobs, "due_at": due_at, "patience_s": PATIENCE_S}
    if stage.contestant is MAINSPRING:
        stage.ask("store_jobs", params)
        with stage.started([stage.command("node", {}), stage.command("work", {})]) as stage.workers:
            stage.warm_up(WARM)
            stage.wait(lambda: stage.slate.ran() >= jobs, due_at - time.time() + PATIENCE_S, "firing was")
    else:
        stage.ask("lateness", params)
    late = [(began + _epoch() - due_at) * 1000 for began in stage.slate.times if began]
    if len(late) < jobs or min(late) < -EARLY_MS or stage.slate.doubled():
        raise Failed(f"{len(late):,} of {jobs:,} ran, {stage.slate.doubled()} twice, the first {min(late):.1f} ms late")
    return {"samples_ms": late}


def _epoch() -> float:
    """What the slate's clock is behind that of the calendar."""
    return time.time() - time.monotonic()


def measure_lateness(arena: Arena) -> list[Row]:
    """From the instant that jobs are due to the first line of each function: a node that also works, and a worker."""
    everybody = [each for each in arena.everybody if each in (MAINSPRING, APSCHEDULER)]
    rows = []
    for jobs, limit_ms in LIMITS_MS.items():
        takers = everybody if jobs == min(LIMITS_MS) else [MAINSPRING]

        def fire(each: Contestant, jobs: int = jobs) -> Answer:
            with set_stage(each, arena.servers, arena.folder, jobs) as stage:
                return _fire(stage, jobs)

        series = take_turns(takers, arena.size(ROUNDS[jobs], 1), f"lateness of {jobs:,}", fire)
        rows.append(percentile_row(f"lateness, {jobs:,} jobs due on one second, p50 / p99", series, {0.99: limit_ms}))
    return rows
