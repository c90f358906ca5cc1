"""The planner's part of the store: due jobs, changed jobs, and writing plans."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.instants import Instant
from mainspring.core.model import Job, Term
from mainspring.core.planning.plans import KNOWN_FOR, LIVE_FOR, Plan
from mainspring.core.planning.zone_data import ZoneStep
from mainspring.store import MOST_CHANGED, Fired
from mainspring.stores.rows.job_rows import firing_event, read_jobs, to_json
from mainspring.stores.rows.planned import FiringEnd, Task, applied, instants_of
from mainspring.stores.rows.plans import StoredPlans
from mainspring.stores.rows.transaction import Row
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.definitions.jobs import Jobs
from mainspring.stores.sqlite.ends.endings import end_firings
from mainspring.stores.sqlite.file.transaction import Transaction, at_once
from mainspring.stores.sqlite.submissions.intake import insert_runs

_Q = load_queries("sqlite", "firings")
_JOBS = load_queries("sqlite", "jobs")


class Plans(Jobs, StoredPlans[Transaction]):
    """See `store.PlanStore`."""

    async def due_jobs(self, until: Instant, limit: int) -> list[Job]:
        def work(tx: Transaction) -> list[Job]:
            rows = tx.execute(_JOBS["due"], (until, limit)).fetchall()
            names = [name for (name,) in tx.execute(_JOBS["namespaces_due"], (until,))] if len(rows) >= limit else []
            return _due_in_shares(tx, names, until, limit) if len(names) > 1 else read_jobs(rows)

        return await self._db.read(work)

    async def changed_jobs(self, since: int, limit: int = MOST_CHANGED) -> tuple[int, list[Job]]:
        def work(tx: Transaction) -> tuple[int, list[Job]]:
            (newest,) = tx.execute(_JOBS["newest_change"]).fetchone()
            return newest, read_jobs(tx.execute(_JOBS["changed"], (since, limit + 1))) if newest > since else []

        return await self._db.read(work, quick=True)

    async def adopt_zones(self, version: str) -> ZoneStep:
        if await self._db.read(lambda tx: at_once(self._due_zones(tx, version)), quick=True) is None:
            return ZoneStep()
        return await self._db.write(lambda tx: at_once(self._adopt_zones(tx, version)), promised=False)

    async def fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        return await self._db.write(lambda tx: at_once(self._fire(tx, plans, term)))

    async def _find_unknown(self, tx: Transaction, tasks: Sequence[Task]) -> Sequence[Row]:
        return await tx.fetch(_Q["unknown_tasks"], to_json(tasks), tx.now - LIVE_FOR, tx.now - KNOWN_FOR)

    def _is_plain(self, plan: Plan) -> bool:
        """One new instant, and no other run to be judged by."""
        last = plan.job.last_fire_at
        return (
            plan.kind == "scheduled"
            and plan.job.policy.overlap in ("allow", "queue")
            and len(plan.firings) == 1
            and plan.firings[0].outcome == "fired"
            and (last is None or plan.firings[0].fire_at > last)
        )

    async def _fire_plain(self, tx: Transaction, plans: Sequence[Plan]) -> dict[str, Fired]:
        """Each statement once for all of them. It goes well unless a job has changed meanwhile; then nothing of it is
        kept."""
        runs, now = [run for plan in plans for run in plan.firings[0].runs], tx.now
        rows = [
            (run.job_id, run.fire_at, run.region, run.idx, "scheduled", "fired", "", run.id, None, None, 1, now, None)
            for run in runs
        ]
        moves = [
            (plan.job.id, plan.job.version, plan.job.next_fire_at, plan.next_fire_at, plan.firings[0].fire_at)
            for plan in plans
        ]
        tx.execute("SAVEPOINT firing")
        if tx.bulk(_Q["move_all_on"], moves) < len(moves) or tx.bulk(_Q["record_all"], rows) < len(rows):
            tx.execute("ROLLBACK TO firing")
            tx.execute("RELEASE firing")
            return {}
        tx.execute("RELEASE firing")
        insert_runs(tx, runs)
        for plan in plans:
            (firing,) = plan.firings
            tx.events.append(firing_event(tx.now, "fired", plan.job, firing.fire_at, "", len(firing.runs)))
        return {plan.job.id: applied(plan, 1, len(plan.firings[0].runs)) for plan in plans}

    async def _move_on(self, tx: Transaction, plans: Sequence[Plan]) -> set[str]:
        moved = set()
        for plan in plans:
            job, instants = plan.job, instants_of(plan)
            change = (plan.next_fire_at, len(instants), instants[-1] if instants else None)
            if tx.execute(_Q["move_on"], (*change, job.id, job.version, job.next_fire_at)).rowcount:
                moved.add(job.id)
        return moved

    async def _end_firings(self, tx: Transaction, ends: Sequence[FiringEnd]) -> None:
        end_firings(tx, ends)
        tx.changed = True


def _due_in_shares(tx: Transaction, namespaces: Sequence[str], until: Instant, limit: int) -> list[Job]:
    """The earliest jobs of each namespace, as many as its equal share of the limit."""
    share = max(limit // len(namespaces), 1)
    found = [
        job
        for namespace in namespaces
        for job in read_jobs(tx.execute(_JOBS["due_in_namespace"], (namespace, until, share)))
    ]
    return sorted(found, key=lambda job: job.next_fire_at or 0)[:limit]
