"""Gates: how many runs may be in at once. Locked in order of name, after lines and runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

import msgspec

from mainspring.core.model import Gate, NewRun
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "endings")
_RUNS = load_queries("postgres", "runs")
_WORK = load_queries("postgres", "work")
_encode = msgspec.json.Encoder().encode

_PASSING = "firing:"
"""Gates of this name are deleted when no run needs them any more."""


async def save_gates(tx: Transaction, runs: Collection[NewRun]) -> None:
    """Create the gates that runs need, with their newest capacities."""
    await need_gates(tx, [(run.namespace, gate) for run in runs for gate in run.gates])


async def need_gates(tx: Transaction, needed: Iterable[tuple[str, Gate]]) -> None:
    """Create these gates, by namespace. A gate that already has this capacity is not locked: otherwise submissions
    would wait for each other."""
    wanted: dict[str, dict[str, int]] = defaultdict(dict)
    for namespace, gate in needed:
        wanted[namespace][gate.name] = gate.capacity
    for namespace, gates in sorted(wanted.items()):
        passing = [name for name in gates if name.startswith(_PASSING)]
        lasting = [name for name in gates if not name.startswith(_PASSING)]
        there = dict(await tx.fetch(_RUNS["keep_gates"], namespace, lasting, passing))
        missing = sorted(name for name, capacity in gates.items() if there.get(name) != capacity)
        if missing:
            await tx.run(_RUNS["save_gates"], namespace, missing, [gates[name] for name in missing])


class Room:
    """The free slots of gates, as runs enter them; locked until the transaction ends."""

    def __init__(self, namespace: str, free: dict[str, int]) -> None:
        self._namespace = namespace
        self._free = free
        self._entered: Counter[str] = Counter()
        self._waiting: dict[str, str] = {}

    @classmethod
    async def at(cls, tx: Transaction, namespace: str, names: Iterable[str]) -> Room:
        """Lock these gates."""
        wanted = sorted(set(names))
        return cls(namespace, dict(await tx.fetch(_WORK["lock_gates"], namespace, wanted)) if wanted else {})

    def enter(self, run_id: str, gates: Sequence[str]) -> bool:
        """Take a slot at all of these gates; otherwise wait at the first that is full."""
        for name in gates:
            # A gate that does not exist limits nothing.
            if self._free.get(name, 1) <= 0:
                self._waiting[run_id] = name
                return False
        for name in gates:
            self._entered[name] += 1
            if name in self._free:
                self._free[name] -= 1
        return True

    async def apply(self, tx: Transaction) -> set[str]:
        """Write it all; returns the runs that have to wait."""
        if self._entered:
            await tx.run(_WORK["enter_gates"], self._namespace, list(self._entered), _encode(self._entered).decode())
        if self._waiting:
            await tx.run(_WORK["block_at_gates"], list(self._waiting), list(self._waiting.values()))
        return set(self._waiting)


async def leave_gates(tx: Transaction, leaving: Iterable[tuple[str, Sequence[str], bool]]) -> None:
    """Free slots at gates (namespace, names, whether slots are held), and admit waiting runs. A run that never ran
    holds no slot, but a waiting run may still be admitted."""
    places: dict[str, Counter[str]] = defaultdict(Counter)
    for namespace, names, held in leaving:
        places[namespace].update(dict.fromkeys(names, int(held)))
    for namespace, left in sorted(places.items()):
        rows = await tx.fetch(_Q["leave_gates"], namespace, list(left), _encode(left).decode())
        room = {name: free for name, free in rows if free > 0}
        if room and await tx.run(_Q["promote_at_gates"], namespace, list(room), list(room.values())):
            tx.changed = True
