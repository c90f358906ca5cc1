"""Runs, jobs, workers and reports as the store suites use them: plain unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import msgspec

from mainspring.clock import Clock
from mainspring.core.ids import encode_bits, encode_time
from mainspring.core.instants import DAY, SECOND, Duration, Instant
from mainspring.core.model import Claim, Event, EventBatch, Firing, Gate, Job, NewRun, Report, Run, RunOptions, Worker
from mainspring.core.planning import plans as planning
from mainspring.core.runs.priority import Ordering
from mainspring.core.schedules.triggers import ManualTrigger, Trigger
from mainspring.core.states import FAILED, FINAL, PENDING, SUCCEEDED, State
from mainspring.store import Fired, RunFilter, Store
from mainspring.testing.clock import ManualClock

TASK = "encode"
TTL: Duration = 10 * SECOND
MANY = 1_000

_numbers = count(1)
_encode = msgspec.json.Encoder().encode


def new_id(clock: Clock) -> str:
    """An id greater than every earlier one, as long as the clock does not go back."""
    return encode_time(clock.now()) + encode_bits(next(_numbers), 16)


def a_run(clock: Clock, **changes: object) -> NewRun:
    """A run that is due now."""
    now = clock.now()
    return msgspec.structs.replace(NewRun(new_id(clock), TASK, now, now), **changes)


def options(**changes: object) -> str:
    """Run options as they are stored."""
    return _encode(msgspec.structs.replace(RunOptions(), **changes)).decode()


def gated(clock: ManualClock, *names: str, capacity: int = 1, **changes: object) -> NewRun:
    """A run that needs a place in each of these gates while it runs."""
    return a_run(clock, gates=tuple(Gate(name, capacity) for name in names), **changes)


def in_line(clock: ManualClock, *names: str, capacity: int = 1, **changes: object) -> NewRun:
    """A run that stands in each of these lines."""
    return a_run(clock, lines=tuple(Gate(name, capacity) for name in names), **changes)


def a_worker(name: str = "worker-1", **changes: object) -> Worker:
    """A worker that knows the task of `a_run`."""
    return msgspec.structs.replace(Worker(id=name, tasks=(TASK,), concurrency=100), **changes)


def a_job(clock: ManualClock, name: str, trigger: Trigger | None = None, **changes: object) -> Job:
    """A job as its author hands it over: when it is due first, the store finds out."""
    return msgspec.structs.replace(Job(new_id(clock), name, TASK, trigger or ManualTrigger()), **changes)


def success(claim: Claim, result: str | None = None) -> Report:
    """The attempt did what it should."""
    return Report(claim.run_id, claim.token, "succeeded", SUCCEEDED, result=result)


def failure(claim: Claim, reason: str = "ValueError: no") -> Report:
    """The attempt failed for good."""
    return Report(claim.run_id, claim.token, "failed", FAILED, reason=reason, error='{"type":"ValueError"}')


def another_try(claim: Claim, delay: Duration = 0, reason: str = "ValueError: no; retry 1 of 3") -> Report:
    """The attempt failed, and core wants it retried."""
    return Report(claim.run_id, claim.token, "failed", PENDING, reason, delay, error='{"type":"ValueError"}')


async def register(store: Store, clock: ManualClock, name: str, **changes: object) -> Worker:
    """A worker that has just announced itself."""
    now = clock.now()
    worker = msgspec.structs.replace(a_worker(name, started_at=now, heartbeat_at=now), **changes)
    await store.register(worker)
    return worker


async def submit(store: Store, *runs: NewRun) -> list[str]:
    """Accept runs in one call."""
    return await store.submit(runs)


async def take(
    store: Store, worker: Worker | None = None, limit: int = MANY, ttl: Duration = TTL, ordering: Ordering = "strict"
) -> list[Claim]:
    """What one claim gives."""
    return await store.claim(worker or a_worker(), limit, ttl, ordering)


async def take_one(store: Store, worker: Worker | None = None) -> Claim:
    """The next claim; there must be one."""
    claims = await take(store, worker, 1)
    assert len(claims) == 1
    return claims[0]


async def finish(store: Store, run: NewRun, report: Callable[[Claim], Report] = success) -> None:
    """Take due runs until this one comes up, report on it, and give the others back."""
    claims = {claim.run_id: claim for claim in await take(store)}
    ended = claims.pop(run.id)
    await store.hand_back([(claim.run_id, claim.token) for claim in claims.values()])
    assert await store.report([report(ended)]) == ["accepted"]


async def recover_the_rest(store: Store) -> None:
    """Recover until nothing is left that an end has postponed. Each pass does some."""
    for _ in range(50):
        if not (await store.recover(1_000 * DAY, MANY)).postponed:
            return
    raise AssertionError("recovery never ends")


async def finish_all(store: Store, clock: ManualClock, patience: int = MANY) -> None:
    """Work until nothing is left to do, with a reaper beside it, letting time pass where only that helps."""
    idle = 0
    for _ in range(patience):
        claims = await take(store)
        await store.report([success(claim) for claim in claims])
        if claims:
            idle = 0
            continue
        await store.recover(1_000 * DAY, MANY)
        due = await store.next_due(a_worker())
        idle += 1
        if due is None and idle > 1:
            return
        clock.advance(max((due or 0) - clock.now(), 0))
    raise AssertionError(f"there is still work after {patience} claims")


async def seen(store: Store, run: NewRun | str, namespace: str = "default") -> Run:
    """The run as the store knows it."""
    return await store.get_run(namespace, run if isinstance(run, str) else run.id)


async def states(store: Store, *runs: NewRun) -> list[State]:
    """The states of these runs."""
    return [(await seen(store, run, run.namespace)).state for run in runs]


async def unfinished(store: Store) -> list[Run]:
    """Every run that has not ended."""
    return [run for run in await store.list_runs(RunFilter(limit=MANY)) if run.state not in FINAL]


async def fire(store: Store, clock: ManualClock, name: str) -> Fired:
    """Plan a due job as the planner does, and apply the plan."""
    job = await store.get_job("default", name)
    (fired,) = await store.fire([planning.plan(job, clock.now(), {})], None)
    return fired


async def fire_due(store: Store, clock: ManualClock) -> None:
    """Do what the planner does until nothing is due any more."""
    for _ in range(MANY):
        jobs = await store.due_jobs(clock.now(), MANY)
        if not jobs:
            return
        await store.fire([planning.plan(job, clock.now(), {}) for job in jobs], None)
    raise AssertionError("some job is due again and again")


async def trigger(store: Store, clock: ManualClock, name: str, request_id: str) -> Firing:
    """Fire a job by hand."""

    def runs(job: Job, fire_at: Instant) -> Sequence[NewRun]:
        return planning.make_runs(job, fire_at, clock.now())

    return await store.trigger("default", name, request_id, runs)


async def number_all(store: Store) -> list[EventBatch]:
    """Give every event its position; those that had none before, in order."""
    first = await store.next_position()
    while await store.number_events(MANY):
        pass
    return await store.events_since(first, MANY)


async def new_events(store: Store) -> list[Event]:
    """The events since the last call, in order."""
    return [event for batch in await number_all(store) for event in batch.events]
