"""Degradation: one step at a time, in order, with hysteresis."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import SECOND
from mainspring.core.load.degradation import (
    ENTER_AFTER,
    GIVEN_UP,
    LEAVE,
    LEAVE_AFTER,
    MARKS,
    NAMES,
    NORMAL,
    REFUSING,
    SHEDDING,
    Level,
    Limits,
    Load,
    describe,
    judge,
    pressure,
)

LIMITS = Limits(pool_wait=SECOND, depth=1_000, lateness=60 * SECOND)


def held(level: Level, measured: float, seconds: int, now: int = 0) -> Level:
    """The level after some time under one pressure, looked at each second."""
    for second in range(seconds + 1):
        level = judge(level, measured, now + second * SECOND)
    return level


def test_a_level_gives_up_what_those_before_it_do() -> None:
    assert Level().given_up == ""
    assert Level(SHEDDING).given_up == "runs of priorities 8 to 10 are skipped"
    assert Level(REFUSING).given_up == ", ".join(reversed(GIVEN_UP[1:]))
    assert Level(REFUSING).given_up.startswith("new work is refused")


def test_the_order_is_shed_slow_history_no_waiting_refuse() -> None:
    assert NAMES == ("normal", "shedding", "slow-history", "no-waiting", "refusing")
    seen = [Level()]
    for second in range(60):
        seen.append(judge(seen[-1], 100.0, second * SECOND))
    assert [name for n, name in enumerate(each.name for each in seen) if n == 0 or seen[n - 1].name != name] == [*NAMES]


def test_the_worst_of_what_is_measured_counts() -> None:
    assert pressure(Load(), LIMITS) == 0
    assert pressure(Load(depth=1_500, lateness=30 * SECOND), LIMITS) == 1.5
    assert pressure(Load(pool_wait=2 * SECOND), LIMITS) == 2
    assert describe(Load(depth=1_500, lateness=61 * SECOND), LIMITS) == "runs wait 1 m 1 s, 1500 runs wait"
    spoken = {60: "1 m", 5_191: "1 h 26 m", 7_200: "2 h", 180_000: "2 d 2 h"}
    assert [describe(Load(lateness=each * SECOND), LIMITS) for each in spoken] == [
        f"runs wait {said}" for said in spoken.values()
    ]


def test_a_short_peak_changes_nothing() -> None:
    level = held(Level(), 10.0, ENTER_AFTER // SECOND - 1)
    assert level.number == NORMAL
    assert judge(level, 0.0, ENTER_AFTER) == Level()


def test_a_level_is_left_only_well_below_its_mark_and_after_a_while() -> None:
    level = held(Level(), MARKS[1], ENTER_AFTER // SECOND)
    assert level.number == 1
    now = 1_000 * SECOND
    assert held(level, MARKS[1] * 0.8, 600, now).number == 1
    assert held(level, MARKS[1] * LEAVE, 600, now).number == 1
    assert held(level, MARKS[1] * LEAVE - 0.01, LEAVE_AFTER // SECOND - 1, now).number == 1
    assert held(level, MARKS[1] * LEAVE - 0.01, LEAVE_AFTER // SECOND, now).number == 0


@given(st.lists(st.tuples(st.integers(0, 20 * SECOND), st.floats(0, 6)), max_size=100))
def test_it_moves_by_one_level_never_faster_than_its_pauses_and_only_with_a_reason(
    course: list[tuple[int, float]],
) -> None:
    level, now, moved_at = Level(), 0, -ENTER_AFTER
    for step, measured in course:
        now += step
        after = judge(level, measured, now)
        assert NORMAL <= after.number <= REFUSING
        if after.number > level.number:
            assert after.number == level.number + 1
            assert measured >= MARKS[after.number]
            assert now - moved_at >= ENTER_AFTER
        if after.number < level.number:
            assert after.number == level.number - 1
            assert measured < MARKS[level.number] * LEAVE
            assert now - moved_at >= LEAVE_AFTER
        moved_at = now if after.number != level.number else moved_at
        level = after


@given(st.floats(0, 10))
def test_a_steady_pressure_comes_to_one_level_and_stays(measured: float) -> None:
    level = held(Level(), measured, 300)
    expected = max(n for n, mark in enumerate(MARKS) if measured >= mark)
    assert level.number == expected
    assert held(level, measured, 300, 301 * SECOND).number == expected
