"""What firings may ask for: refused where it could never be sustained, cut where it is too much at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.instants import MILLISECOND, MINUTE, SECOND, Instant, parse_instant
from mainspring.core.model import Job, JobPolicy, Misfire
from mainspring.core.planning.firing_limits import FIRING_BYTES, FIRING_RUNS, Bounds, check_firings, runs_a_minute
from mainspring.core.planning.plans import cut, plan, runs_in
from mainspring.core.schedules.triggers import AfterTrigger, CronTrigger, EveryTrigger, Trigger
from mainspring.errors import InvalidInput

START = parse_instant("2026-03-26T12:00:00Z")
RATE = 60_000


def a_job(trigger: Trigger, policy: JobPolicy | None = None, args: str = "{}") -> Job:
    job = Job("j" * 26, "report", "report", trigger, policy=policy or JobPolicy(), args=args, created_at=START)
    return replace(job, next_fire_at=START + SECOND)


@pytest.mark.parametrize(
    ("trigger", "runs"),
    [
        (EveryTrigger(10 * MILLISECOND), 6_000),
        (EveryTrigger(MINUTE), 1),
        (EveryTrigger(2 * MINUTE), 0),
        (CronTrigger("* * * * * *"), 60),
        (CronTrigger("*/10 * * * * *"), 6),
        (CronTrigger("* * * * *"), 1),
        (CronTrigger("* 0 2 * * *"), 1),
        (AfterTrigger(("other",)), 0),
    ],
)
def test_a_trigger_says_how_many_runs_a_minute_it_asks_for(trigger: Trigger, runs: int) -> None:
    assert runs_a_minute(a_job(trigger)) == runs
    many = replace(a_job(trigger), policy=JobPolicy(completions=100, regions=("north", "south")))
    assert runs <= runs_a_minute(many) / 200 < runs + 1


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (a_job(EveryTrigger(10 * MILLISECOND), JobPolicy(completions=1_000)), "6000000 runs a minute"),
        (a_job(EveryTrigger(SECOND), JobPolicy(completions=10_000)), "may fire 60000 (setting firing_rate)"),
        (a_job(CronTrigger("* * * * * *"), JobPolicy(completions=1_001)), "60060 runs a minute"),
        (a_job(EveryTrigger(MINUTE), JobPolicy(completions=FIRING_RUNS + 1)), "more than 10000"),
        (a_job(EveryTrigger(MINUTE), JobPolicy(completions=101, regions=("a",) * 100)), "more than 10000"),
        (a_job(EveryTrigger(MINUTE), JobPolicy(completions=65), "x" * (FIRING_BYTES // 64)), "64 MiB together"),
    ],
)
def test_what_could_never_be_sustained_is_refused(job: Job, words: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_firings(job, RATE)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "job",
    [
        a_job(EveryTrigger(10 * MILLISECOND), JobPolicy(completions=10)),
        a_job(EveryTrigger(10 * SECOND), JobPolicy(completions=10_000)),
        a_job(CronTrigger("0 2 * * *"), JobPolicy(completions=10_000)),
        a_job(EveryTrigger(MINUTE), args="x" * (FIRING_BYTES + 1)),
    ],
)
def test_what_can_be_sustained_is_not(job: Job) -> None:
    check_firings(job, RATE)


def test_a_namespace_that_may_fire_less_than_one_firing_has_never_is_refused() -> None:
    with pytest.raises(InvalidInput, match="more than the 99 that namespace default may fire"):
        check_firings(a_job(CronTrigger("0 2 * * *"), JobPolicy(completions=100)), 99)


@given(
    st.integers(1, 300),
    st.sampled_from(["skip", "once", "all"]),
    st.integers(1, 400),
    st.lists(st.integers(0, 2_000), min_size=1, max_size=30),
)
def test_however_a_plan_is_cut_each_instant_is_accounted_for_once(
    completions: int, misfire: Misfire, most: int, grants: list[int]
) -> None:
    policy = JobPolicy(misfire=misfire, completions=completions)
    job, now = a_job(EveryTrigger(SECOND), policy), START + 30 * SECOND
    seen: list[Instant] = []
    for granted in [*grants, *[10**9] * 100]:
        whole = plan(job, now, {}, Bounds(most))
        assert runs_in(whole) <= max(most, completions), "one firing at least, and no more than was allowed"
        part = cut(whole, granted)
        if part is None:
            continue
        assert runs_in(part) <= granted
        for firing in part.firings:
            last = firing.fire_at if firing.last_at is None else firing.last_at
            seen += range(firing.fire_at, last + 1, SECOND)
        fired = sum(firing.outcome == "fired" for firing in part.firings)
        job = replace(job, next_fire_at=part.next_fire_at, fired=job.fired + fired)
    assert seen == [START + second * SECOND for second in range(1, 31)]


def test_what_is_late_because_of_its_rate_says_so() -> None:
    job = a_job(EveryTrigger(SECOND))
    made = plan(job, START + 60 * SECOND, {}, Bounds(late_because="namespace a may fire 5 runs a minute"))
    reasons = {firing.reason for firing in made.firings if firing.outcome == "missed"}
    assert reasons == {"misfire=once: a later instant stands for it; late because namespace a may fire 5 runs a minute"}


def test_a_firing_that_can_never_be_written_is_missed_with_the_reason() -> None:
    made = plan(a_job(EveryTrigger(SECOND)), START + 2 * SECOND, {}, Bounds(refusal="each firing has 20000 runs"))
    assert [(firing.outcome, firing.reason) for firing in made.firings] == [
        ("missed", "each firing has 20000 runs")
    ] * 2
    assert made.next_fire_at == START + 3 * SECOND
