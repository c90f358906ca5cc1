"""A fleet as users run it: one `mainspring server`, which relays events, and more and more worker processes.

What a run costs must not grow with the number of workers that could have taken it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.cluster.arena import OURS, Arena
from bench.cluster.contestants import MAINSPRING
from bench.cluster.cost import server_s, workers_s
from bench.cluster.stage import DATABASE, Stage, set_stage
from bench.cluster.throughput import Drained, check_recorded, drain
from bench.harness.figures import Row, at, show
from bench.harness.running import Failed
from bench.harness.script import Answer

WORKERS = (2, 10, 30, 60)
QUICK_WORKERS = (2, 30)
IDLE = (1, 10, 60)
QUICK_IDLE = (1, 10)
MOST_OF_WORKER, MOST_OF_SERVER, TOLERANCE = 1.0, 5.0, 0.05
SETTLE_S, ALONE_SETTLE_S = 6.0, 15.0
"""Workers alone first have to agree on the one that does the chores."""
PER_SECOND = 500
CALLERS = 8
FASTEST = 5_000
"""More submissions a second than the machine carries: what is reached is the highest rate."""
WARM = 200
START_LIMIT_S = 120
LIMIT_S = 240
STATEMENTS_GROW = 1.2
"""Statements a run may grow by a fifth, from the smallest fleet to the largest."""
TOP = 12
_LED = "SELECT count(*) FROM mainspring.leases WHERE name = 'scheduler'"
_COUNT = f"""
SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
WHERE d.datname = '{DATABASE}'
"""
_BREAKDOWN = f"""
SELECT string_agg(calls || ' ' || left(regexp_replace(query, '\\s+', ' ', 'g'), 90), E'\n' ORDER BY calls DESC)
FROM (SELECT s.query, s.calls FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
      WHERE d.datname = '{DATABASE}' ORDER BY calls DESC LIMIT {TOP}) AS s
"""


@contextmanager
def fleet(arena: Arena, workers: int, slots: int, *, server: bool = True, quiet: bool = True) -> Iterator[Stage]:
    """This many workers and a server, once all are at work; statements are counted from then on."""
    arena.servers.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    with set_stage(MAINSPRING, arena.servers, arena.folder, slots) as stage:
        stage.servers.execute(f"ALTER DATABASE {DATABASE} SET pg_stat_statements.track = 'top'")
        commands = [stage.command("work", {"limit_s": LIMIT_S, "quiet": quiet})] * workers
        if server:
            commands.append(stage.command("server", {"limit_s": LIMIT_S}))
        with stage.started(commands) as stage.workers:
            active = "SELECT count(*) FROM mainspring.workers WHERE state = 'active'"
            stage.wait(lambda: stage.servers.fetch(active, DATABASE) == workers, START_LIMIT_S, "starting was")
            yield stage


def statements(stage: Stage) -> int:
    """How many the server has executed so far for this database."""
    return int(stage.servers.fetch(_COUNT))


def _send(stage: Stage, per_second: int, seconds: int) -> Answer:
    """Submit at a pace, one by one; what was reached, and what it cost."""
    count = per_second * seconds
    stage.slate.clear()
    stage.servers.execute("SELECT pg_stat_statements_reset()")
    cpu = server_s(stage) + workers_s(stage)
    began = time.monotonic()
    sent = stage.ask("send", {"per_second": per_second, "seconds": seconds, "callers": CALLERS}, LIMIT_S)["sent"]
    stage.wait(lambda: stage.slate.ran() == count, LIMIT_S, "sending was")
    stage.wait(lambda: stage.unfinished() == 0, LIMIT_S, "recording was")
    asked, spent = statements(stage), server_s(stage) + workers_s(stage) - cpu
    if doubled := stage.slate.doubled():
        raise Failed(f"{doubled} runs ran twice")
    print(stage.servers.fetch(_BREAKDOWN), file=sys.stderr)
    took = [(start - at_) * 1000 for start, at_ in zip(stage.slate.times, sent, strict=True)]
    span = max(stage.slate.times) - min(sent)
    return {
        "rates": [count / span],
        "samples_ms": took,
        "asked": asked / count,
        "cpu_us": spent / count * 1e6,
        "took_s": time.monotonic() - began,
    }


def measure_fleet(arena: Arena) -> list[Row]:
    """500 runs a second, and as many as the machine carries, by 2, 10, 30 and 60 workers."""
    answers: dict[tuple[str, int], Answer] = {}
    seconds = arena.size(10, 5)
    for workers in QUICK_WORKERS if arena.quick else WORKERS:
        print(f"  fleet: {workers} workers", file=sys.stderr)
        with fleet(arena, workers, PER_SECOND * seconds) as stage:
            stage.warm_up(WARM)
            time.sleep(SETTLE_S)  # All stand by when they start; a few seconds later two do.
            answers["at 500/s", workers] = _send(stage, PER_SECOND, seconds)
        with fleet(arena, workers, FASTEST * 2) as stage:
            stage.warm_up(WARM)
            time.sleep(SETTLE_S)
            answers["as fast as it goes", workers] = _send(stage, FASTEST, 2)
    return [
        _row(pace, {count: each for (name, count), each in answers.items() if name == pace})
        for pace in ("at 500/s", "as fast as it goes")
    ]


def measure_idle_fleet(arena: Arena) -> list[Row]:
    """Statements a second of workers with nothing to do, each, by how many there are; and of a server beside them.

    Workers alone have chores, which one of them does. Beside a server none has, so what each costs there, and what the
    server does, follow from two sizes of a fleet.
    """
    seconds = arena.size(20, 10)
    sizes = QUICK_IDLE if arena.quick else IDLE
    alone = {count: _idle(arena, count, seconds, server=False) for count in sizes}
    few, many = sizes[:2]
    beside = {count: _idle(arena, count, seconds, server=True) for count in (few, many)}
    lone = (beside[many] - beside[few]) / (many - few)
    served, chores = beside[few] - few * lone, alone[many] - many * lone
    each = {count: asked / count for count, asked in alone.items()}
    shown = [f"{count}: {asked:.2f}" for count, asked in each.items()]
    row = Row(
        "idle: statements a second of each worker, of the chores, of the server",
        {OURS: "; ".join([*shown, f"beside a server: {lone:.2f}", f"chores: {chores:.2f}", f"server: {served:.2f}"])},
    )
    row.target = f"≤ {MOST_OF_WORKER:g} each, ≤ {MOST_OF_SERVER:g}"
    row.met = lone <= MOST_OF_WORKER + TOLERANCE and served <= MOST_OF_SERVER + TOLERANCE
    row.rounds = {str(count): [asked] for count, asked in each.items()} | {"server": [served], "chores": [chores]}
    return [row]


def measure_whole(arena: Arena) -> list[Row]:
    """A drain by two workers alone, and by two that show what they do, beside a server that relays events."""
    count = MAINSPRING.count // arena.size(1, 4)
    costs: dict[bool, list[Drained]] = {False: [], True: []}
    for number in range(arena.size(3, 1)):
        for whole, drained in costs.items():
            print(f"  whole {number + 1}: {'with a server' if whole else 'workers alone'}", file=sys.stderr)
            with set_stage(MAINSPRING, arena.servers, arena.folder, count) as stage:
                stage.ask("fill", {"count": count, "batch": 10_000})
                stage.settle()
                workers = [stage.command("work", {"quiet": not whole})] * 2
                with stage.started([stage.command("server", {})] if whole else [], "server") as server:
                    if whole:
                        stage.wait(lambda: stage.servers.fetch(_LED, DATABASE) > 0, START_LIMIT_S, "electing was")
                        time.sleep(SETTLE_S)  # Its start is not part of what a run costs.
                    drained.append(drain(stage, count, workers, server))
                    stage.workers = []
                    check_recorded(stage, count)
    alone, rate = (statistics.median(each.rate for each in costs[kind]) for kind in (False, True))
    cpu = {kind: statistics.median(each.cost_us for each in drained) for kind, drained in costs.items()}
    figure = f"{show(rate, '/s')} beside {show(alone, '/s')}; CPU of a run {cpu[True]:.0f} beside {cpu[False]:.0f} µs"
    row = Row(f"drain of {count:,} by a whole fleet, beside workers alone", {OURS: figure})
    row.target, row.met = "≥ 0.9 × workers alone", rate >= 0.9 * alone
    row.rounds = {("whole" if kind else "alone"): [each.rate for each in drained] for kind, drained in costs.items()}
    return [row]


def _idle(arena: Arena, workers: int, seconds: int, *, server: bool) -> float:
    print(f"  idle: {workers} workers", file=sys.stderr)
    with fleet(arena, workers, 1, server=server) as stage:
        time.sleep(SETTLE_S if server else ALONE_SETTLE_S)
        stage.servers.execute("SELECT pg_stat_statements_reset()")
        began = time.monotonic()
        time.sleep(seconds)
        asked, took = statements(stage), time.monotonic() - began
        print(stage.servers.fetch(_BREAKDOWN), file=sys.stderr)
        return asked / took


def _row(pace: str, answers: dict[int, Answer]) -> Row:
    cells = [
        f"{workers}: {show(each['rates'][0], '/s')}, {show(at(0.5)(each))} / {show(at(0.99)(each), 'ms')}, "
        f"{each['asked']:.2f} statements, {show(each['cpu_us'], 'µs')}"
        for workers, each in answers.items()
    ]
    fewest, *_, most = answers.values()
    row = Row(
        f"a fleet of N workers {pace}: rate, start latency p50 / p99, statements and CPU of a run",
        {OURS: "; ".join(cells)},
    )
    row.target = f"statements grow ≤ {STATEMENTS_GROW:g} ×, rate holds"
    row.met = most["asked"] <= STATEMENTS_GROW * fewest["asked"] and most["rates"][0] >= 0.9 * fewest["rates"][0]
    row.rounds = {str(workers): [each["rates"][0], each["asked"], each["cpu_us"]] for workers, each in answers.items()}
    return row
