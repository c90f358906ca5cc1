"""What both stores do alike in recovery: workers that fell silent, and runs that their region does not execute."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.instants import Duration
from mainspring.core.model import Event, Worker
from mainspring.core.runs.regions import MOST_PAGES, Move, WaitingRun, fail_over
from mainspring.stores.rows.transaction import Row, Transaction
from mainspring.stores.rows.worker_rows import read_names
from mainspring.stores.sql import load_queries


async def bury(tx: Transaction, dead_after: Duration) -> tuple[str, ...]:
    """Note which workers have been silent for too long."""
    rows = await tx.fetch(load_queries(tx.dialect, "maintenance")["silent"], tx.given, dead_after)
    tx.events += [Event("worker.dead", tx.now, namespace, worker=worker) for worker, namespace in rows]
    return tuple(worker for worker, _ in rows)


async def find_moves(tx: Transaction, dead_after: Duration, limit: int) -> list[Move]:
    """Runs that their region does not execute, and where they should go."""
    queries = load_queries(tx.dialect, "maintenance")
    workers = [
        Worker(id=worker, namespace=namespace, queues=read_names(queues), regions=read_names(regions),
               tasks=read_names(tasks), concurrency=concurrency, running=running)
        for worker, namespace, queues, regions, tasks, concurrency, running in await tx.fetch(
            queries["live_workers"], tx.given, dead_after)
    ]  # fmt: skip
    moves: list[Move] = []
    place = (0, "")
    for _ in range(MOST_PAGES):
        found = [WaitingRun(*row) for row in await tx.fetch(queries["stranded"], tx.now, *place, limit)]
        moves += [move for run in found if (move := fail_over(run, workers, tx.now)) is not None]
        if len(found) < limit or len(moves) >= limit:
            break
        place = (found[-1].due_at, found[-1].id)
    return moves


def note_moved(tx: Transaction, moved: Sequence[Row]) -> int:
    """Runs went to another region; how many."""
    for run_id, namespace, job_id, job, task, fire_at, reason in moved:
        tx.events.append(Event("run.moved", tx.now, namespace, run_id, job_id, job, task, None, fire_at, reason=reason))
    tx.changed = bool(moved) or tx.changed
    return len(moved)
