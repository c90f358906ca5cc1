"""The planner's part of the store: due jobs, changed jobs, and writing plans."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property, partial

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Job, Term
from mainspring.core.planning.plans import (
    KNOWN_FOR,
    LIVE_FOR,
    Plan,
    PlannedFiring,
    encode_options,
)
from mainspring.core.planning.zone_data import ZoneStep, take_up
from mainspring.core.states import FAILED, SKIPPED, State
from mainspring.store import MOST_CHANGED, Fired
from mainspring.stores.postgres.definitions.firing import record
from mainspring.stores.postgres.definitions.job_rows import lock_changes
from mainspring.stores.postgres.definitions.jobs import adopt_zones, known_zones
from mainspring.stores.postgres.ends.aftermath import Outcome, end_firings
from mainspring.stores.postgres.server.database import Database, Record, Transaction
from mainspring.stores.rows.job_rows import check_term, firing_event, read_jobs
from mainspring.stores.rows.planned import (
    Due,
    Entry,
    Recorded,
    Task,
    applied,
    instants_of,
    judge_upstreams,
    skip_unknown_tasks,
)
from mainspring.stores.rows.run_rows import submitted
from mainspring.stores.sql import load_queries

log = logging.getLogger("mainspring")

_Q = load_queries("postgres", "firings")
_JOBS = load_queries("postgres", "jobs")


class Plans:
    """See `store.PlanStore`."""

    _db: Database

    async def due_jobs(self, until: Instant, limit: int) -> list[Job]:
        async def work(tx: Transaction) -> list[Job]:
            rows = await tx.fetch(_JOBS["due"], until, limit)
            names = [row[0] for row in await tx.fetch(_JOBS["namespaces_due"], until)] if len(rows) >= limit else []
            if len(names) > 1:
                share = max(limit // len(names), 1)
                rows = await tx.fetch(_JOBS["due_in_shares"], names, until, share, limit)
            return read_jobs(rows)

        return await self._db.read(work)

    async def changed_jobs(self, since: int, limit: int = MOST_CHANGED) -> tuple[int, list[Job]]:
        async def work(tx: Transaction) -> tuple[int, list[Job]]:
            # In this order: a change in between is then read twice, not never.
            newest = int(await tx.fetchval(_JOBS["newest_change"]))
            return newest, read_jobs(await tx.fetch(_JOBS["changed"], since, limit + 1)) if newest > since else []

        return await self._db.read(work)

    async def adopt_zones(self, version: str) -> ZoneStep:
        async def is_settled(tx: Transaction) -> bool:
            return take_up(await known_zones(tx), version, tx.now) is None

        if await self._db.read(is_settled):
            return ZoneStep()
        return await self._db.write(lambda tx: adopt_zones(tx, version), patient=True)

    async def fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        return await self._db.write(lambda tx: _fire(tx, plans, term, self._known))

    @cached_property
    def _known(self) -> dict[Task, Instant]:
        """Tasks that some worker knows, and until when that is cached."""
        return {}


async def _fire(tx: Transaction, plans: Sequence[Plan], term: Term | None, known: dict[Task, Instant]) -> list[Fired]:
    if term is not None:
        check_term(term, await tx.fetchval(_Q["term"], term.name))
    plans = await skip_unknown_tasks(tx, plans, known, partial(_find_unknown, tx))
    if any(plan.kind == "after" or plan.job.policy.overlap == "replace" for plan in plans):
        await lock_changes(tx)  # What these end may make `after` jobs due.
    plain = sorted([plan for plan in plans if _is_plain(plan)], key=lambda plan: plan.job.id)
    fired = await _fire_plain(tx, plain) if plain else {}
    rest = [plan for plan in plans if plan.job.id not in fired]
    log.debug("fired %d jobs by fire_plain, %d by a transaction of several statements", len(fired), len(rest))
    if rest:
        fired |= await _fire_rest(tx, rest)
    return await _add_unapplied(tx, plans, fired)


async def _find_unknown(tx: Transaction, tasks: Sequence[Task]) -> Sequence[Record]:
    columns = [list(column) for column in zip(*tasks, strict=True)]
    return await tx.fetch(_Q["unknown_tasks"], *columns, tx.now - LIVE_FOR, tx.now - KNOWN_FOR)


def _is_plain(plan: Plan) -> bool:
    """Whether a plan needs nothing but to be written: one instant, and one run that waits for nothing but its time and
    has the options of its job: so neither the end of a total timeout nor the context of a trace."""
    job = plan.job
    if plan.kind != "scheduled" or job.policy.overlap != "allow" or job.policy.dependencies or len(plan.firings) != 1:
        return False
    firing = plan.firings[0]
    if firing.outcome != "fired" or firing.fire_at != job.next_fire_at or len(firing.runs) != 1:
        return False
    run = firing.runs[0]
    return not (run.gates or run.lines or run.after) and run.options == encode_options(job)


async def _fire_plain(tx: Transaction, plans: Sequence[Plan]) -> dict[str, Fired]:
    """Thousands of jobs may be due at one instant: one statement for all of them. Those that it does not move have
    changed meanwhile, or their instant is in the ledger: they are looked at one by one."""
    runs = [plan.firings[0].runs[0] for plan in plans]
    columns = (
        [plan.job.id for plan in plans],
        [plan.job.version for plan in plans],
        [run.fire_at for run in runs],
        [plan.next_fire_at for plan in plans],
        [run.id for run in runs],
        [run.due_at for run in runs],
        [run.expires_at for run in runs],
        [run.region for run in runs],
    )
    moved = {row[0] for row in await tx.fetch(_Q["fire_plain"], *columns, tx.now)}
    fired: dict[str, Fired] = {}
    for plan, run in zip(plans, runs, strict=True):
        job = plan.job
        if job.id in moved:
            fire_at = plan.firings[0].fire_at
            tx.events.append(firing_event(tx.now, "fired", job, fire_at, "", 1))
            tx.events.append(submitted(run))
            now = msgspec.structs.replace(
                job,
                next_fire_at=plan.next_fire_at,
                fired=job.fired + 1,
                last_fire_at=max(fire_at, job.last_fire_at or 0),
            )
            fired[job.id] = Fired(job.id, True, now, 1)
            tx.changed = True
    return fired


async def _fire_rest(tx: Transaction, plans: Sequence[Plan]) -> dict[str, Fired]:
    due = [await judge_upstreams(tx, plan) if plan.kind == "after" else Due(plan) for plan in plans]
    moved = await _move_on(tx, [each.plan for each in due])
    due = [each for each in due if each.plan.job.id in moved]
    recorded = await record(tx, [Entry(plan.job, plan.firings, plan.kind) for plan, _ in due])
    return {each.plan.job.id: await _conclude(tx, each, found) for each, found in zip(due, recorded, strict=True)}


async def _move_on(tx: Transaction, plans: Sequence[Plan]) -> set[str]:
    """Move jobs past their plans; the ids of those that were still as planned from."""
    columns: list[list[object]] = [[], [], [], [], [], []]
    for plan in plans:
        job, instants = plan.job, instants_of(plan)
        values = (job.id, job.version, job.next_fire_at, plan.next_fire_at, len(instants), max(instants, default=None))
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    return {row[0] for row in await tx.fetch(_Q["move_on"], *columns)}


async def _conclude(tx: Transaction, due: Due, recorded: Recorded) -> Fired:
    job, instants = due.plan.job, instants_of(due.plan)
    if recorded.instants < len(instants):
        await tx.run(_Q["fired_before"], job.id, len(instants) - recorded.instants)
    if due.consumed:
        await _consume(tx, due)
    return applied(due.plan, recorded.instants, recorded.runs)


async def _consume(tx: Transaction, due: Due) -> None:
    job = due.plan.job
    await tx.many(_Q["consume"], [(job.id, upstream, fire_at) for upstream, fire_at in due.consumed])
    # A firing that ended without a run sets off the same as one whose run has ended.
    ended = [_outcome(job, firing) for firing in due.plan.firings if firing.outcome in ("failed", "skipped")]
    if ended:
        await end_firings(tx, ended)


def _outcome(job: Job, firing: PlannedFiring) -> Outcome:
    state: State = FAILED if firing.outcome == "failed" else SKIPPED
    return (job.id, firing.fire_at, job.policy.regions[0], 0, state, firing.reason)


async def _add_unapplied(tx: Transaction, plans: Sequence[Plan], fired: dict[str, Fired]) -> list[Fired]:
    late = [plan.job.id for plan in plans if plan.job.id not in fired]
    if late:
        jobs = {job.id: job for job in read_jobs(await tx.fetch(_JOBS["by_id"], late)) if job.paused_at is None}
        fired |= {job_id: Fired(job_id, False, jobs.get(job_id)) for job_id in late}
    return [fired[plan.job.id] for plan in plans]
