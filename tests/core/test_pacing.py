"""How much a worker takes at once."""

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.runs.pacing import AHEAD_S, MOST_AHEAD, room, typical

lengths = st.floats(1e-6, 1e5)


@given(st.integers(1, 1000), st.integers(0, 3000), lengths)
def test_a_worker_never_holds_more_than_it_can_start_soon(concurrency: int, held: int, run_s: float) -> None:
    taken = room(concurrency, held, run_s)
    assert taken >= 0
    assert held + taken <= max(held, concurrency + min(AHEAD_S * concurrency / run_s, MOST_AHEAD))


def test_a_worker_of_slow_tasks_claims_nothing_ahead() -> None:
    assert room(10, 10, 60.0) == 0
    assert room(10, 4, 60.0) == 6


def test_a_worker_that_knows_nothing_yet_claims_nothing_ahead() -> None:
    assert room(10, 0, None) == 10


def test_a_worker_of_short_tasks_meets_a_burst() -> None:
    assert room(10, 0, 0.0005) == 10 + MOST_AHEAD


@given(st.none() | lengths, lengths, st.integers(1, 1000))
def test_the_typical_length_lies_between_what_it_was_and_what_it_is(
    previous: float | None, mean: float, count: int
) -> None:
    found = typical(previous, mean * count, count)
    assert found is not None
    low, high = sorted((mean if previous is None else previous, mean))
    assert low * 0.999999 <= found <= high * 1.000001


def test_a_few_long_runs_end_the_claiming_ahead() -> None:
    run_s: float | None = 0.001
    for _ in range(3):
        run_s = typical(run_s, 5.0, 1)
    assert room(10, 10, run_s) <= 2
