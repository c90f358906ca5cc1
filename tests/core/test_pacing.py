"""How much a worker takes at once."""

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.pacing import AHEAD_S, MOST_AHEAD, room, smoothed

rates = st.floats(0, 1e6)


@given(st.integers(1, 1000), st.integers(0, 3000), rates)
def test_a_worker_never_holds_more_than_it_can_start_soon(concurrency: int, held: int, rate: float) -> None:
    taken = room(concurrency, held, rate)
    assert taken >= 0
    assert held + taken <= max(held, concurrency + min(rate * AHEAD_S, MOST_AHEAD))


def test_a_worker_of_slow_tasks_claims_nothing_ahead() -> None:
    assert room(10, 10, 0.5) == 0
    assert room(10, 4, 0.5) == 6


@given(rates, st.integers(0, 100_000), st.floats(0.001, 100))
def test_the_rate_lies_between_what_it_was_and_what_it_is(previous: float, count: int, seconds: float) -> None:
    low, high = sorted((previous, count / seconds))
    assert low * 0.999999 <= smoothed(previous, count, seconds) <= high * 1.000001 + 1e-9


def test_a_burst_is_met_at_once_and_forgotten_within_seconds() -> None:
    rate = 0.0
    for _ in range(5):
        rate = smoothed(rate, 100, 0.01)
    assert rate > 5_000
    for _ in range(50):
        rate = smoothed(rate, 0, 0.1)
    assert rate < 100
