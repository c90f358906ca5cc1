"""The planner's part of the store: due jobs, changed jobs, and writing plans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial

from mainspring.core.instants import Instant
from mainspring.core.model import Job, Term
from mainspring.core.planning.plans import KNOWN_FOR, LIVE_FOR, Plan, PlannedFiring
from mainspring.core.planning.zone_data import ZoneStep, take_up
from mainspring.core.runs.outcome import Ended
from mainspring.core.states import FAILED, SKIPPED
from mainspring.store import MOST_CHANGED, Fired
from mainspring.stores.rows.job_rows import check_term, firing_event, read_jobs, to_json
from mainspring.stores.rows.planned import Due, Task, applied, instants_of, judge_upstreams, skip_unknown_tasks
from mainspring.stores.rows.transaction import Row
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.definitions.firing import Recorder
from mainspring.stores.sqlite.definitions.jobs import adopt_zones, known_zones
from mainspring.stores.sqlite.ends.endings import follow
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction, at_once
from mainspring.stores.sqlite.submissions.intake import insert_runs

_Q = load_queries("sqlite", "firings")
_JOBS = load_queries("sqlite", "jobs")


class Plans:
    """See `store.PlanStore`."""

    _db: Database

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
        if await self._db.read(lambda tx: take_up(known_zones(tx), version, tx.now), quick=True) is None:
            return ZoneStep()
        return await self._db.write(lambda tx: adopt_zones(tx, version), promised=False)

    async def fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        return await self._db.write(lambda tx: _fire(tx, plans, term, self._known))

    @cached_property
    def _known(self) -> dict[Task, Instant]:
        """Tasks that some worker knows, and until when that is cached."""
        return {}


def _due_in_shares(tx: Transaction, namespaces: Sequence[str], until: Instant, limit: int) -> list[Job]:
    """The earliest jobs of each namespace, as many as its equal share of the limit."""
    share = max(limit // len(namespaces), 1)
    found = [
        job
        for namespace in namespaces
        for job in read_jobs(tx.execute(_JOBS["due_in_namespace"], (namespace, until, share)))
    ]
    return sorted(found, key=lambda job: job.next_fire_at or 0)[:limit]


def _fire(tx: Transaction, plans: Sequence[Plan], term: Term | None, known: dict[Task, Instant]) -> list[Fired]:
    if term is not None:
        row = tx.execute(_Q["term"], (term.name,)).fetchone()
        check_term(term, None if row is None else row[0])
    plans = at_once(skip_unknown_tasks(tx, plans, known, partial(_find_unknown, tx)))
    plain = [plan for plan in plans if _is_plain(plan)]
    fired = {each.job_id: each for each in _apply_all(tx, plain)} if plain else {}
    recorder = Recorder(tx)
    for plan in plans:
        if plan.job.id not in fired:
            fired[plan.job.id] = _apply(tx, recorder, plan)
    recorder.flush()
    return _reload_unapplied(tx, [fired[plan.job.id] for plan in plans])


async def _find_unknown(tx: Transaction, tasks: Sequence[Task]) -> Sequence[Row]:
    return await tx.fetch(_Q["unknown_tasks"], to_json(tasks), tx.now - LIVE_FOR, tx.now - KNOWN_FOR)


def _is_plain(plan: Plan) -> bool:
    """Whether a plan needs nothing but to be written: one new instant, and no other run to be judged by."""
    last = plan.job.last_fire_at
    return (
        plan.kind == "scheduled"
        and plan.job.policy.overlap in ("allow", "queue")
        and len(plan.firings) == 1
        and plan.firings[0].outcome == "fired"
        and (last is None or plan.firings[0].fire_at > last)
    )


def _apply_all(tx: Transaction, plans: Sequence[Plan]) -> list[Fired]:
    """Thousands of jobs may be due at one instant: each statement once for all of them. It goes well unless a job has
    changed meanwhile; then nothing of it is kept, and the plans are applied one by one."""
    runs = [run for plan in plans for run in plan.firings[0].runs]
    rows = [
        (run.job_id, run.fire_at, run.region, run.idx, "scheduled", "fired", "", run.id, None, None, 1, tx.now, None)
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
        return []
    tx.execute("RELEASE firing")
    insert_runs(tx, runs)
    for plan in plans:
        (firing,) = plan.firings
        tx.events.append(firing_event(tx.now, "fired", plan.job, firing.fire_at, "", len(firing.runs)))
    return [applied(plan, 1, len(plan.firings[0].runs)) for plan in plans]


def _apply(tx: Transaction, recorder: Recorder, plan: Plan) -> Fired:
    plan, consumed = at_once(judge_upstreams(tx, plan)) if plan.kind == "after" else Due(plan)
    job, instants = plan.job, instants_of(plan)
    change = (plan.next_fire_at, len(instants), instants[-1] if instants else None)
    if not tx.execute(_Q["move_on"], (*change, job.id, job.version, job.next_fire_at)).rowcount:
        return Fired(job.id, False, None)
    recorded = recorder.record(job, plan.firings, plan.kind)
    if recorded.instants < len(instants):
        tx.execute(_Q["fired_before"], (len(instants) - recorded.instants, job.id))
    if consumed:
        _consume(tx, plan, consumed)
    return applied(plan, recorded.instants, recorded.runs)


def _consume(tx: Transaction, plan: Plan, consumed: Sequence[tuple[str, Instant]]) -> None:
    tx.executemany(_Q["consume"], [(fire_at, plan.job.id, upstream) for upstream, fire_at in consumed])
    follow(tx, [_ended(plan.job, firing) for firing in plan.firings if firing.outcome in ("failed", "skipped")])


def _ended(job: Job, firing: PlannedFiring) -> Ended:
    """A firing that ended without a run sets off the same as one whose run has ended."""
    return Ended(
        id="",
        namespace=job.namespace,
        state=FAILED if firing.outcome == "failed" else SKIPPED,
        reason=firing.reason,
        job_id=job.id,
        fire_at=firing.fire_at,
        region=job.policy.regions[0],
        idx=0,
        dependants=0,
        lines=0,
        gates=None,
        ran=False,
        options="{}",
    )


def _reload_unapplied(tx: Transaction, fired: list[Fired]) -> list[Fired]:
    late = [each.job_id for each in fired if not each.applied]
    if not late:
        return fired
    jobs = {job.id: job for job in read_jobs(tx.execute(_JOBS["by_id"], (to_json(late),))) if job.paused_at is None}
    return [each if each.applied else Fired(each.job_id, False, jobs.get(each.job_id)) for each in fired]
