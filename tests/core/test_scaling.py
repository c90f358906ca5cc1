"""How many workers there should be."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.load.scaling import Load, ScalingPolicy, ScalingState, check_policy, decide, wish
from mainspring.errors import InvalidInput

STEP = 15 * SECOND
POLICY = ScalingPolicy(minimum=2, maximum=100)
SLOTS = 10


def follow(policy: ScalingPolicy, depths: list[int], workers: int) -> list[int]:
    """The numbers of workers while these depths are seen, one every 15 s. Seven of ten slots are busy, so a target of
    utilisation asks for as many workers as there are, and without one they may become fewer."""
    state, numbers = ScalingState(), []
    for n, depth in enumerate(depths):
        load = Load(n * STEP, workers, depth, workers * SLOTS * 7 // 10, workers * SLOTS)
        workers, _, state = decide(policy, state, load)
        numbers.append(workers)
    return numbers


policies = st.builds(
    lambda low, more, depth, up, down, share: ScalingPolicy(
        minimum=low,
        maximum=low + more,
        depth_per_worker=depth,
        up_percent=up,
        down_workers=down,
        utilisation_percent=share,
    ),
    st.integers(1, 10),
    st.integers(1, 90),
    st.integers(1, 5_000),
    st.integers(1, 200),
    st.integers(1, 10),
    st.sampled_from([None, 70]),
)


loads = st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 60)), min_size=3, max_size=12).map(
    lambda stretches: [depth for depth, length in stretches for _ in range(length)]
)
"""Depths that last for a while: only these move anything."""


@given(policies, loads, st.integers(1, 120))
def test_it_never_leaves_its_bounds(policy: ScalingPolicy, depths: list[int], workers: int) -> None:
    assert all(policy.minimum <= each <= policy.maximum for each in follow(policy, depths, workers))


@given(policies, st.integers(0, 200_000), st.integers(1, 100))
def test_under_a_steady_load_it_reaches_what_that_asks_for_and_stays(
    policy: ScalingPolicy, depth: int, workers: int
) -> None:
    numbers = follow(policy, [depth] * 4_000, workers)
    last = numbers[-1]
    assert numbers[-400:] == [last] * 400
    enough = min(max(-(-depth // (policy.depth_per_worker or 1)), policy.minimum), policy.maximum)
    # A target of utilisation keeps the workers that there are: seven of ten slots are busy.
    kept = policy.minimum if policy.utilisation_percent is None else min(workers, policy.maximum)
    assert last == max(enough, kept)


@given(policies, loads, st.integers(1, 50))
def test_it_grows_and_shrinks_no_faster_than_allowed(policy: ScalingPolicy, depths: list[int], workers: int) -> None:
    workers = min(max(workers, policy.minimum), policy.maximum)
    numbers = [workers, *follow(policy, depths, workers)]
    for n, now in enumerate(numbers):
        a_minute_ago, two_ago = numbers[max(n - 3, 0)], numbers[max(n - 7, 0)]
        least, most = min(numbers[max(n - 3, 0) : n + 1]), max(numbers[max(n - 7, 0) : n + 1])
        assert now <= least + max(-(-least * policy.up_percent // 100), 1) or now <= a_minute_ago
        assert now >= most - policy.down_workers or now >= two_ago


@given(policies, loads, st.integers(1, 50))
def test_it_never_flaps(policy: ScalingPolicy, depths: list[int], workers: int) -> None:
    """Between a step up and the next step down lie more than five minutes; between down and up, more than one."""
    workers = min(max(workers, policy.minimum), policy.maximum)
    numbers = [workers, *follow(policy, depths, workers)]
    steps = [(n, after - before) for n, (before, after) in enumerate(pairwise(numbers))]
    moves = [(n, step) for n, step in steps if step]
    for (first, one), (second, other) in pairwise(moves):
        if one > 0 > other:
            assert (second - first) * STEP > policy.down_window
        if one < 0 < other:
            assert (second - first) * STEP > policy.up_window


@given(policies, st.integers(0, 2_000), st.integers(1, 100))
def test_under_steady_arrivals_it_settles_where_the_work_is_done(
    policy: ScalingPolicy, needed: int, workers: int
) -> None:
    """`needed` slots are busy while there are as many; the rest waits, and its depth grows. The target of utilisation
    is what settles it: depth alone asks for no worker as soon as nothing waits."""
    policy = msgspec.structs.replace(policy, utilisation_percent=70)
    state, depth, numbers = ScalingState(), 0, []
    for n in range(2_000):
        slots = workers * SLOTS
        depth = max(depth + needed - slots, 0)
        load = Load(n * STEP, workers, depth, slots if depth else min(needed, slots), slots)
        workers, _, state = decide(policy, state, load)
        numbers.append(workers)
    assert len(set(numbers[-300:])) == 1
    assert workers == policy.maximum or workers * SLOTS >= needed
    # With one worker fewer, more than seven of ten slots would be busy, or nearly as many.
    assert workers == policy.minimum or needed >= 0.63 * SLOTS * (workers - 1)


def test_a_spike_shorter_than_a_minute_changes_nothing() -> None:
    assert set(follow(POLICY, [0] * 30 + [50_000] * 3 + [0] * 30, 2)) == {2}


def test_a_lasting_load_adds_half_as_many_each_minute() -> None:
    numbers = follow(POLICY, [100_000] * 60, 2)
    assert [numbers[n] for n in (4, 8, 12, 16, 20)] == [3, 5, 8, 12, 18]
    assert numbers[-1] == 100


def test_a_lasting_calm_removes_two_each_two_minutes_after_five() -> None:
    numbers = follow(ScalingPolicy(minimum=2, maximum=100, utilisation_percent=None), [0] * 80, 20)
    assert numbers[19] == 20
    assert numbers[20] == 18
    assert numbers[28] == 16
    assert numbers[36] == 14


def test_the_reason_names_the_target_that_asks() -> None:
    by_depth = wish(POLICY, Load(0, 2, 50_001, 0, 20))
    by_use = wish(POLICY, Load(0, 10, 0, 100, 100))
    by_age = wish(ScalingPolicy(oldest_due=MINUTE, depth_per_worker=None), Load(0, 2, 1, 1, 20, 3 * MINUTE))
    assert by_depth == (51, "50001 due runs, 1000 per worker")
    assert by_use == (15, "100 of 100 slots busy, target 70 %")
    assert by_age == (3, "the oldest run has waited 180 s")


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (ScalingPolicy(minimum=-1), "minimum"),
        (ScalingPolicy(minimum=5, maximum=4), "maximum"),
        (ScalingPolicy(up_percent=0), "up_percent"),
        (ScalingPolicy(depth_per_worker=None, utilisation_percent=None), "depth_per_worker"),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused(policy: ScalingPolicy, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_policy(policy)
    assert refused.value.field == field


@given(st.lists(st.integers(1, 20 * SECOND), min_size=50, max_size=50))
def test_it_also_shrinks_when_it_looks_at_uneven_intervals(pauses: list[int]) -> None:
    state, workers, at = ScalingState(), 20, 0
    for pause in [*pauses, *[20 * SECOND + 7] * 100]:
        at += pause
        workers, _, state = decide(POLICY, state, Load(at, workers, 0, 0, workers * SLOTS))
    assert workers == POLICY.minimum


def test_the_start_of_the_minimum_does_not_delay_growth() -> None:
    policy = ScalingPolicy(minimum=4, maximum=100, up_window=0)
    first = decide(policy, ScalingState(), Load(0, 0, 50_000, 0, 0))
    assert first.workers == 6
    second = decide(policy, first.state, Load(SECOND, 6, 50_000, 0, 60))
    assert second.workers == 6
    assert decide(policy, second.state, Load(61 * SECOND, 6, 50_000, 0, 60)).workers == 9
