"""No job and no tenant keeps the others from firing, and no namespace fires more than it may."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from stage import USUAL, FaultyStore, JumpingClock, let_others_run, let_pass, make_planner, turning
from test_planners import Leadership, Leads

from mainspring.core.instants import HOUR, MILLISECOND, SECOND, Duration
from mainspring.core.model import Job, JobPolicy
from mainspring.core.planning.plans import Plan, plan, runs_in
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.services.scheduler import planner as planner_module
from mainspring.store import Fired, RunFilter


class Counting(FaultyStore):
    """A store that notes what each transaction of firings held."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.batches: list[Counter[str]] = []

    async def fire(self, plans: Sequence[Plan], term: Any) -> list[Fired]:
        found: Counter[str] = Counter()
        for made in plans:
            found[made.job.namespace] += runs_in(made)
        self.batches.append(found)
        return list(await self._store.fire(plans, term))


async def stored(store: Any, name: str, namespace: str, period: Duration, completions: int = 1, **policy: Any) -> Job:
    """A job that was stored before there were limits."""
    made = Job(
        id=f"{namespace}-{name}".ljust(26, "_"),
        name=name,
        task="work",
        trigger=EveryTrigger(period),
        namespace=namespace,
        policy=JobPolicy(completions=completions, **policy),
        created_at=store.now(),
    )
    job: Job = await store.create_job(made)
    return job


async def leads(store: Any) -> Leads:
    """The word of a planner that leads."""
    leadership = Leadership(store)
    await leadership.give_to("a")
    return leadership.of("a")


async def firings(store: Any, job: Job, outcome: str = "fired") -> list[float]:
    """How many seconds after their instants the firings of a job were written."""
    rows = await store.list_firings(job.id, limit=100_000)
    return [(row.created_at - row.fire_at) / SECOND for row in rows if row.outcome == outcome]


async def count_runs(store: Any, namespace: str) -> int:
    return sum((await store.count_runs(namespace)).values())


async def test_a_job_that_asks_for_a_million_runs_does_not_delay_others(store: Any, clock: JumpingClock) -> None:
    await stored(store, "hostile", "bad", 10 * MILLISECOND, 1_000)
    victim = await stored(store, "victim", "good", SECOND)
    line = Counting(store)
    clock.jump("9s")  # As after a pause: 900,000 runs are punctual by their grace.
    async with turning(make_planner(line, clock)):
        for _ in range(30):
            await let_others_run(300)  # Time stands still until the planner has done what it may.
            await let_pass(clock, "100ms")
    assert max(sum(batch.values()) for batch in line.batches) <= planner_module.BATCH_RUNS + 1_000
    first = next(number for number, batch in enumerate(line.batches) if batch["good"])
    assert first == 0, "the first transaction already holds what others have due"
    lateness = await firings(store, victim)
    assert len(lateness) == 12
    assert sum(late > 0.05 for late in lateness) == 8, "only what came due in the pause is late"
    assert await count_runs(store, "bad") <= USUAL.firing_rate * 1.2, "a minute's worth, and what three seconds add"


async def test_what_exceeds_the_rate_is_late_and_then_missed_with_the_reason(store: Any, clock: JumpingClock) -> None:
    using = msgspec.structs.replace(USUAL, firing_rate=60)
    busy = await stored(store, "busy", "default", SECOND // 10)
    async with turning(make_planner(store, clock, await leads(store), using)):
        await let_pass(clock, "2m")
    assert 150 <= await count_runs(store, "default") <= 181, "a burst of 60, then one a second"
    rows = await store.list_firings(busy.id, limit=100_000)
    covered = sum(row.count for row in rows)
    assert 1_100 <= covered <= 1_200, "every instant is in the ledger, but for those of the last ten seconds"
    missed = {row.reason for row in rows if row.outcome == "missed"}
    assert missed == {
        "misfire=once: a later instant stands for it; late because namespace default may fire 60 runs a minute"
    }


async def test_it_recovers_by_itself_once_the_job_is_gone_or_paused(store: Any, clock: JumpingClock) -> None:
    using = msgspec.structs.replace(USUAL, firing_rate=600)
    await stored(store, "hostile", "bad", 10 * MILLISECOND, 10)
    await stored(store, "worse", "bad", 10 * MILLISECOND, 10)
    modest = await stored(store, "modest", "bad", SECOND)
    async with turning(make_planner(store, clock, using=using)):
        await let_pass(clock, "30s")
        await store.remove_job("bad", "hostile")
        await store.pause_jobs("bad", ["worse"], paused=True, reason="too much")
        await let_pass(clock, "15s")
        before, runs = len(await firings(store, modest)), await count_runs(store, "bad")
        await let_pass(clock, "10s")
        assert len(await firings(store, modest)) == before + 10
        assert await count_runs(store, "bad") == runs + 10


@pytest.mark.parametrize("namespaces", [2, 5])
async def test_namespaces_share_what_is_written_at_first(
    store: Any, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch, namespaces: int
) -> None:
    monkeypatch.setattr(planner_module, "BATCH", 120)
    for number in range(300):
        await stored(store, f"job-{number}", "large", SECOND * 20)
    for tenant in range(namespaces - 1):
        await stored(store, "job", f"small-{tenant}", SECOND * 20)
    line = Counting(store)
    clock.jump("21s")
    async with turning(make_planner(line, clock)):
        await let_pass(clock, "1s")
    assert len(line.batches) >= 3
    assert len(line.batches[0]) == namespaces, "no namespace waits for the three hundred of another"


async def test_jobs_that_take_long_to_plan_do_not_delay_others(
    store: Any, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan_slowly(job: Job, *args: Any) -> Plan:
        clock.advance("30ms" if job.namespace == "bad" else "0s")
        return plan(job, *args)

    monkeypatch.setattr(planner_module, "plan", plan_slowly)
    for number in range(100):
        await stored(store, f"job-{number}", "bad", SECOND * 20)
    victims = [await stored(store, f"victim-{number}", "good", SECOND * 20) for number in range(20)]
    line = Counting(store)
    clock.jump("21s")
    async with turning(make_planner(line, clock)):
        await let_pass(clock, "10s")
    assert sum(line.batches[0].values()) <= 4 + len(victims), "what was planned is written before more is"
    late = [(await firings(store, victim))[0] for victim in victims]
    assert max(late) < 2, "all of them are written within the first few batches"


async def test_what_is_written_ahead_keeps_to_the_rate_too(store: Any, clock: JumpingClock) -> None:
    using = msgspec.structs.replace(USUAL, firing_rate=100)
    for number in range(150):
        await stored(store, f"job-{number}", "large", SECOND * 20)
    other = await stored(store, "job", "small", SECOND * 20)
    async with turning(make_planner(store, clock, await leads(store), using)):
        await let_pass(clock, "21s")
        assert 100 <= await count_runs(store, "large") <= 103
        assert [late <= 0 for late in await firings(store, other)] == [True]
        await let_pass(clock, "38s")
    assert await count_runs(store, "large") >= 150, "the others follow"


@pytest.mark.parametrize("nodes", [1, 3])
async def test_several_planners_keep_to_one_rate(store: Any, clock: JumpingClock, nodes: int) -> None:
    using = msgspec.structs.replace(USUAL, firing_rate=600)
    for number in range(20):
        await stored(store, f"hostile-{number}", "bad", 100 * MILLISECOND, 5)
    victim = await stored(store, "victim", "good", SECOND)
    async with turning(*(make_planner(store, clock, using=using) for _ in range(nodes))):
        await let_pass(clock, "60s")
    most = 1_200 + nodes * 120  # Twice the rate at most in a minute, and the part that each need not ask for.
    assert 600 <= await count_runs(store, "bad") <= most
    assert len(await firings(store, victim)) == 60


async def test_a_firing_larger_than_can_be_written_is_missed(store: Any, clock: JumpingClock) -> None:
    job = await stored(store, "huge", "default", SECOND, 10_001)
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "2s")
    rows = await store.list_firings(job.id)
    assert {(row.outcome, row.reason) for row in rows} == {("missed", "each firing has 10001 runs, more than 10000")}
    assert len(rows) == 2
    assert await store.list_runs(RunFilter()) == []


async def test_very_many_overdue_jobs_of_one_do_not_hide_what_others_have(
    store: Any, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "LOAD_LIMIT", 50)
    using = msgspec.structs.replace(USUAL, firing_rate=60)
    for number in range(200):
        await stored(store, f"job-{number}", "large", SECOND * 10)
    other = await stored(store, "other", "small", SECOND)
    clock.jump("20s")
    line = FaultyStore(store)
    async with turning(make_planner(line, clock, await leads(store), using)):
        await let_pass(clock, "60s")
    lateness = sorted(await firings(store, other))
    assert len(lateness) >= 60
    assert sum(late > 0.05 for late in lateness) <= 21
    assert await count_runs(store, "large") >= 110
    assert line.calls["due_jobs"] < 60, "and it is not read again at every turn"


async def test_very_many_changes_are_read_as_what_is_due(
    store: Any, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "CHANGE_LIMIT", 10)
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "1s")
        jobs = [await stored(store, f"job-{number}", "default", SECOND * 5) for number in range(30)]
        await let_pass(clock, "7s")
    assert [len(await firings(store, job)) for job in jobs] == [1] * 30


@pytest.mark.parametrize("overdue", [True, False])
async def test_a_planner_that_starts_with_very_many_jobs_holds_few_of_them(
    store: Any, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch, overdue: bool
) -> None:
    monkeypatch.setattr(planner_module, "LOAD_LIMIT", 100)
    jobs = [await stored(store, f"job-{number}", "default", HOUR + number * SECOND) for number in range(1_000)]
    if overdue:
        clock.jump("2h")
    line = FaultyStore(store)
    planner = make_planner(line, clock, await leads(store))
    await planner.turn()
    assert len(planner._jobs) <= 100
    async with turning(planner):
        for _ in range(60):
            await let_others_run(100)
            await let_pass(clock, "1s")
            assert len(planner._jobs) <= 100
    assert line.calls["due_jobs"] < 100
    if overdue:
        assert all([await firings(store, job) for job in jobs])
    else:
        assert await count_runs(store, "default") == 0
