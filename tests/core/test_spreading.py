"""Spreading a peak: jobs move by minutes, the peak never grows, and what a trigger means stays."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.core.instants import HOUR, MINUTE, parse_instant
from mainspring.core.load.spreading import Firing, shift_cron, shift_trigger, spread
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger, next_fire

START = parse_instant("2026-06-01T00:00:00Z")


def peak(firings: list[Firing], moves: dict[int, int]) -> int:
    load: Counter[int] = Counter()
    for number, each in enumerate(firings):
        for instant in each.instants:
            load[(instant - START) // MINUTE + moves.get(number, 0)] += each.runs
    return max(load.values(), default=0)


def test_a_thousand_jobs_at_midnight_flatten_to_an_even_load() -> None:
    firings = [Firing([START + 60 * MINUTE], 1, [s for s in range(-15, 16) if s]) for _ in range(1_000)]
    assert peak(firings, spread(firings, START)) == -(-1_000 // 31)
    assert peak(firings, spread(firings, START, target=200)) == 200
    pinned = [*firings[:10], *(Firing(each.instants, 1, ()) for each in firings[10:])]
    assert peak(pinned, spread(pinned, START)) == 990


firing = st.builds(
    Firing,
    instants=st.lists(
        st.integers(30, 90).map(lambda minute: START + minute * MINUTE), min_size=1, max_size=4, unique=True
    ),
    runs=st.integers(1, 5),
    shifts=st.sampled_from([(), (-1, 1), tuple(s for s in range(-15, 16) if s)]),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(firing, max_size=30))
def test_the_peak_never_grows_and_only_allowed_moves_are_made(firings: list[Firing]) -> None:
    moves = spread(firings, START)
    assert peak(firings, moves) <= peak(firings, {})
    assert all(shift in firings[number].shifts for number, shift in moves.items())


@pytest.mark.parametrize(
    ("expression", "minutes", "moved"),
    [
        ("0 2 * * *", 10, "10 2 * * *"),
        ("0 2 * * mon", -10, "50 1 * * mon"),
        ("5 0 * * *", -10, "55 23 * * *"),
        ("5 0 * * mon", -10, None),
        ("0 * * * *", -5, "55 * * * *"),
        ("0 */6 * * *", -5, None),
        ("0 */6 * * *", 5, "5 */6 * * *"),
        ("*/5 * * * *", 1, None),
        ("30 0 2 * * *", 1, "30 1 2 * * *"),
        ("@daily", 1, None),
    ],
)
def test_a_cron_expression_moves_by_minutes_if_it_can(expression: str, minutes: int, moved: str | None) -> None:
    assert shift_cron(expression, minutes) == moved


@settings(max_examples=50, deadline=None)
@given(minute=st.integers(0, 59), hour=st.integers(0, 23), shift=st.integers(-15, 15))
def test_a_moved_trigger_is_due_that_much_later(minute: int, hour: int, shift: int) -> None:
    trigger = CronTrigger(f"{minute} {hour} * * *", "Asia/Tokyo")
    moved = shift_trigger(trigger, shift, START)
    assert moved is not None
    due = next_fire(trigger, START + 24 * HOUR, START)
    assert due is not None
    assert next_fire(moved, due + shift * MINUTE - 1, START) == due + shift * MINUTE
    often = EveryTrigger(7 * MINUTE)
    later = shift_trigger(often, shift, START)
    assert later is not None
    first = next_fire(often, START + HOUR, START)
    assert first is not None
    assert next_fire(later, first + shift * MINUTE - 1, START) == first + shift * MINUTE
