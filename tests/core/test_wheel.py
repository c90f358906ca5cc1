from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mainspring.core.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration, Instant
from mainspring.core.planning.wheel import Wheel

NOON: Instant = 1_772_366_400 * SECOND


@pytest.fixture
def wheel() -> Wheel[str]:
    return Wheel(NOON, horizon=MINUTE)


def test_an_entry_fires_at_its_exact_microsecond(wheel: Wheel[str]) -> None:
    wheel.insert("job", NOON + 300)
    assert wheel.advance(NOON + 299) == []
    assert wheel.advance(NOON + 300) == [(NOON + 300, "job")]
    assert wheel.advance(NOON + 301) == []


def test_entries_of_one_tick_fire_by_instant_whatever_the_order_of_insertion(wheel: Wheel[str]) -> None:
    for offset in (700, 200, 999, 0, 450):
        wheel.insert(str(offset), NOON + SECOND + offset)
    assert wheel.advance(NOON + SECOND + 500) == [(NOON + SECOND + offset, str(offset)) for offset in (0, 200, 450)]
    assert wheel.advance(NOON + 2 * SECOND) == [(NOON + SECOND + offset, str(offset)) for offset in (700, 999)]


def test_the_soonest_are_those_of_the_earliest_instant_and_stay(wheel: Wheel[str]) -> None:
    assert wheel.soonest() == []
    for key, offset in (("late", 400), ("b", 300), ("a", 300)):
        wheel.insert(key, NOON + offset)
    assert wheel.soonest() == ["b", "a"]
    assert wheel.advance(NOON + 300) == [(NOON + 300, "b"), (NOON + 300, "a")]


def test_entries_of_one_instant_fire_in_the_order_of_insertion(wheel: Wheel[str]) -> None:
    at = NOON + SECOND
    wheel.insert("b", at)
    wheel.insert("a", at)
    wheel.next_at()
    wheel.insert("c", at)
    wheel.insert("a", at)
    assert [key for _, key in wheel.advance(at)] == ["b", "c", "a"]


def test_an_entry_in_the_past_is_due_at_the_next_advance_and_keeps_its_place_in_time(wheel: Wheel[str]) -> None:
    wheel.insert("now", NOON)
    wheel.insert("an hour ago", NOON - HOUR)
    assert wheel.next_at() == NOON - HOUR
    assert wheel.advance(NOON) == [(NOON - HOUR, "an hour ago"), (NOON, "now")]


def test_the_horizon_is_held_and_beyond_it_is_refused(wheel: Wheel[str]) -> None:
    assert wheel.insert("at", NOON + MINUTE)
    assert not wheel.insert("beyond", NOON + MINUTE + 1)
    assert "at" in wheel
    assert "beyond" not in wheel
    wheel.advance(NOON + 1)
    assert wheel.insert("beyond", NOON + MINUTE + 1)


def test_a_key_that_moves_beyond_the_horizon_no_longer_fires_at_its_old_instant(wheel: Wheel[str]) -> None:
    wheel.insert("job", NOON + SECOND)
    assert not wheel.insert("job", NOON + HOUR)
    assert "job" not in wheel
    assert wheel.advance(NOON + 2 * HOUR) == []


def test_a_key_that_moves_fires_once_at_its_new_instant(wheel: Wheel[str]) -> None:
    wheel.insert("job", NOON + 2 * SECOND)
    wheel.insert("job", NOON + SECOND)
    assert len(wheel) == 1
    assert wheel.next_at() == NOON + SECOND
    assert wheel.advance(NOON + MINUTE) == [(NOON + SECOND, "job")]


def test_a_cancelled_entry_never_fires(wheel: Wheel[str]) -> None:
    wheel.insert("job", NOON + SECOND)
    assert wheel.cancel("job")
    assert not wheel.cancel("job")
    assert wheel.next_at() is None
    assert wheel.advance(NOON + MINUTE) == []


def test_a_jump_of_a_century_takes_no_longer_than_what_it_fires(wheel: Wheel[str]) -> None:
    wheel.insert("job", NOON + SECOND)
    assert wheel.advance(NOON + 36_525 * DAY) == [(NOON + SECOND, "job")]
    assert wheel.next_at() is None


def test_a_clock_that_was_far_ahead_and_is_set_back_fires_nothing_early(wheel: Wheel[str]) -> None:
    wheel.insert("before", NOON + SECOND)
    assert [key for _, key in wheel.advance(NOON + 365 * DAY)] == ["before"]
    assert wheel.advance(NOON) == []
    assert wheel.insert("after", NOON + SECOND)
    assert not wheel.insert("beyond", NOON + HOUR)
    assert wheel.advance(NOON + SECOND - 1) == []
    assert wheel.advance(NOON + SECOND) == [(NOON + SECOND, "after")]


def test_memory_follows_what_is_held_and_not_what_was_ever_inserted() -> None:
    wheel: Wheel[int] = Wheel(NOON, horizon=DAY)
    wheel.insert(-1, NOON)
    noise = random.Random(1)
    tracemalloc.start()
    try:
        for turn in range(50_000):
            wheel.insert(turn % 10, NOON + noise.randrange(DAY))
            wheel.cancel(noise.randrange(10))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 100_000


def test_keys_that_have_moved_a_thousand_times_still_fire_in_order(wheel: Wheel[str]) -> None:
    noise = random.Random(1)
    instants = {"first": NOON + 5, "last": NOON + MINUTE}
    for key, at in instants.items():
        wheel.insert(key, at)
    assert wheel.next_at() == NOON + 5
    for turn in range(20_000):
        key = str(turn % 20)
        instants[key] = NOON + SECOND + noise.randrange(50 * SECOND)
        wheel.insert(key, instants[key])
    assert wheel.advance(NOON + MINUTE) == sorted((at, key) for key, at in instants.items())


def test_a_million_entries_come_out_complete_and_in_order() -> None:
    wheel: Wheel[int] = Wheel(NOON, horizon=MINUTE)
    noise = random.Random(1)
    instants = [NOON + noise.randrange(MINUTE) for _ in range(1_000_000)]
    for key, at in enumerate(instants):
        wheel.insert(key, at)
    assert len(wheel) == 1_000_000
    assert all(wheel.cancel(key) for key in range(0, 1_000_000, 2))
    assert len(wheel) == 500_000

    fired: list[tuple[Instant, int]] = []
    for now in range(NOON, NOON + MINUTE + 1, 250 * MILLISECOND):
        assert wheel.next_at() is not None
        fired += wheel.advance(now)
        assert not fired or fired[-1][0] <= now
    assert fired == sorted((instants[key], key) for key in range(1, 1_000_000, 2))
    assert len(wheel) == 0


KEYS = st.integers(0, 15)
HORIZON: Duration = 500


class WheelAgainstSortedList(RuleBasedStateMachine):
    """The wheel answers as a list would that is sorted by (instant, order of insertion)."""

    @initialize(tick=st.sampled_from([1, 7, 64, 10_000]), start=st.sampled_from([0, 123_457, NOON]))
    def begin(self, tick: Duration, start: Instant) -> None:
        self.wheel: Wheel[int] = Wheel(start, HORIZON, tick)
        self.now = start
        self.entries: list[tuple[Instant, int, int]] = []
        self.inserted = 0

    @rule(key=KEYS, offset=st.integers(-50, HORIZON + 50) | st.sampled_from([0, 1, 100, HORIZON, HORIZON + 1]))
    def insert(self, key: int, offset: Duration) -> None:
        at = self.now + offset
        assert self.wheel.insert(key, at) == (offset <= HORIZON)
        self.entries = [entry for entry in self.entries if entry[2] != key]
        if offset <= HORIZON:
            self.inserted += 1
            self.entries.append((at, self.inserted, key))

    @rule(key=KEYS)
    def cancel(self, key: int) -> None:
        rest = [entry for entry in self.entries if entry[2] != key]
        assert self.wheel.cancel(key) == (len(rest) < len(self.entries))
        self.entries = rest

    @rule(step=st.integers(-60, 120) | st.sampled_from([0, 1, HORIZON, HOUR, -HOUR]))
    def advance(self, step: Duration) -> None:
        self.now += step
        due = sorted(entry for entry in self.entries if entry[0] <= self.now)
        assert self.wheel.advance(self.now) == [(at, key) for at, _, key in due]
        self.entries = [entry for entry in self.entries if entry[0] > self.now]

    @rule()
    def look_at_the_next(self) -> None:
        assert self.wheel.next_at() == min((at for at, _, _ in self.entries), default=None)

    @invariant()
    def holds_the_same_keys(self) -> None:
        held = {key for _, _, key in self.entries}
        assert len(self.wheel) == len(held)
        assert {key for key in range(16) if key in self.wheel} == held


TestWheelAgainstSortedList = WheelAgainstSortedList.TestCase
TestWheelAgainstSortedList.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
