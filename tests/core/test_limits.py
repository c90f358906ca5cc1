"""The generic cell rate algorithm, against its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.load.rate_limits import Pace, allow

PACES = st.builds(Pace, st.integers(1, 1000), st.sampled_from([SECOND, MINUTE]))


@given(PACES, st.lists(st.tuples(st.integers(0, MINUTE), st.integers(1, 50)), max_size=60))
def test_no_period_sees_more_than_twice_the_amount_and_the_pace_holds_in_the_long_run(
    pace: Pace, asked: list[tuple[int, int]]
) -> None:
    now = paid_at = spent = 0
    for pause, cost in asked:
        now += pause
        answer = allow(paid_at, now, cost, pace)
        if answer.granted:
            paid_at = answer.paid_at
            spent += cost
    assert spent <= pace.amount + now * pace.amount / pace.period + 1e-6


@given(PACES, st.integers(0, 10**15), st.integers(0, MINUTE), st.integers(1, 1000))
def test_a_caller_that_waits_as_long_as_answered_is_granted(pace: Pace, now: int, ahead: int, cost: int) -> None:
    answer = allow(now + min(ahead, pace.period), now, cost, pace)
    if not answer.granted and cost <= pace.amount:
        assert allow(answer.paid_at, now + answer.wait, cost, pace).granted
        assert not allow(answer.paid_at, now + answer.wait - 1, cost, pace).granted


@given(PACES, st.integers(0, 10**15), st.integers(0, 2 * MINUTE))
def test_what_is_said_to_be_left_is_granted(pace: Pace, now: int, ahead: int) -> None:
    left = allow(now + ahead, now, pace.amount + 1, pace).left
    if left:
        assert allow(now + ahead, now, left, pace).granted


def test_more_than_a_whole_burst_is_never_granted() -> None:
    answer = allow(0, 10**12, 11, Pace(10, MINUTE))
    assert (answer.granted, answer.wait, answer.left) == (False, MINUTE, 10)
