"""What a cluster with nothing to do asks of its servers."""

from __future__ import annotations

import time

from bench.cluster.arena import Arena, take_turns
from bench.cluster.contestants import MAINSPRING, Contestant
from bench.cluster.cost import server_s, workers_s
from bench.cluster.rows import figure_row
from bench.cluster.stage import DATABASE, Stage, set_stage
from bench.harness.figures import Row
from bench.harness.script import Answer

SETTLE_S = 4.0
_COUNT = """
SELECT coalesce(sum(calls), 0) FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
WHERE d.datname = '{}'
"""


def _asked(stage: Stage) -> int:
    """Statements or commands so far."""
    if stage.contestant.on_postgres:
        return int(stage.servers.fetch(_COUNT.format(DATABASE)))
    info = stage.servers.redis_says("INFO", "stats")
    return next(int(line.split(":")[1]) for line in info.splitlines() if line.startswith("total_commands_processed"))


def _watch(stage: Stage, seconds: float) -> Answer:
    time.sleep(SETTLE_S)
    before, cpu, began = _asked(stage), server_s(stage) + workers_s(stage), time.monotonic()
    time.sleep(seconds)
    asked, spent = _asked(stage) - before, server_s(stage) + workers_s(stage) - cpu
    took = time.monotonic() - began
    return {"asked": asked / took, "cpu": spent / took * 60}


def measure_idle(arena: Arena) -> list[Row]:
    """Two worker processes each; Mainspring also with two nodes, of which one stands by."""
    seconds = arena.size(12, 6)
    arena.servers.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    def idle(each: Contestant) -> Answer:
        with set_stage(each, arena.servers, arena.folder) as stage:
            if each.on_postgres:
                stage.servers.execute(f"ALTER DATABASE {DATABASE} SET pg_stat_statements.track = 'top'")
            with stage.working():
                return _watch(stage, seconds)

    def idle_cluster(each: Contestant) -> Answer:
        with set_stage(each, arena.servers, arena.folder) as stage:
            stage.servers.execute(f"ALTER DATABASE {DATABASE} SET pg_stat_statements.track = 'top'")
            node, worker = stage.command("node", {}), stage.command("work", {})
            with stage.started([node, node, worker, worker]) as stage.workers:
                return _watch(stage, seconds)

    alone = take_turns(arena.everybody, 1, "idle", idle)
    whole = take_turns([MAINSPRING], 1, "idle cluster", idle_cluster)
    rows = []
    for series, fleet in ((alone, "two workers"), (whole, "two nodes, two workers")):
        rows.append(figure_row(f"idle, {fleet}: statements", series, lambda answer: float(answer["asked"]), "/s"))
        rows.append(figure_row(f"idle, {fleet}: CPU per minute", series, lambda answer: float(answer["cpu"]), "s"))
    return rows
