"""The planner's part of the store: due jobs, changed jobs, and writing plans."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Job, Term
from mainspring.core.planning.plans import KNOWN_FOR, LIVE_FOR, Plan, encode_options
from mainspring.core.planning.zone_data import ZoneStep
from mainspring.store import MOST_CHANGED, Fired
from mainspring.stores.postgres.definitions.jobs import Jobs
from mainspring.stores.postgres.ends.aftermath import end_firings
from mainspring.stores.postgres.server.database import Record, Transaction
from mainspring.stores.rows.job_rows import firing_event, read_jobs
from mainspring.stores.rows.planned import FiringEnd, Task, instants_of
from mainspring.stores.rows.plans import StoredPlans
from mainspring.stores.rows.run_rows import submitted
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "firings")
_JOBS = load_queries("postgres", "jobs")


class Plans(Jobs, StoredPlans[Transaction]):
    """See `store.PlanStore`."""

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
        if await self._db.read(lambda tx: self._due_zones(tx, version)) is None:
            return ZoneStep()
        return await self._db.write(lambda tx: self._adopt_zones(tx, version), patient=True)

    async def fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        return await self._db.write(lambda tx: self._fire(tx, plans, term))

    async def _find_unknown(self, tx: Transaction, tasks: Sequence[Task]) -> Sequence[Record]:
        columns = [list(column) for column in zip(*tasks, strict=True)]
        return await tx.fetch(_Q["unknown_tasks"], *columns, tx.now - LIVE_FOR, tx.now - KNOWN_FOR)

    def _is_plain(self, plan: Plan) -> bool:
        """One instant, and one run that waits for nothing but its time and has the options of its job: so neither the
        end of a total timeout nor the context of a trace."""
        job = plan.job
        if plan.kind != "scheduled" or job.policy.overlap != "allow" or job.policy.dependencies:
            return False
        if len(plan.firings) != 1:
            return False
        firing = plan.firings[0]
        if firing.outcome != "fired" or firing.fire_at != job.next_fire_at or len(firing.runs) != 1:
            return False
        run = firing.runs[0]
        return not (run.gates or run.lines or run.after) and run.options == encode_options(job)

    async def _fire_plain(self, tx: Transaction, plans: Sequence[Plan]) -> dict[str, Fired]:
        """One statement, in order of job. Those that it does not move have changed meanwhile, or their instant is in
        the ledger."""
        plans = sorted(plans, key=lambda plan: plan.job.id)
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

    async def _move_on(self, tx: Transaction, plans: Sequence[Plan]) -> set[str]:
        columns: list[list[object]] = [[], [], [], [], [], []]
        for plan in plans:
            job, instants = plan.job, instants_of(plan)
            last = max(instants, default=None)
            values = (job.id, job.version, job.next_fire_at, plan.next_fire_at, len(instants), last)
            for column, value in zip(columns, values, strict=True):
                column.append(value)
        return {row[0] for row in await tx.fetch(_Q["move_on"], *columns)}

    async def _end_firings(self, tx: Transaction, ends: Sequence[FiringEnd]) -> None:
        await end_firings(tx, ends)
