"""What a simulation predicts is what the ledger holds after the real planner and store have played the same span."""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant, parse_instant
from mainspring.core.model import Claim, Job, JobPolicy, Report, RunOptions, Worker
from mainspring.core.planning.simulation import Outage, simulate
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.calendar_rules import Dates
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger, Trigger
from mainspring.core.states import FAILED, SUCCEEDED
from mainspring.services.chores.reaper import Reaper
from mainspring.services.scheduler.planner import Planner
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.testing.clock import ManualClock
from mainspring.wiring import open_memory

START = parse_instant("2026-03-28T00:00:00Z")
END = START + 2 * DAY
CALENDARS = {"free": Calendar("free", (Dates(("2026-03-29",)),), "Europe/Berlin")}
WORKER = Worker(id="w", queues=("default",), tasks=("t",), concurrency=10_000, regions=("default", "west"))


class Row(NamedTuple):
    fire_at: Instant
    region: str
    outcome: str
    reason: str
    instants: int
    last_at: Instant | None


class Played:
    """Planner, store and reaper of the engine; runs that end when the play says so."""

    def __init__(self, job: Job, took: Duration, outage: Outage | None) -> None:
        self._job, self._took, self._outage = job, took, outage
        self._clock = ManualClock(START - 1)
        self._held: dict[str, tuple[Instant, Instant, Claim]] = {}

    async def rows(self) -> list[Row]:
        store = open_memory(self._clock)
        for calendar in CALENDARS.values():
            await store.save_calendar("default", calendar)
        await store.create_job(self._job)
        settings_ = Settings(horizon=36_500 * DAY)
        planner = Planner(store, None, settings_, self._clock, Random(0))
        reaper = Reaper(store, settings_, self._clock, Random(0))
        while True:
            await self._turn(store, planner, reaper)
            following = await self._next(store, planner)
            if following is None:
                break
            self._clock.set(max(following, self._clock.now()))
        found = await store.list_firings(self._job.id, limit=10_000)
        await store.close()
        return [Row(row.fire_at, row.region, row.outcome, row.reason, row.count, row.last_at) for row in found]

    def _is_down(self, now: Instant) -> bool:
        return now >= END or (self._outage is not None and self._outage.begin <= now < self._outage.end)

    async def _turn(self, store: Store, planner: Planner, reaper: Reaper) -> None:
        now = self._clock.now()
        await self._end(store, [run_id for run_id, (_, end, _) in self._held.items() if end <= now])
        while not self._is_down(now):
            await planner.turn()
            if planner.next_fire_at is None or planner.next_fire_at > now:
                break
        await reaper.turn()
        while True:
            cancelled = [id_ for id_ in self._held if (await store.get_run("default", id_)).cancel_requested_at]
            await self._end(store, cancelled, failed=True)
            claims = await store.claim(WORKER, 1_000, 100 * DAY, "strict")
            if not claims and not cancelled:
                return
            self._held |= {claim.run_id: (now, now + self._took, claim) for claim in claims}
            await self._end(store, [run_id for run_id, (_, end, _) in self._held.items() if end <= now])

    async def _end(self, store: Store, run_ids: list[str], *, failed: bool = False) -> None:
        now = self._clock.now()
        for run_id in run_ids:
            began, _, claim = self._held.pop(run_id)
            well = Report(run_id, claim.token, "succeeded", SUCCEEDED, started_at=began, finished_at=now)
            await store.report([msgspec.structs.replace(well, outcome="failed", state=FAILED) if failed else well])

    async def _next(self, store: Store, planner: Planner) -> Instant | None:
        now = self._clock.now()
        soon = [end for _, end, _ in self._held.values()]
        due = await store.next_due(WORKER)
        soon += [due] if due is not None else []
        if now < END:
            planned = planner.next_fire_at
            if self._is_down(now) and self._outage is not None:
                planned = self._outage.end
            elif self._outage is not None and now < self._outage.begin <= (planned or END):
                planned = self._outage.begin
            soon.append(min(planned or END, END))
        return min(soon, default=None)


def predicted(job: Job, took: Duration, outage: Outage | None) -> list[Row]:
    outages = [] if outage is None else [outage]
    rows = simulate(job, CALENDARS, START, END, lambda instant: took, outages).rows
    return [Row(row.fire_at, row.region, row.outcome, row.reason, row.count, row.last_at) for row in rows]


def job_of(trigger: Trigger, policy: JobPolicy) -> Job:
    return Job("01j", "j", "t", trigger, policy=policy, created_at=START - 1)


policies = st.builds(
    JobPolicy,
    misfire=st.sampled_from(["skip", "once", "all"]),
    overlap=st.sampled_from(["allow", "forbid", "queue", "replace"]),
    grace=st.sampled_from([10 * SECOND, HOUR]),
    catch_up_limit=st.sampled_from([2, 100]),
    catch_up_window=st.sampled_from([3 * HOUR, DAY]),
    calendars=st.sampled_from([(), ("free",)]),
    on_excluded=st.sampled_from(["skip", "next_day"]),
    max_firings=st.sampled_from([None, 5]),
    regions=st.sampled_from([("default",), ("default", "west")]),
)
triggers: st.SearchStrategy[Trigger] = st.sampled_from(
    [CronTrigger("30 2,14 * * *", "Europe/Berlin"), CronTrigger("*/20 * * * *"), EveryTrigger(25 * MINUTE)]
)
outages = st.one_of(
    st.none(),
    st.tuples(st.integers(0, 36), st.integers(1, 12)).map(
        lambda hours: Outage(START + hours[0] * HOUR, START + sum(hours) * HOUR)
    ),
)


@settings(max_examples=25, deadline=None)
@given(
    trigger=triggers,
    policy=policies,
    took=st.sampled_from([0, 7 * MINUTE, 55 * MINUTE, 26 * HOUR]),
    outage=outages,
)
@example(CronTrigger("0 * * * *"), JobPolicy(overlap="forbid"), 90 * MINUTE, Outage(START + HOUR + 1, START + 5 * HOUR))
@example(EveryTrigger(10 * SECOND), JobPolicy(misfire="skip"), 0, Outage(START + HOUR, START + 2 * HOUR))
def test_a_simulation_predicts_the_ledger_that_the_engine_writes(
    trigger: Trigger, policy: JobPolicy, took: Duration, outage: Outage | None
) -> None:
    job = job_of(trigger, policy)
    if isinstance(trigger, EveryTrigger) and trigger.period < MINUTE:
        policy = msgspec.structs.replace(policy, end_at=START + 3 * HOUR)
        job = job_of(trigger, policy)
    assert sorted(predicted(job, took, outage)) == sorted(asyncio.run(Played(job, took, outage).rows()))


def test_a_run_that_takes_longer_than_its_timeout_is_retried_and_fails() -> None:
    options = RunOptions(timeout=MINUTE, retry=Retry(2, delay="30s", jitter=0))
    job = msgspec.structs.replace(job_of(CronTrigger("0 3 28 3 *"), JobPolicy()), options=options)
    (row,) = simulate(job, {}, START, END, lambda instant: HOUR).rows
    assert (row.outcome, row.attempts) == ("failed", 3)
    assert row.reason.startswith("TimeoutError: not done within its timeout of 1m")
    assert (row.finished_at or 0) - (row.started_at or 0) > 3 * MINUTE


def test_it_ends_after_ten_thousand_rows_and_says_so() -> None:
    found = simulate(job_of(EveryTrigger(SECOND), JobPolicy()), {}, START, END, lambda instant: 3 * SECOND)
    assert (len(found.rows), found.partial, found.most_at_once()) == (10_000, True, 3)
    late = simulate(job_of(EveryTrigger(MINUTE), JobPolicy(overlap="queue")), {}, START, START + HOUR, lambda _: HOUR)
    assert late.longest_wait() == 59 * (HOUR - MINUTE)
