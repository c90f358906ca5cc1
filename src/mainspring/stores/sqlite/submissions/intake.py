"""Accepting runs: into the queue, behind their dependencies, in their lines, at their gates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from mainspring.core.model import NewRun
from mainspring.core.runs.dependency import unmet_dependencies
from mainspring.core.runs.outcome import Next
from mainspring.core.states import BLOCKED, PENDING, State
from mainspring.stores.rows.run_rows import common_values, shared_values, submitted
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import end_unstarted, grant_line
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.submissions.inbox import TAGS_KEY, keep_tags

_Q = load_queries("sqlite", "runs")
_FEW = 20
"""Fewer runs than this are inserted one by one."""
_encode = msgspec.json.Encoder().encode


def insert_runs(tx: Transaction, runs: Sequence[NewRun]) -> None:
    """Accept runs in this order. One whose id exists already is left alone."""
    if len(runs) == 1 and not (runs[0].after or runs[0].lines or runs[0].gates):
        _insert_one(tx, runs[0])
        return
    fresh = {run.id: run for run in runs}
    for (run_id,) in tx.execute(_Q["known"], (_encode(list(fresh)).decode(),)).fetchall():
        del fresh[run_id]
    plain: list[NewRun] = []
    for run in fresh.values():
        if run.after or run.lines or run.gates:
            # The order of commits is the order in lines: what came before must be in the table first.
            _insert_plain(tx, plain)
            plain = []
            _insert_waiting(tx, run)
        else:
            plain.append(run)
    _insert_plain(tx, plain)
    tx.changed = True


def _insert_one(tx: Transaction, run: NewRun) -> None:
    """The most frequent submission, with as little as possible around its insert."""
    if tx.execute(_Q["insert_one"], (run.id, run.args, *common_values(run))).rowcount:
        tx.events.append(submitted(run))
        tx.changed = True
        keep_tags(tx, [run.id] if TAGS_KEY in run.options else [])


def _insert_plain(tx: Transaction, runs: Sequence[NewRun]) -> None:
    single: list[tuple[object, ...]] = []
    tagged: list[str] = []
    for common, alike in groupby(runs, common_values):
        group = list(alike)
        if TAGS_KEY in group[0].options:
            tagged += [run.id for run in group]
        if len(group) < _FEW:
            single += [(run.id, run.args, *common) for run in group]
            continue
        tx.bulk(_Q["insert_rows"], single)
        single = []
        tx.bulk(_Q["insert_alike"], [(run.id, run.args) for run in group], common)
    tx.bulk(_Q["insert_rows"], single)
    keep_tags(tx, tagged)
    tx.events.extend([submitted(run) for run in runs])


def _insert_waiting(tx: Transaction, run: NewRun) -> None:
    upstreams, ending = _unmet_dependencies(tx, run)
    blocked_on = _full_gate(tx, run)
    waits_for = len(upstreams) + len(run.lines)
    gates = _encode([gate.name for gate in run.gates]).decode() if run.gates else None
    if waits_for:
        blocked_on = None  # It will find out at the gate, when it is free to go there.
    state: State = BLOCKED if waits_for or blocked_on else PENDING
    waits = (state, gates, blocked_on, len(run.lines), waits_for, bool(gates or run.expires_at is not None))
    cursor = tx.execute(_Q["insert"], (run.id, run.args, *shared_values(run), *waits))
    for upstream in upstreams:
        tx.execute(_Q["add_edge"], (upstream, run.id, run.when, run.on_failure))
        tx.execute(_Q["mark_upstream"], (upstream,))
    for line in run.lines:
        tx.execute(_Q["join_line"], (run.namespace, line.name, cursor.lastrowid, run.id, line.capacity))
        grant_line(tx, run.namespace, line.name)
    keep_tags(tx, [run.id] if TAGS_KEY in run.options else [])
    tx.events.append(submitted(run))
    if ending is not None:
        end_unstarted(tx, [(run.id, ending)])


def _unmet_dependencies(tx: Transaction, run: NewRun) -> tuple[list[str], Next | None]:
    def state_of(upstream: str) -> State | None:
        row = tx.execute(_Q["state_of"], (upstream, run.namespace)).fetchone()
        return None if row is None else row[0]

    return unmet_dependencies(run, state_of)


def _full_gate(tx: Transaction, run: NewRun) -> str | None:
    """The first of its gates at which it would have to wait now; the run that frees it admits the next one."""
    for gate in sorted(run.gates, key=lambda gate: gate.name):
        tx.execute(_Q["save_gate"], (run.namespace, gate.name, gate.capacity))
    for gate in run.gates:
        room, queue = tx.execute(_Q["gate_room"], (run.namespace, gate.name)).fetchone()
        if room <= 0 or queue:
            return gate.name
    return None
