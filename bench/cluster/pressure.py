"""A drain under pressure: beside a million finished runs, and while a transaction elsewhere keeps what is deleted."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.cluster.arena import OURS, Arena
from bench.cluster.contestants import MAINSPRING
from bench.cluster.stage import DATABASE, Stage, set_stage
from bench.cluster.throughput import BATCH, drain
from bench.harness.figures import Row, show
from bench.harness.running import Failed

COUNT = 100_000
FINISHED = 1_000_000
HELD_ROUNDS = 10
"""After this many backlogs have been deleted, it is measured,"""
JUDGED = 3
"""so often."""
_FINISHED = """
INSERT INTO mainspring.history (id, finished_at, namespace, queue, region, task, args, options, state, outcome, reason,
                                priority, due_at, idx, token, attempt, losses, cancel_reason, progress_note, created_at)
SELECT 'finished' || n, {now} + n, 'default', 'default', 'default', 'noop', '{{}}', '{{}}', 'succeeded', 'succeeded',
       '', 5, {now}, 0, 1, 1, 0, '', '', {now} FROM generate_series(1, {count}) AS n
"""


def _fill(stage: Stage, count: int) -> None:
    stage.slate.clear()
    stage.ask("fill", {"count": count, "batch": BATCH})
    stage.settle()


def _finish(stage: Stage, finished: int) -> None:
    statement = _FINISHED.format(now=int(time.time() * 1_000_000), count=finished)
    with psycopg.connect(stage.servers.database(DATABASE), autocommit=True) as connection:
        connection.execute(statement.encode())
        connection.execute("ANALYZE mainspring.history")


@contextmanager
def _held(stage: Stage) -> Iterator[None]:
    """A transaction that has looked once, and stays."""
    with psycopg.connect(stage.servers.database(DATABASE)) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM mainspring.runs WHERE state = 'running'")
        yield


def measure_crowd(arena: Arena) -> list[Row]:
    """The same drain on an empty store, and beside a million finished runs."""
    count, finished = arena.size(COUNT, COUNT // 4), arena.size(FINISHED, FINISHED // 4)
    rates: dict[str, list[float]] = {"empty": [], "crowded": []}
    for number in range(arena.size(3, 1)):
        for name, own in rates.items():
            print(f"  crowd {number + 1}: {name}", file=sys.stderr)
            with set_stage(MAINSPRING, arena.servers, arena.folder, count) as stage:
                if name == "crowded":
                    _finish(stage, finished)
                _fill(stage, count)
                own.append(drain(stage, count).rate)
    return [_compare(f"drain beside {finished:,} finished runs", rates["crowded"], rates["empty"])]


def _middle(rates: list[float]) -> float:
    return sorted(rates)[len(rates) // 2]


def _compare(name: str, under: list[float], free: list[float]) -> Row:
    """At least half of what it is without the pressure."""
    share = _middle(under) / _middle(free)
    row = Row(name, {OURS: show(_middle(under), "/s")}, f"{share:.2f} × {show(_middle(free), '/s')} without")
    row.target, row.met = "≥ 0.5 × without", share >= 0.5
    row.rounds = {"under pressure": under, "without": free}
    return row


def measure_held(arena: Arena) -> list[Row]:
    """Backlogs one after another; then the same while a transaction keeps a million deleted runs in the way."""
    count, rounds = arena.size(COUNT, COUNT // 4), arena.size(HELD_ROUNDS, 3)
    with set_stage(MAINSPRING, arena.servers, arena.folder, count) as stage:
        free = [_round(stage, count, "free", number) for number in range(JUDGED)]
        with _held(stage):
            held = [_round(stage, count, "held", number) for number in range(rounds + JUDGED)]
    row = _compare(f"drain while a transaction keeps {count * rounds:,} deleted runs", held[-JUDGED:], free)
    row.rounds["all rounds held"] = held
    return [row]


def _round(stage: Stage, count: int, what: str, number: int) -> float:
    """Whether all is recorded is asked of what has ended since: to count what has not, the server would read all that
    is dead, again and again, and this measure would take more of it than what it measures."""
    print(f"  {what} {number + 1}", file=sys.stderr)
    newest = stage.servers.fetch("SELECT coalesce(max(id), '') FROM mainspring.history", DATABASE)
    since = f"SELECT {count} - count(*) FROM mainspring.history WHERE id > '{newest}'"
    stage.unfinished = lambda: int(stage.servers.fetch(since, DATABASE))
    _fill(stage, count)
    rate = drain(stage, count).rate
    if stage.slate.ran() != count:
        raise Failed(f"{stage.slate.ran()} of {count} ran")
    return rate
