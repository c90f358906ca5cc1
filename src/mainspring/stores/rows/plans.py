"""Plans of the planner, applied; and other zone data, taken in step by step."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Sequence
from functools import cached_property, partial
from typing import TypeVar

from mainspring.core.instants import Instant
from mainspring.core.model import Job, Term
from mainspring.core.planning.plans import Plan, PlannedFiring
from mainspring.core.planning.zone_data import STEP, ZoneRecord, ZoneStep, encode_record, move, read_record, take_up
from mainspring.core.states import FAILED, SKIPPED, State
from mainspring.store import Fired
from mainspring.stores.rows.definitions import StoredJobs, load_calendars
from mainspring.stores.rows.job_rows import check_term, job_event, read_jobs, read_page
from mainspring.stores.rows.planned import (
    Due,
    Entry,
    FiringEnd,
    Recorded,
    Task,
    applied,
    instants_of,
    judge_upstreams,
    skip_unknown_tasks,
)
from mainspring.stores.rows.transaction import Row, Transaction

log = logging.getLogger("mainspring")

Tx = TypeVar("Tx", bound=Transaction)


class StoredPlans(StoredJobs[Tx]):
    """The writes of `store.PlanStore`: each is work for a transaction."""

    @abstractmethod
    async def _find_unknown(self, tx: Tx, tasks: Sequence[Task]) -> Sequence[Row]:
        """Those of some tasks that no worker has known lately, though some worker of their namespace lives."""

    @abstractmethod
    def _is_plain(self, plan: Plan) -> bool:
        """Whether a plan needs nothing but to be written."""

    @abstractmethod
    async def _fire_plain(self, tx: Tx, plans: Sequence[Plan]) -> dict[str, Fired]:
        """Apply plain plans together: thousands of jobs may be due at one instant. What is not in the answer, by job,
        is applied one by one."""

    @abstractmethod
    async def _move_on(self, tx: Tx, plans: Sequence[Plan]) -> Collection[str]:
        """Move jobs past their plans; the ids of those that were still as planned from."""

    @abstractmethod
    async def _end_firings(self, tx: Tx, ends: Sequence[FiringEnd]) -> None:
        """Fill in the ledger, and make `after` jobs due that waited for it."""

    @cached_property
    def _known(self) -> dict[Task, Instant]:
        """Tasks that some worker knows, and until when that is cached."""
        return {}

    async def _fire(self, tx: Tx, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        if term is not None:
            check_term(term, await tx.fetchval(self._firings["term"], term.name))
        plans = await skip_unknown_tasks(tx, plans, self._known, partial(self._find_unknown, tx))
        if any(plan.kind == "after" or plan.job.policy.overlap == "replace" for plan in plans):
            await self._lock_changes(tx)  # What these end may make `after` jobs due.
        plain = [plan for plan in plans if self._is_plain(plan)]
        fired = await self._fire_plain(tx, plain) if plain else {}
        rest = [plan for plan in plans if plan.job.id not in fired]
        log.debug("fired %d jobs by fire_plain, %d by a transaction of several statements", len(fired), len(rest))
        if rest:
            fired |= await self._fire_rest(tx, rest)
        return await self._add_unapplied(tx, plans, fired)

    async def _fire_rest(self, tx: Tx, plans: Sequence[Plan]) -> dict[str, Fired]:
        due = [await judge_upstreams(tx, plan) if plan.kind == "after" else Due(plan) for plan in plans]
        moved = await self._move_on(tx, [each.plan for each in due])
        due = [each for each in due if each.plan.job.id in moved]
        recorded = await self._record(tx, [Entry(plan.job, plan.firings, plan.kind) for plan, _ in due])
        pairs = zip(due, recorded, strict=True)
        return {each.plan.job.id: await self._conclude(tx, each, found) for each, found in pairs}

    async def _conclude(self, tx: Tx, due: Due, recorded: Recorded) -> Fired:
        job, instants = due.plan.job, instants_of(due.plan)
        if recorded.instants < len(instants):
            await tx.run(self._firings["fired_before"], job.id, len(instants) - recorded.instants)
        if due.consumed:
            await tx.many(self._firings["consume"], [(job.id, upstream, fire_at) for upstream, fire_at in due.consumed])
            # A firing that ended without a run sets off the same as one whose run has ended.
            ended = [_end_of(job, firing) for firing in due.plan.firings if firing.outcome in ("failed", "skipped")]
            if ended:
                await self._end_firings(tx, ended)
        return applied(due.plan, recorded.instants, recorded.runs)

    async def _add_unapplied(self, tx: Tx, plans: Sequence[Plan], fired: dict[str, Fired]) -> list[Fired]:
        late = [plan.job.id for plan in plans if plan.job.id not in fired]
        if late:
            found = read_jobs(await tx.fetch(self._jobs["by_id"], tx.list_of(late)))
            jobs = {job.id: job for job in found if job.paused_at is None}
            fired |= {job_id: Fired(job_id, False, jobs.get(job_id)) for job_id in late}
        return [fired[plan.job.id] for plan in plans]

    async def _due_zones(self, tx: Transaction, version: str) -> ZoneRecord | None:
        """From where to go on with this version of the zone data; None if there is nothing to do."""
        return take_up(read_record(await tx.fetchval(self._jobs["zones"])), version, tx.now)

    async def _adopt_zones(self, tx: Tx, version: str) -> ZoneStep:
        """One step of `store.PlanStore.adopt_zones`."""
        await self._lock_changes(tx)
        record = await self._due_zones(tx, version)
        if record is None:
            return ZoneStep()
        step, last = ZoneStep(), None
        if record.after is not None:
            ids, last = read_page(await tx.fetch(self._jobs["in_zones"], record.after, STEP))
            jobs = sorted(await self._hold(tx, ids), key=lambda job: job.id)
            names = {job.namespace for job in jobs}
            found = move(jobs, tx.now, {name: await load_calendars(tx, name) for name in names})
            if found.jobs:
                await self._save(tx, [], found.jobs)
            why = f"zone data {version} came in"
            tx.events += [job_event("job.updated", job, tx.now, why) for job in found.jobs]
            last = found.last or last
            step = ZoneStep(len(found.jobs), last is not None, found.faults)
        await tx.run(self._jobs["save_zones"], encode_record(ZoneRecord(version, tx.now, last)))
        return step


def _end_of(job: Job, firing: PlannedFiring) -> FiringEnd:
    state: State = FAILED if firing.outcome == "failed" else SKIPPED
    return (job.id, firing.fire_at, job.policy.regions[0], 0, state, firing.reason)
