"""Accepting runs: into the queue, behind their dependencies, in their lines, at their gates."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.dependency import End, Free, after_upstream
from mainspring.core.model import Event, Gate, NewRun
from mainspring.core.outcome import Next
from mainspring.core.states import BLOCKED, FINAL, PENDING, State
from mainspring.errors import InvalidInput
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.database import Transaction
from mainspring.stores.sqlite.endings import end_unstarted

_Q = load_queries("sqlite", "runs")
_encode = msgspec.json.Encoder().encode


def insert_runs(tx: Transaction, runs: Sequence[NewRun]) -> None:
    """Accept runs in this order. One whose id exists already is left alone."""
    known = {row[0] for row in tx.execute(_Q["known"], (_encode([run.id for run in runs]).decode(),))}
    fresh = [run for run in runs if run.id not in known] if known else runs
    plain: list[NewRun] = []
    for run in fresh:
        if run.after or run.lines or run.gates:
            # The order of commits is the order in lines: what came before must be in the table first.
            _insert_plain(tx, plain)
            plain = []
            _insert_waiting(tx, run)
        else:
            plain.append(run)
    _insert_plain(tx, plain)
    tx.changed = True


def _insert_plain(tx: Transaction, runs: Sequence[NewRun]) -> None:
    if not runs:
        return
    tx.executemany(_Q["insert"], [_row(run, PENDING) for run in runs])
    tx.events.extend([_submitted(run) for run in runs])


def _submitted(run: NewRun) -> Event:
    return Event("run.submitted", run.created_at, run.namespace, run.id, run.job_id, run.job, run.task)


def _row(
    run: NewRun, state: State, *, waits_for: int = 0, blocked_on: str | None = None, gates: str | None = None
) -> tuple[object, ...]:
    return (
        run.id,
        run.namespace,
        run.queue,
        run.region,
        run.task,
        run.args,
        run.options,
        state,
        "",
        run.priority,
        run.due_at,
        run.expires_at,
        run.job_id,
        run.job,
        run.fire_at,
        run.idx,
        run.key,
        gates,
        blocked_on,
        len(run.lines),
        waits_for,
        1 if gates else 0,
        run.retry_of,
        run.created_at,
    )


def _insert_waiting(tx: Transaction, run: NewRun) -> None:
    upstreams, ending = _unmet_dependencies(tx, run)
    grants = [_has_room(tx, run, line) for line in run.lines]
    waits_for = len(upstreams) + grants.count(False)
    blocked_on = _full_gate(tx, run) if not waits_for else None
    gates = _encode([gate.name for gate in run.gates]).decode() if run.gates else None
    state: State = BLOCKED if waits_for or blocked_on else PENDING
    cursor = tx.execute(_Q["insert"], _row(run, state, waits_for=waits_for, blocked_on=blocked_on, gates=gates))
    seq = cursor.lastrowid
    for line, granted in zip(run.lines, grants, strict=True):
        tx.execute(_Q["join_line"], (run.namespace, line.name, seq, run.id, line.capacity, granted))
    for upstream in upstreams:
        tx.execute(_Q["add_edge"], (upstream, run.id, run.when, run.on_failure))
        tx.execute(_Q["mark_upstream"], (upstream,))
    tx.events.append(_submitted(run))
    if ending is not None:
        end_unstarted(tx, [(run.id, ending)])


def _unmet_dependencies(tx: Transaction, run: NewRun) -> tuple[list[str], Next | None]:
    """The runs that it must still wait for; and its end, if one that has already ended decides it."""
    waiting = []
    for upstream in dict.fromkeys(run.after):
        row = tx.execute(_Q["state_of"], (upstream,)).fetchone()
        if row is None:
            raise InvalidInput("after", upstream, "is not a run", "name a run that was submitted before")
        if row[0] not in FINAL:
            waiting.append(upstream)
            continue
        verdict = after_upstream(run.when, run.on_failure, upstream, row[0])
        if isinstance(verdict, Free):
            return [], None
        if isinstance(verdict, End):
            return [], Next(verdict.state, verdict.reason)
    return waiting, None


def _has_room(tx: Transaction, run: NewRun, line: Gate) -> bool:
    row = tx.execute(_Q["granted_in_line"], (run.namespace, line.name, line.capacity)).fetchone()
    return bool(row[0] < line.capacity)


def _full_gate(tx: Transaction, run: NewRun) -> str | None:
    """The first of its gates at which it would have to wait now; whoever frees it lets the next one in."""
    for gate in sorted(run.gates, key=lambda gate: gate.name):
        tx.execute(_Q["save_gate"], (run.namespace, gate.name, gate.capacity))
    for gate in run.gates:
        room, queue = tx.execute(_Q["gate_room"], (run.namespace, gate.name)).fetchone()
        if room <= 0 or queue:
            return gate.name
    return None
