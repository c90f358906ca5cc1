"""Submitting, and working off a backlog with two worker processes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.cluster.arena import OURS, Arena, take_turns
from bench.cluster.contestants import MAINSPRING, PGQUEUER, Contestant
from bench.cluster.cost import server_s, workers_s
from bench.cluster.rows import figure_row, judge, rate_row
from bench.cluster.stage import DATABASE, Stage, set_stage
from bench.harness.figures import Row, Series, rate
from bench.harness.intake import CALLERS
from bench.harness.running import Failed
from bench.harness.script import Answer

BATCH = 10_000
DRAIN_LIMIT_S = 60


def measure_submit(arena: Arena) -> list[Row]:
    """Submissions a second: one after another, and by 32 callers at once."""
    params = {"seconds": arena.size(3, 1)}

    def submit(each: Contestant) -> Answer:
        with set_stage(each, arena.servers, arena.folder) as stage:
            alone = rate(stage.ask("submit", params))
            together = rate(stage.ask("together", params))
            bare = rate(stage.ask("bare", params)) if each is MAINSPRING else 0.0
            pool = rate(stage.ask("submit_by_pool", params)) if each is PGQUEUER else 0.0
        return {"alone": alone, "together": together, "bare": bare, "pool": pool}

    series = take_turns(arena.everybody, arena.size(3, 1), "submit", submit)
    alone, together, bare = (_part(series, name) for name in ("alone", "together", "bare"))
    single = rate_row("submissions, one after another", alone)
    if PGQUEUER in arena.peers:
        judge(single, alone[OURS].figure(rate), alone[PGQUEUER.label].figure(rate), 1.2, PGQUEUER.label)
    many = rate_row(f"submissions, {CALLERS} callers", together)
    judge(many, together[OURS].figure(rate), alone[OURS].figure(rate), 8, "one caller")
    rows = [rate_row("bare PostgreSQL: insert and commit, synced", {OURS: bare[OURS]}), single, many]
    if PGQUEUER in arena.peers:
        by_pool = _part(series, "pool")[PGQUEUER.label]
        rows.append(rate_row("submissions, one after another, by a pool", {PGQUEUER.label: by_pool}))
    return rows


def _part(series: Mapping[str, Series], name: str) -> dict[str, Series]:
    return {label: own.mapped(lambda answer: {"rates": [answer[name]]}) for label, own in series.items()}


def measure_bulk(arena: Arena) -> list[Row]:
    """Submissions a second in bulk, of those that have it."""

    def submit(each: Contestant) -> Answer:
        with set_stage(each, arena.servers, arena.folder) as stage:
            return stage.ask("bulk", {"seconds": arena.size(3, 1), "batch": BATCH})

    everybody = [each for each in arena.everybody if each.bulk]
    series = take_turns(everybody, arena.size(3, 1), "bulk", submit)
    row = rate_row(f"submissions, in bulk of {BATCH:,}", series)
    if PGQUEUER in arena.peers:
        judge(row, series[OURS].figure(rate), series[PGQUEUER.label].figure(rate), 2, PGQUEUER.label)
    return [row]


class Drained(NamedTuple):
    """Runs a second, and the processor time of one, of workers and server together."""

    rate: float
    cost_us: float


def drain(
    stage: Stage,
    count: int,
    commands: list[list[str]] | None = None,
    beside: Sequence[subprocess.Popen[str]] = (),
) -> Drained:
    """Work off what waits on the stage, from the first run that begins until the store has nothing left.

    Starting processes is not part of it. A run that is lost or doubled makes it void. `commands` stand for its workers;
    what runs `beside` them, and was there before, counts too.
    """
    served = server_s(stage)
    with stage.working() if commands is None else stage.started(commands) as workers:
        stage.workers = [*(stage.workers if workers is None else workers), *beside]
        stage.wait(lambda: stage.slate.ran() > 0, DRAIN_LIMIT_S, "the first run was")
        worked = workers_s(stage)
        stage.wait(lambda: stage.slate.ran() >= count, DRAIN_LIMIT_S, "the backlog was")
        stage.wait(lambda: stage.unfinished() == 0, DRAIN_LIMIT_S, "recording the backlog was")
        ended = time.monotonic()
        spent = workers_s(stage) - worked + server_s(stage) - served
    if doubled := stage.slate.doubled():
        raise Failed(f"{doubled} runs ran twice")
    return Drained(count / (ended - stage.slate.began_at()), spent / count * 1e6)


def check_recorded(stage: Stage, count: int) -> None:
    """That each of our runs is recorded as succeeded at its first attempt, past our own code."""
    if stage.contestant is not MAINSPRING:
        return
    query = "SELECT count(*) FROM mainspring.history WHERE state = 'succeeded' AND attempt = 1 AND args <> '{}'"
    recorded = stage.servers.fetch(query, DATABASE)
    if recorded != count:
        raise Failed(f"{recorded} of {count} recorded")


def measure_drain(arena: Arena) -> list[Row]:
    """How fast a backlog of no-op runs is worked off by two worker processes."""

    def work_off(each: Contestant) -> Answer:
        count = each.count // arena.size(1, 4)
        with set_stage(each, arena.servers, arena.folder, count) as stage:
            stage.ask("fill", {"count": count, "batch": BATCH})
            stage.settle()
            drained = drain(stage, count)
            check_recorded(stage, count)
            return {"rates": [drained.rate], "cost_us": drained.cost_us}

    series = take_turns(arena.everybody, arena.size(3, 1), "drain", work_off)
    row = rate_row(f"drain of {MAINSPRING.count // arena.size(1, 4):,} no-op runs, two worker processes", series)
    if PGQUEUER in arena.peers:
        judge(row, series[OURS].figure(rate), series[PGQUEUER.label].figure(rate), 1.5, PGQUEUER.label)
    return [row, figure_row("CPU of a run, workers and server", series, lambda answer: float(answer["cost_us"]), "µs")]
