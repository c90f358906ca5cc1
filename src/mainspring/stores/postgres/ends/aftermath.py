"""Records the outcomes of firings in the ledger, and makes the `after` jobs due that wait for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Edge, Event
from mainspring.core.runs.dependency import Fire, Wait, combined_outcome, judge_edges
from mainspring.core.schedules.triggers import AfterTrigger, Trigger
from mainspring.core.states import State
from mainspring.stores.postgres.definitions.job_rows import lock_changes, mark_changed
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.rows.planned import FiringEnd
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "endings")
_JOBS = load_queries("postgres", "jobs")
_FIRINGS = load_queries("postgres", "firings")
_trigger: msgspec.json.Decoder[Trigger] = msgspec.json.Decoder(Trigger)


async def end_firings(tx: Transaction, ends: Sequence[FiringEnd]) -> None:
    """Fill in the ledger, and make `after` jobs due that waited for it."""
    alike: dict[tuple[State, str], list[FiringEnd]] = defaultdict(list)
    for end in sorted(ends):
        alike[end[4:]].append(end)
    for (state, reason), group in sorted(alike.items()):
        jobs, instants, regions, numbers = list(zip(*group, strict=True))[:4]
        await tx.run(_Q["end_firings"], state, reason, tx.now, jobs, instants, regions, numbers)
    await _tell_downstream(tx, sorted({end[:2] for end in ends}))


async def _tell_downstream(tx: Transaction, firings: Collection[tuple[str, Instant]]) -> None:
    """Let `after` jobs know of firings that have ended; the planner fires those that are now due."""
    downstream: dict[str, list[str]] = defaultdict(list)
    for upstream, job in await tx.fetch(_Q["downstream_jobs"], sorted({job_id for job_id, _ in firings})):
        downstream[upstream].append(job)
    firings = [firing for firing in firings if firing[0] in downstream]
    if not firings:
        return
    # Of two runs of one firing that end at once, each must see the other's end, or neither would report it.
    jobs, instants = zip(*firings, strict=True)
    await tx.fetchval(_Q["lock_firings"], jobs, instants)
    touched: dict[str, None] = {}
    for job_id, fire_at in firings:
        outcome = combined_outcome([row[0] for row in await tx.fetch(_FIRINGS["outcomes"], job_id, fire_at)])
        if outcome != "fired":
            if not touched:
                await lock_changes(tx)
            await tx.run(_Q["note_upstream"], fire_at, outcome, job_id)
            touched.update(dict.fromkeys(downstream[job_id]))
    due = [job for job in touched if await _make_due(tx, job)]
    if due:
        await mark_changed(tx, due)
        tx.changed = True


async def _make_due(tx: Transaction, job_id: str) -> bool:
    rows = await tx.fetch(_Q["trigger_of"], job_id)
    trigger = _trigger.decode(rows[0][0]) if rows else None
    if not isinstance(trigger, AfterTrigger):
        return False
    edges = [Edge(*row) for row in await tx.fetch(_JOBS["edges"], job_id)]
    verdict = judge_edges(trigger.when, trigger.on_failure, edges)
    if isinstance(verdict, Wait) or not await tx.run(_Q["make_due"], tx.now, job_id):
        return False
    if isinstance(verdict, Fire):
        _, namespace, name, task = rows[0]
        tx.events.append(Event("dependency.ready", tx.now, namespace, None, job_id, name, task))
    return True
