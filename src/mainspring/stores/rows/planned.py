"""What both stores do with the plans of a planner before and after they write them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from mainspring.core.instants import SECOND, Duration, Instant
from mainspring.core.model import Edge, FiringKind, Job
from mainspring.core.planning.plans import Plan, PlannedFiring, settle, skip_unknown
from mainspring.core.runs.dependency import Wait, consumed_edges, judge_edges, used_firings
from mainspring.core.runs.outcome import Ended
from mainspring.core.runs.regions import home_of
from mainspring.core.schedules.triggers import AfterTrigger
from mainspring.core.states import State
from mainspring.store import Fired
from mainspring.stores.rows.transaction import Row, Transaction
from mainspring.stores.sql import load_queries

_KNOWN_AGAIN: Duration = 10 * SECOND
"""How long to cache that a worker knows a task."""

Task: TypeAlias = tuple[str, str]
"""Namespace and name."""


async def skip_unknown_tasks(
    tx: Transaction,
    plans: Sequence[Plan],
    known: dict[Task, Instant],
    ask: Callable[[Sequence[Task]], Awaitable[Sequence[Row]]],
) -> Sequence[Plan]:
    """Where no worker knows the task of a job, one run may wait for it; further firings are skipped. `known` caches
    until when tasks are known, `ask` reads which of some are not."""
    tasks = {(plan.job.namespace, plan.job.task) for plan in plans}
    if not (asked := [task for task in tasks if known.get(task, 0) <= tx.now]):
        return plans
    unknown = {(row[0], row[1]) for row in await ask(asked)}
    known.update({task: tx.now + _KNOWN_AGAIN for task in asked if task not in unknown})
    jobs = [plan.job.id for plan in plans if (plan.job.namespace, plan.job.task) in unknown]
    if not jobs:
        return plans
    waiting_jobs = load_queries(tx.dialect, "firings")["waiting_jobs"]
    waiting = {row[0] for row in await tx.fetch(waiting_jobs, tx.list_of(jobs))}
    return [skip_unknown(plan) if plan.job.id in waiting and plan.kind == "scheduled" else plan for plan in plans]


class Entry(NamedTuple):
    """Firings of one job that are to be recorded."""

    job: Job
    firings: Sequence[PlannedFiring]
    kind: FiringKind
    request_id: str | None = None


FiringEnd: TypeAlias = tuple[str, Instant, str, int, State, str]
"""Job, instant, region, index, state and reason of what has ended."""


def firing_ends(runs: Iterable[Ended]) -> list[FiringEnd]:
    """Of runs that have ended, those of firings: a run that was moved counts for its home region."""
    return [
        (run.job_id, run.fire_at, home_of(run.region, run.options), run.idx, run.state, run.reason)
        for run in runs
        if run.job_id is not None and run.fire_at is not None
    ]


class Recorded(NamedTuple):
    """What became of a job's firings: how many of those that should run are new to the ledger, and how many runs."""

    instants: int
    runs: int


def instants_of(plan: Plan) -> list[Instant]:
    """The instants that fire."""
    return [firing.fire_at for firing in plan.firings if firing.outcome == "fired"]


def applied(plan: Plan, instants: int, runs: int) -> Fired:
    """The answer to a plan that was written: how many of its instants were new to the ledger, and how many runs."""
    job = plan.job
    moved = msgspec.structs.replace(
        job,
        next_fire_at=plan.next_fire_at,
        fired=job.fired + instants,
        last_fire_at=max(instants_of(plan), default=job.last_fire_at),
    )
    return Fired(job.id, True, moved, runs)


class Due(NamedTuple):
    """A plan as it stands in this transaction, and the upstream firings that it uses up."""

    plan: Plan
    consumed: Sequence[tuple[str, Instant]] = ()


async def judge_upstreams(tx: Transaction, plan: Plan) -> Due:
    """What an `after` job is due for is decided in the transaction that fires it, where no upstream can end meanwhile.
    A job that allows it may be made due under pressure, before all that it follows has ended."""
    job, trigger = plan.job, plan.job.trigger
    if not isinstance(trigger, AfterTrigger) or job.next_fire_at is None:
        return Due(plan)
    edges = [Edge(*row) for row in await tx.fetch(load_queries(tx.dialect, "jobs")["edges"], job.id)]
    hurried = job.options.under_pressure == "run"
    verdict = judge_edges(trigger.when, trigger.on_failure, edges, hurried=hurried)
    if isinstance(verdict, Wait):
        return Due(msgspec.structs.replace(plan, firings=()))
    fire_at = await free_instant(tx, job.id, job.next_fire_at)
    used = used_firings(trigger.jobs, edges)
    return Due(settle(plan, verdict, fire_at, tx.now, used), consumed_edges(verdict, edges))


async def free_instant(tx: Transaction, job_id: str, instant: Instant) -> Instant:
    """The first instant from here on that the job's ledger does not have, for firings without a scheduled time."""
    is_recorded = load_queries(tx.dialect, "firings")["is_recorded"]
    while await tx.fetchval(is_recorded, job_id, instant) is not None:
        instant += 1
    return instant
