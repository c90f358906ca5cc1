"""What the end of runs sets off, in the same transaction: gates and lines freed, dependants judged, the ledger filled
in.

An end may end others (a dependant whose upstream failed), so endings are processed from a list until it is empty, or
long enough: then recovery goes on with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Edge, Event, named_queue
from mainspring.core.runs.dependency import (
    GENERATION_COST,
    JUDGED_AT_ONCE,
    Fire,
    Wait,
    combined_outcome,
    judge_dependants,
    judge_edges,
)
from mainspring.core.runs.outcome import Ended, Next, stopped_by, stops_line, unattempted
from mainspring.core.schedules.triggers import AfterTrigger, Trigger
from mainspring.core.states import BLOCKED, CANCELLED, RUNNING, State
from mainspring.stores.rows.planned import FiringEnd, firing_ends
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "endings")
_JOBS = load_queries("sqlite", "jobs")
_FIRINGS = load_queries("sqlite", "firings")
_encode = msgspec.json.Encoder().encode
_names = msgspec.json.Decoder(list[str])
_trigger: msgspec.json.Decoder[Trigger] = msgspec.json.Decoder(Trigger)


EndedRow = tuple[int, State, str | None, str, Instant | None, Instant, str | None, str | None, int, int]
"""Seq, state, the attempt's outcome, reason, started, finished, result, error, attempts and losses to add."""

SucceededRow = tuple[int, Instant | None, Instant, str | None]
"""Seq, started, finished, result."""


def cancel_run(tx: Transaction, run_id: str, reason: str) -> State | None:
    """Cancel a run that has not started, or ask for the end of one that runs; None if it has ended or is unknown."""
    if end_unstarted(tx, [(run_id, Next(CANCELLED, reason))]):
        return CANCELLED
    running = tx.execute(_Q["request_cancel"], (tx.now, reason, run_id)).fetchone()
    if running is None:
        return None
    namespace, job_id, job, task, worker = running
    tx.events.append(Event("run.cancelling", tx.now, namespace, run_id, job_id, job, task, worker, reason=reason))
    tx.changed = True
    return RUNNING


def end_unstarted(tx: Transaction, endings: Iterable[tuple[str, Next]]) -> int:
    """End runs that are blocked or pending, and all that follows from it; how many of the given ones ended."""
    ended = _move(tx, endings)
    follow(tx, ended)
    return len(ended)


def _move(tx: Transaction, endings: Iterable[tuple[str, Next]]) -> list[Ended]:
    """All at once: ten thousand dependants may end with one run, and every other write waits for that."""
    rows, verdicts = dict[str, tuple[Any, ...]](), dict[str, Next]()
    for run_id, verdict in endings:
        row = tx.execute(_Q["unstarted"], (run_id,)).fetchone()
        if row is not None and run_id not in rows:
            rows[run_id], verdicts[run_id] = row, verdict
    if not rows:
        return []
    move_to_history(tx, [(row[0], *unattempted(verdicts[run_id], tx.now)) for run_id, row in rows.items()])
    tx.executemany(_Q["drop_edges"], [(run_id,) for run_id, row in rows.items() if row[4] == BLOCKED])
    ended = []
    for run_id, row in rows.items():
        _, _, namespace, task, _, job_id, job, fire_at, region, idx, dependants, lines, gates, options, queue = row
        state, reason = verdicts[run_id].state, verdicts[run_id].reason
        tx.events.append(
            Event(
                f"run.{state}",
                tx.now,
                namespace,
                run_id,
                job_id,
                job,
                task,
                None,
                fire_at,
                reason=reason,
                queue=named_queue(queue),
            )
        )
        names = None if gates is None else _names.decode(gates)
        ended.append(Ended(run_id, namespace, state, reason, job_id, fire_at, region, idx, dependants, lines,
                           names, False, options))  # fmt: skip
    return ended


def move_to_history(tx: Transaction, rows: Sequence[EndedRow]) -> None:
    """Runs that have ended leave the hot table."""
    tx.bulk(_Q["to_history"], rows)
    _forget(tx, rows)


def move_succeeded(tx: Transaction, rows: Sequence[SucceededRow]) -> None:
    """As `move_to_history`, for runs that succeeded and have neither reason nor error."""
    tx.bulk(_Q["succeed"], rows)
    _forget(tx, rows)


def _forget(tx: Transaction, rows: Sequence[EndedRow | SucceededRow]) -> None:
    seqs = (_encode([row[0] for row in rows]).decode(),)
    tx.execute(_Q["forget_tags"], seqs)
    tx.execute(_Q["forget_runs"], seqs)


def follow_postponed(tx: Transaction) -> bool:
    """Judge dependants, and end what waits in a line that a failure stops, where earlier transactions have left some;
    returns whether some may be left again."""
    upstreams = tx.execute(_Q["take_ended_upstreams"], (JUDGED_AT_ONCE,)).fetchall()
    stop = tx.execute(_Q["stopped_line"]).fetchone()
    if stop is None:
        return follow(tx, [], upstreams) or len(upstreams) == JUDGED_AT_ONCE
    run_id, namespace, name, until = stop
    waiting = tx.execute(_Q["waiting_in_line"], (namespace, name, until, JUDGED_AT_ONCE)).fetchall()
    verdict = stopped_by(run_id, name)
    follow(tx, _move(tx, [(row[0], verdict) for row in waiting]), upstreams)
    if len(waiting) < JUDGED_AT_ONCE:
        tx.execute(_Q["forget_stop"], (run_id, name))
        tx.execute(_Q["leave_line"], (run_id, name))
        grant_line(tx, namespace, name)
        tx.changed = True
    return True


def follow(tx: Transaction, ended: Sequence[Ended], upstreams: Sequence[tuple[str, State]] = ()) -> bool:
    """Process what these endings set off, and the dependants of runs that ended before; returns whether dependants are
    left for recovery."""
    firings: list[FiringEnd] = []
    work, awaited, room = list(ended), list(upstreams), JUDGED_AT_ONCE
    while work or (awaited and room > 0):
        if not work:
            upstream, state = awaited.pop()
            ends, judged = _judge_dependants(tx, upstream, state, room)
            if judged == room:
                awaited.append((upstream, state))
            room -= judged + GENERATION_COST
            work += _move(tx, ends)
            tx.changed = True
            continue
        run = work.pop()
        firings += firing_ends([run])
        if run.gates:
            leave_gates(tx, run.namespace, run.gates, held=run.ran)
        if run.lines:
            stopped = _leave_lines(tx, run, max(room, 0))
            room -= len(stopped)
            work += _move(tx, stopped)
        if run.dependants:
            awaited.append((run.id, run.state))
        tx.changed = True
    end_firings(tx, firings)
    tx.executemany(_Q["postpone_dependants"], awaited)
    return bool(awaited)


def end_firings(tx: Transaction, ends: Sequence[FiringEnd]) -> None:
    """Fill in the ledger, and make `after` jobs due that waited for it."""
    if ends:
        tx.executemany(_Q["end_firing"], [(*end, tx.now) for end in ends])
        _tell_downstream(tx, dict.fromkeys((end[0], end[1]) for end in ends))


def leave_gates(tx: Transaction, namespace: str, gates: Sequence[str], *, held: bool) -> None:
    """Free the run's slots at gates, and admit waiting runs. A run that never ran holds no slot, but a waiting run may
    still be admitted."""
    for name in sorted(gates):
        if held:
            tx.execute(_Q["leave_gate"], (namespace, name))
        tx.execute(_Q["promote_at_gate"], (namespace, name))


def _leave_lines(tx: Transaction, run: Ended, room: int) -> list[tuple[str, Next]]:
    """Free the run's slots in lines, and admit the next ones; returns those that end because of it, as many as there is
    room for. If more wait, the run keeps its place until recovery has ended them: none may begin."""
    stopped: list[tuple[str, Next]] = []
    places = tx.execute(_Q["leave_lines"], (run.id,)).fetchall()
    for namespace, name, seq in places:
        if verdict := stops_line(run.id, run.state, run.options, name):
            until = tx.execute(_Q["last_in_line"], (namespace, name)).fetchone()[0]
            left = room - len(stopped)
            waiting = tx.execute(_Q["waiting_in_line"], (namespace, name, until, left + 1)).fetchall()
            stopped += [(row[0], verdict) for row in waiting[:left]]
            if len(waiting) > left:
                tx.execute(_Q["keep_place"], (namespace, name, seq, run.id))
                tx.execute(_Q["stop_line"], (run.id, namespace, name, until))
        grant_line(tx, namespace, name)
    return stopped


def grant_line(tx: Transaction, namespace: str, name: str) -> None:
    """Admit as many waiting runs of a line as it has free slots, in order."""
    while following := tx.execute(_Q["next_in_line"], (namespace, name)).fetchone():
        seq, run_id, capacity = following
        if tx.execute(_Q["granted_in_line"], (namespace, name, capacity)).fetchone()[0] >= capacity:
            return
        tx.execute(_Q["grant_line"], (namespace, name, seq))
        tx.execute(_Q["wait_less"], (1, run_id))


def _judge_dependants(tx: Transaction, upstream: str, state: State, limit: int) -> tuple[list[tuple[str, Next]], int]:
    """Count down what dependants wait for; returns those that end, and how many dependencies were judged. A run that
    depends on no other any more is an event."""
    edges = [(upstream, *row) for row in tx.execute(_Q["take_edges"], (upstream, limit)).fetchall()]
    found = judge_dependants(edges, {upstream: state})
    for run_id, met in found.met.items():
        if run_id in found.ends:
            continue
        dropped = tx.execute(_Q["drop_edges"], (run_id,)).rowcount if run_id in found.freed else 0
        rows = tx.execute(_Q["depend_less"], (met + dropped, run_id)).fetchall()
        for namespace, job_id, job, task, fire_at, ready in rows:
            if ready:
                tx.events.append(Event("dependency.ready", tx.now, namespace, run_id, job_id, job, task, None, fire_at,
                                       reason=found.reasons[run_id]))  # fmt: skip
    return list(found.ends.items()), len(edges)


def _tell_downstream(tx: Transaction, firings: Collection[tuple[str, Instant]]) -> None:
    """Let `after` jobs know of firings that have ended; the planner fires those that are now due."""
    upstreams = _encode([job_id for job_id, _ in firings]).decode()
    downstream: dict[str, list[str]] = {}
    for upstream, job in tx.execute(_Q["downstream_jobs"], (upstreams,)):
        downstream.setdefault(upstream, []).append(job)
    for job_id, fire_at in firings:
        if job_id not in downstream:
            continue
        outcome = combined_outcome([row[0] for row in tx.execute(_FIRINGS["outcomes"], (job_id, fire_at))])
        if outcome == "fired":
            continue
        tx.execute(_Q["note_upstream"], (fire_at, outcome, job_id))
        for job in downstream[job_id]:
            _judge_job(tx, job)


def _judge_job(tx: Transaction, job_id: str) -> None:
    written, namespace, name, task = tx.execute(_Q["trigger_of"], (job_id,)).fetchone()
    trigger = _trigger.decode(written)
    if not isinstance(trigger, AfterTrigger):
        return
    edges = [Edge(*row) for row in tx.execute(_JOBS["edges"], (job_id,))]
    verdict = judge_edges(trigger.when, trigger.on_failure, edges)
    if not isinstance(verdict, Wait) and make_due(tx, job_id) and isinstance(verdict, Fire):
        tx.events.append(Event("dependency.ready", tx.now, namespace, None, job_id, name, task))


def make_due(tx: Transaction, job_id: str) -> bool:
    """Make an `after` job due; returns whether it was not due already."""
    change = tx.execute(_JOBS["next_change"]).fetchone()[0]
    tx.changed = True
    return tx.execute(_Q["make_due"], (tx.now, change, job_id)).rowcount > 0
