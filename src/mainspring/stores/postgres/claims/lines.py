"""Lines: keys and `overlap="queue"`. A transaction locks a line before it touches it, so that its order is that of
commits.

Locks of lines are taken before those of rows, wherever that is possible: two transactions that need the same ones then
wait for each other in one direction only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from mainspring.core.model import Gate, NewRun
from mainspring.core.runs.outcome import Next, stopped_by, stops_line
from mainspring.core.states import State
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "endings")
_RUNS = load_queries("postgres", "runs")
_AT_ONCE = 100
"""How many runs one call of `grant_lines` admits to a line."""

Line = tuple[str, str]
"""Namespace and name."""


async def lock_lines(tx: Transaction, lines: Collection[Line]) -> None:
    """Lock these lines: no other run joins or leaves them until the transaction ends."""
    await tx.fetchval(_Q["lock_lines"], [namespace for namespace, _ in lines], [name for _, name in lines])


async def lock_lines_of(tx: Transaction, run_ids: Sequence[str]) -> int:
    """As `lock_lines`, for the lines that these runs are in; returns how many there are."""
    return int(await tx.fetchval(_Q["lock_lines_of"], run_ids))


class Places:
    """The free slots of locked lines, as runs join them."""

    def __init__(self, taken: dict[Line, int], crowded: set[Line]) -> None:
        self._taken = taken
        self._crowded = crowded

    @classmethod
    async def of(cls, tx: Transaction, runs: Collection[NewRun]) -> Places:
        """Lock the lines of these runs, and read how full they are."""
        capacities: dict[Line, int] = {}
        for run in runs:
            for line in run.lines:
                key = (run.namespace, line.name)
                capacities[key] = max(capacities.get(key, 0), line.capacity)
        if not capacities:
            return cls({}, set())
        await lock_lines(tx, capacities)
        namespaces, names = zip(*capacities, strict=True)
        rows = await tx.fetch(_RUNS["line_places"], namespaces, names, list(capacities.values()))
        taken = {(namespace, name): count for namespace, name, count, _ in rows}
        return cls(taken, {(namespace, name) for namespace, name, _, waits in rows if waits})

    def enter(self, namespace: str, line: Gate) -> bool:
        """Join a line; returns whether a slot is free at once."""
        key = (namespace, line.name)
        if key in self._crowded or self._taken[key] >= line.capacity:
            self._crowded.add(key)
            return False
        self._taken[key] += 1
        return True


async def leave_lines(tx: Transaction, ended: Sequence[tuple[str, State, str]], room: int) -> list[tuple[str, Next]]:
    """Free the slots of runs (id, state, options) that have ended, and admit the next ones; returns those that end
    because of it, as many as there is room for. If more wait, a run keeps its place until recovery has ended them: none
    may begin."""
    runs = {run_id: (state, options) for run_id, state, options in ended}
    await lock_lines_of(tx, list(runs))
    rows = await tx.fetch(_Q["leave_lines"], list(runs))
    stopped: list[tuple[str, Next]] = []
    for run_id, namespace, name, seq in rows:
        state, options = runs[run_id]
        if verdict := stops_line(run_id, state, options, name):
            until = await tx.fetchval(_Q["last_in_line"], namespace, name)
            left = room - len(stopped)
            waiting = await tx.fetch(_Q["waiting_in_line"], namespace, name, until, left + 1)
            stopped += [(row[0], verdict) for row in waiting[:left]]
            if len(waiting) > left:
                await tx.run(_Q["keep_place"], namespace, name, seq, run_id)
                await tx.run(_Q["stop_line"], run_id, namespace, name, until)
    await _grant(tx, sorted({(namespace, name) for _, namespace, name, _ in rows}))
    return stopped


class StoppedLine(NamedTuple):
    """A line in which runs wait that end with one that failed."""

    run_id: str
    namespace: str
    name: str
    until_seq: int

    @classmethod
    async def find(cls, tx: Transaction) -> StoppedLine | None:
        """One that no other transaction takes on, locked; None if there is none."""
        row = await tx.fetchrow(_Q["stopped_line"])
        if row is None:
            return None
        stop = cls(*row)
        await lock_lines(tx, [(stop.namespace, stop.name)])
        return stop

    async def waiting(self, tx: Transaction, limit: int) -> dict[str, Next]:
        """Those that still wait, up to a number, and how they end."""
        rows = await tx.fetch(_Q["waiting_in_line"], self.namespace, self.name, self.until_seq, limit)
        return {row[0]: stopped_by(self.run_id, self.name) for row in rows}

    async def leave(self, tx: Transaction) -> None:
        """None waits any more: free the place that the failed run kept, and admit those that came later."""
        await tx.run(_Q["forget_stop"], self.run_id, self.name)
        await tx.run(_Q["leave_line"], self.run_id, self.name)
        await _grant(tx, [(self.namespace, self.name)])
        tx.changed = True


async def _grant(tx: Transaction, lines: Sequence[Line]) -> None:
    if not lines:
        return
    namespaces, names = zip(*lines, strict=True)
    while entered := [row[0] for row in await tx.fetch(_Q["grant_lines"], namespaces, names)]:
        await wait_less(tx, Counter(entered))
        if len(entered) < _AT_ONCE:
            break


async def wait_less(tx: Transaction, less: dict[str, int]) -> None:
    """Count down what runs wait for."""
    if less:
        ids = sorted(less)
        await tx.run(_Q["wait_less"], ids, [less[run_id] for run_id in ids])
