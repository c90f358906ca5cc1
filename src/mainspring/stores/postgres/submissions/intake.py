"""Accepting runs: into the queue, behind their dependencies, in their lines."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import groupby

import msgspec

from mainspring.core.model import Event, NewRun
from mainspring.core.runs.dependency import unmet_dependencies
from mainspring.core.runs.outcome import Next
from mainspring.core.states import BLOCKED, PENDING, State
from mainspring.stores.postgres.claims.gates import save_gates
from mainspring.stores.postgres.claims.lines import Places
from mainspring.stores.postgres.ends.endings import end_unstarted
from mainspring.stores.postgres.history.days import not_before
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.postgres.submissions.paths import ALIKE_FROM, SEPARATOR, Path, choose_path, is_plain
from mainspring.stores.rows.run_rows import common_values, shared_values, submitted
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "runs")
_encode = msgspec.json.Encoder().encode
_FEW = 20
"""Fewer runs than this are not worth a statement of their own."""
_MANY = 1_000
"""From this number on, events are made while the server writes the runs."""
_SLICE = 500
"""After this many events, a fraction of a millisecond of work, other tasks of the loop run."""
_NOT_UNIQUE = "23505"
_CHUNK = 10_000
"""At most this many runs go into one statement: messages have a size limit, and larger ones gain nothing."""
_ONE_SOURCE = 18
"""Ids that share this many characters were made by one source within one millisecond."""


async def insert_runs(tx: Transaction, runs: Iterable[NewRun]) -> None:
    """Accept runs in this order. One whose id exists already is left alone."""
    runs = list(runs)
    fresh = {run.id: run for run in runs}
    if len(fresh) < len(runs):
        fresh = {}
        for run in runs:  # The first of an id counts.
            fresh.setdefault(run.id, run)
    if not all(map(is_plain, fresh.values())):
        await _insert_waiting(tx, fresh)
    elif len(fresh) < _MANY:
        _tell(tx, fresh, await _insert_plain(tx, list(fresh.values())))
    else:
        await _insert_many(tx, fresh)


async def _insert_many(tx: Transaction, runs: dict[str, NewRun]) -> None:
    """Their events are made while the server writes them."""
    inserting = asyncio.ensure_future(_insert_plain(tx, list(runs.values())))
    try:
        events: list[Event] = []
        for run in runs.values():
            if len(events) % _SLICE == 0:
                await asyncio.sleep(0)
            events.append(submitted(run))
        accepted = await inserting
    finally:
        inserting.cancel()
        await asyncio.wait([inserting])
    tx.events += events if len(accepted) == len(runs) else [it for it in events if it.run_id in accepted]
    tx.changed = tx.changed or bool(accepted)


def _tell(tx: Transaction, runs: dict[str, NewRun], accepted: Collection[str]) -> None:
    tx.events += [submitted(run) for run_id, run in runs.items() if run_id in accepted]
    tx.changed = tx.changed or bool(accepted)


def since(query: str, run_ids: Iterable[str], tx: Transaction) -> str:
    """A query over history that leaves out the days before the runs. The day is part of the text: as a parameter, a
    prepared statement would lock the partition of every day before it leaves it out."""
    return query.replace(":since", str(not_before(run_ids, tx.now)))


async def _insert_plain(tx: Transaction, runs: Sequence[NewRun]) -> set[str]:
    accepted: set[str] = set()
    rest: list[NewRun] = []
    for _, alike in groupby(runs, shared_values):
        group = list(alike)
        if len(group) < ALIKE_FROM:
            rest += group
            continue
        accepted.update(await _insert_group(tx, rest))
        rest = []
        accepted.update(await _insert_group(tx, group, alike=True))
    accepted.update(await _insert_group(tx, rest))
    return accepted - await _withdraw_ended(tx, accepted)


async def _insert_group(tx: Transaction, runs: Sequence[NewRun], *, alike: bool = False) -> list[str]:
    """Insert runs that wait for nothing; returns those that were accepted."""
    accepted: list[str] = []
    for start in range(0, len(runs), _CHUNK):
        chunk = runs[start : start + _CHUNK]
        if choose_path(chunk, None, tx.now, alike=alike) is not Path.ALIKE or not await _insert_alike(tx, chunk):
            accepted += await _insert(tx, chunk)
        else:
            accepted += [run.id for run in chunk]
    return accepted


async def _insert_alike(tx: Transaction, runs: Sequence[NewRun]) -> bool:
    """Insert runs as if none of them existed, which holds unless a submission is repeated; returns whether it held."""
    ids, args = SEPARATOR.join([run.id for run in runs]), SEPARATOR.join([run.args for run in runs])
    await tx.run("SAVEPOINT unless_known")
    try:
        await tx.run(_Q["insert_alike"], ids, args, *common_values(runs[0]))
    except Exception as error:
        if getattr(error, "sqlstate", "") != _NOT_UNIQUE:
            raise
        await tx.run("ROLLBACK TO SAVEPOINT unless_known")
        return False
    return True


async def _insert(tx: Transaction, runs: Sequence[NewRun | dict[str, object]]) -> dict[str, int]:
    """The runs that were accepted, with their positions in the order of acceptance."""
    accepted: dict[str, int] = {}
    for start in range(0, len(runs), _CHUNK):
        text = _encode(runs[start : start + _CHUNK]).decode()
        accepted.update(await tx.fetch(_Q["insert"], text, 0, None, 0, tx.now))
    return accepted


async def _withdraw_ended(tx: Transaction, accepted: Collection[str]) -> set[str]:
    """Take back runs that had ended before. Looked up after the insert, with a newer snapshot: a run that ends at this
    moment is for an earlier one in neither table."""
    if not accepted:
        return set()
    first, last = min(accepted), max(accepted)
    if len(accepted) > _FEW and first[:_ONE_SOURCE] == last[:_ONE_SOURCE]:
        rows = await tx.fetch(since(_Q["ended_between"], [first], tx), first, last)
    else:
        rows = await tx.fetch(since(_Q["ended"], [first], tx), list(accepted))
    ended = {row[0] for row in rows if row[0] in accepted}
    if ended:
        await tx.run(_Q["withdraw"], list(ended))
    return ended


async def _insert_waiting(tx: Transaction, runs: dict[str, NewRun]) -> None:
    places = await Places.of(tx, runs.values())
    known = {row[0] for row in await tx.fetch(since(_Q["known"], runs, tx), list(runs))}
    fresh = [run for run_id, run in runs.items() if run_id not in known]
    if not fresh:
        return
    states = await _lock_upstreams(tx, fresh)
    await save_gates(tx, fresh)
    batch = _Batch(states, places)
    for run in fresh:
        batch.add(run)
    seqs = await _insert(tx, batch.rows())
    for run_id in await _withdraw_ended(tx, seqs):
        del seqs[run_id]
    _tell(tx, runs, seqs)
    await batch.connect(tx, seqs)


async def _lock_upstreams(tx: Transaction, runs: Sequence[NewRun]) -> dict[str, tuple[str, State]]:
    """Namespaces and states of the runs outside of this batch that runs of it depend on.

    Locked first, then marked, then looked for in history: one that ends meanwhile is either kept from it until this
    transaction is done, and then sees the runs that wait for it; or it has ended, and a new look finds it.
    """
    ours = {run.id for run in runs}
    wanted = {upstream for run in runs for upstream in run.after} - ours
    if not wanted:
        return {}
    rows = await tx.fetch(_Q["lock_upstreams"], list(wanted))
    states = {row[0]: (row[1], row[2]) for row in rows}
    if rows:
        await tx.run(_Q["mark_upstreams"], list(states))
    if rest := wanted - set(states):
        ended = await tx.fetch(_Q["ended_upstreams"], list(rest), not_before(rest, tx.now))
        states.update({row[0]: (row[1], row[2]) for row in ended})
    return states


class _Batch:
    """Runs that are accepted together, each judged by what came before it."""

    def __init__(self, states: dict[str, tuple[str, State]], places: Places) -> None:
        self._states = states
        self._places = places
        self._judged: dict[str, tuple[NewRun, State, int]] = {}
        self._edges: list[tuple[str, NewRun]] = []
        self._joined: list[tuple[NewRun, str, int, bool]] = []
        self._endings: dict[str, Next] = {}

    def add(self, run: NewRun) -> None:
        """Find out what a run has to wait for."""
        upstreams, ending = unmet_dependencies(run, partial(self._state_in, run.namespace))
        self._edges += [(upstream, run) for upstream in upstreams]
        waits_for = len(upstreams)
        for line in run.lines:
            entered = self._places.enter(run.namespace, line)
            self._joined.append((run, line.name, line.capacity, entered))
            waits_for += not entered
        state: State = BLOCKED if waits_for else PENDING
        self._judged[run.id] = (run, state, waits_for)
        self._states[run.id] = (run.namespace, ending.state if ending else state)
        if ending:
            self._endings[run.id] = ending

    def _state_in(self, namespace: str, upstream: str) -> State | None:
        known = self._states.get(upstream)
        return None if known is None or known[0] != namespace else known[1]

    def rows(self) -> list[NewRun | dict[str, object]]:
        """What to insert."""
        awaited = {upstream for upstream, _ in self._edges}
        return [
            _row(run, state, waits_for, dependants=run.id in awaited) for run, state, waits_for in self._judged.values()
        ]

    async def connect(self, tx: Transaction, seqs: dict[str, int]) -> None:
        """Write what those that were accepted wait for, and end those whose end is decided."""
        edges = [(up, run.id, run.when, run.on_failure) for up, run in self._edges if run.id in seqs]
        if edges:
            await tx.run(_Q["add_edges"], *zip(*edges, strict=True))
        joined = [
            (run.namespace, name, seqs[run.id], run.id, capacity, entered)
            for run, name, capacity, entered in self._joined
            if run.id in seqs
        ]
        if joined:
            await tx.run(_Q["join_lines"], *zip(*joined, strict=True))
        await end_unstarted(tx, [(run_id, end) for run_id, end in self._endings.items() if run_id in seqs])


def _row(run: NewRun, state: State, waits_for: int, *, dependants: bool) -> dict[str, object]:
    """A run as `insert` reads it, with what it waits for."""
    return {
        **msgspec.structs.asdict(run),
        "state": state,
        "gate_names": [gate.name for gate in run.gates] or None,
        "line_count": len(run.lines),
        "waits_for": waits_for,
        "dependants": dependants,
    }
