"""What the end of runs sets off, in the same transaction: gates and lines freed, dependants judged, the ledger filled
in.

An end may end others (a dependant whose upstream failed), so endings are processed in waves until there are none, or
enough: then recovery goes on with it. Each wave takes a few statements, however many runs it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from mainspring.core.instants import Instant
from mainspring.core.model import Event, named_queue
from mainspring.core.runs.dependency import GENERATION_COST, JUDGED_AT_ONCE, judge_dependants
from mainspring.core.runs.outcome import Ended, Next, unattempted
from mainspring.core.states import BLOCKED, CANCELLED, RUNNING, State
from mainspring.stores.postgres.claims.gates import leave_gates
from mainspring.stores.postgres.claims.lines import StoppedLine, leave_lines, lock_lines_of
from mainspring.stores.postgres.ends.aftermath import end_firings
from mainspring.stores.postgres.server.database import Record, Transaction
from mainspring.stores.rows.planned import FiringEnd, firing_ends
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "endings")

EndedRow = tuple[str, State, str | None, str, Instant | None, Instant, str | None, str | None, int, int]
"""Id, state, the attempt's outcome, reason, started, finished, result, error, attempts and losses to add."""


async def cancel_run(tx: Transaction, run_id: str, reason: str) -> State | None:
    """Cancel a run that has not started, or ask for the end of one that runs; None if it has ended or is unknown."""
    await lock_lines_of(tx, [run_id])
    state = await tx.fetchval(_Q["lock_run"], run_id)
    if state is None:
        return None
    if state != RUNNING:
        await end_unstarted(tx, [(run_id, Next(CANCELLED, reason))])
        return CANCELLED
    rows = await tx.fetch(_Q["request_cancel"], run_id, tx.now, reason)
    for namespace, job_id, job, task, worker in rows:
        tx.events.append(Event("run.cancelling", tx.now, namespace, run_id, job_id, job, task, worker, reason=reason))
    tx.changed = True
    return RUNNING


async def end_unstarted(tx: Transaction, endings: Iterable[tuple[str, Next]]) -> int:
    """End runs that are blocked or pending, and all that follows from it; how many of the given ones ended."""
    verdicts = dict(endings)
    if not verdicts:
        return 0
    await lock_lines_of(tx, list(verdicts))
    ended = await _move(tx, verdicts)
    await follow(tx, ended)
    return len(ended)


async def _move(tx: Transaction, verdicts: dict[str, Next]) -> list[Ended]:
    rows = {row["id"]: row for row in await tx.fetch(_Q["lock_unstarted"], list(verdicts))} if verdicts else {}
    if not rows:
        return []
    ended = [_ended(rows[run_id], verdict) for run_id, verdict in verdicts.items() if run_id in rows]
    await move_to_history(tx, [(run.id, *unattempted(Next(run.state, run.reason), tx.now)) for run in ended])
    blocked = [run_id for run_id, row in rows.items() if row["state"] == BLOCKED]
    if blocked:
        await tx.run(_Q["drop_edges"], blocked)
    for run in ended:
        row = rows[run.id]
        tx.events.append(
            Event("run." + run.state, tx.now, run.namespace, run.id, run.job_id, row["job"], row["task"], None,
                  run.fire_at, reason=run.reason, queue=named_queue(row["queue"]))
        )  # fmt: skip
    return ended


def _ended(row: Record, verdict: Next) -> Ended:
    run_id, namespace, _, _, job_id, _, fire_at, region, idx, dependants, lines, gates, options, _ = row
    return Ended(run_id, namespace, verdict.state, verdict.reason, job_id, fire_at, region, idx, dependants, lines,
                 gates, False, options)  # fmt: skip


async def move_to_history(tx: Transaction, rows: Sequence[EndedRow]) -> None:
    """Runs that have ended, and are locked, leave the hot table."""
    await tx.run(_Q["to_history"], *zip(*rows, strict=True))


async def follow_postponed(tx: Transaction) -> bool:
    """Judge dependants, and end what waits in a line that a failure stops, where earlier transactions have left some;
    returns whether some may be left again."""
    upstreams = {row[0]: row[1] for row in await tx.fetch(_Q["take_ended_upstreams"], JUDGED_AT_ONCE)}
    stop = await StoppedLine.find(tx)
    if stop is None:
        return await follow(tx, [], upstreams) or len(upstreams) == JUDGED_AT_ONCE
    waiting = await stop.waiting(tx, JUDGED_AT_ONCE)
    await lock_lines_of(tx, list(waiting))
    await follow(tx, await _move(tx, waiting), upstreams)
    if len(waiting) < JUDGED_AT_ONCE:
        await stop.leave(tx)
    return True


async def follow(
    tx: Transaction, ended: Sequence[Ended], upstreams: Mapping[str, State] = MappingProxyType({})
) -> bool:
    """Process what these endings set off, and the dependants of runs that ended before; returns whether dependants are
    left for recovery."""
    firings: list[FiringEnd] = []
    wave, awaited, room = list(ended), dict(upstreams), JUDGED_AT_ONCE
    while wave or (awaited and room > 0):
        tx.changed = True
        firings += firing_ends(wave)
        verdicts: dict[str, Next] = {}
        if in_lines := [(run.id, run.state, run.options) for run in wave if run.lines]:
            verdicts.update(await leave_lines(tx, in_lines, max(room, 0)))
            room -= len(verdicts)
        awaited.update({run.id: run.state for run in wave if run.dependants})
        if awaited and room > 0:
            ends, judged = await _judge_dependants(tx, awaited, room)
            verdicts.update(ends)
            if judged < room:
                awaited.clear()
            room -= judged + GENERATION_COST
        if gated := [(run.namespace, run.gates, run.ran) for run in wave if run.gates]:
            await leave_gates(tx, gated)
        wave = await _move(tx, verdicts)
    if firings:
        await end_firings(tx, firings)
    if awaited:
        await tx.run(_Q["postpone_dependants"], list(awaited), list(awaited.values()))
    return bool(awaited)


async def _judge_dependants(tx: Transaction, ended: dict[str, State], limit: int) -> tuple[dict[str, Next], int]:
    """Free runs that waited for ended ones; returns those that end with them, and how many dependencies were judged:
    all, if fewer than the limit.

    They are locked before the edges: a run that waits for any of two that end at once would otherwise be freed by both,
    each of which would wait for the other's deleted edges.
    """
    pairs = await tx.fetch(_Q["dependants"], list(ended), limit)
    upstreams, waiting = list({row[0] for row in pairs}), list({row[1] for row in pairs})
    await tx.fetch(_Q["lock_unstarted"], waiting)
    found = judge_dependants(await tx.fetch(_Q["take_edges"], upstreams, waiting), ended)
    if found.freed:
        found.met.update([row[0] for row in await tx.fetch(_Q["drop_edges"], list(found.freed))])
    if going_on := sorted(found.met.keys() - found.ends.keys()):
        rows = await tx.fetch(_Q["depend_less"], going_on, [found.met[run_id] for run_id in going_on])
        tx.events += [
            Event("dependency.ready", tx.now, namespace, run_id, job_id, job, task, None, fire_at,
                  reason=found.reasons[run_id])
            for run_id, namespace, job_id, job, task, fire_at, ready in rows
            if ready
        ]  # fmt: skip
    return found.ends, len(pairs)
