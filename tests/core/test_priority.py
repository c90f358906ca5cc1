from __future__ import annotations

from datetime import UTC, datetime
from heapq import heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant, from_datetime
from mainspring.core.runs.priority import HIGHEST, LOWEST, Ordering, check_priority, rank
from mainspring.errors import InvalidInput

LATEST: Instant = from_datetime(datetime(2200, 1, 1, tzinfo=UTC))
PRIORITIES = st.integers(HIGHEST, LOWEST)
INSTANTS = st.integers(0, LATEST)
RUNS = st.tuples(PRIORITIES, INSTANTS)
Run = tuple[int, Instant]
ORDERINGS = st.sampled_from(["strict", "ageing"])


@given(RUNS, RUNS)
def test_strict_orders_by_priority_and_then_by_due_time(one: Run, other: Run) -> None:
    assert (rank(*one, "strict") < rank(*other, "strict")) == (one < other)


def test_strict_holds_from_the_first_instant_to_the_last() -> None:
    assert rank(1, LATEST, "strict") < rank(2, 0, "strict")


@given(PRIORITIES, st.integers(0, LATEST // MILLISECOND), PRIORITIES, st.integers(-20_000_000, 20_000_000))
def test_ageing_is_the_order_of_priority_times_a_million_plus_milliseconds(
    priority: int, due_ms: int, other_priority: int, offset_ms: int
) -> None:
    other_ms = max(due_ms + offset_ms, 0)
    by_formula = priority * 1_000_000 + due_ms < other_priority * 1_000_000 + other_ms
    one = rank(priority, due_ms * MILLISECOND, "ageing")
    other = rank(other_priority, other_ms * MILLISECOND, "ageing")
    assert (one < other) == by_formula


def test_under_ageing_one_step_of_priority_is_worth_a_thousand_seconds() -> None:
    assert rank(5, 0, "ageing") < rank(4, 1_000 * SECOND + 1, "ageing")
    assert rank(5, 0, "ageing") == rank(4, 1_000 * SECOND, "ageing")
    assert rank(5, 0, "ageing") > rank(4, 1_000 * SECOND - 1, "ageing")


@given(RUNS, ORDERINGS)
def test_every_rank_fits_a_signed_64_bit_integer(run: Run, ordering: Ordering) -> None:
    assert 0 <= rank(*run, ordering) < 2**63


# No run starves under ageing. Let a run have priority p and be due at d.
# 1. Whatever comes due after d + (p - 1) * 1000 s ranks behind it, of whatever priority.
# 2. So while it waits, a server only serves runs due up to then. If these are N, it is served after N others at most,
#    however fast work keeps arriving afterwards, and however much faster than it can be served.


@given(RUNS, PRIORITIES, st.integers(1, 20_000 * SECOND))
def test_under_ageing_no_later_run_overtakes_beyond_the_bound(run: Run, other_priority: int, later: Duration) -> None:
    priority, due_at = run
    other_due_at = due_at + (priority - HIGHEST) * 1_000 * SECOND + later
    assert rank(priority, due_at, "ageing") < rank(other_priority, other_due_at, "ageing")


TURN: Duration = 100 * SECOND
"""The server serves one run per turn."""
Load = list[list[int]]
"""The priorities of the runs that arrive in each turn; repeated for ever."""


def served_before(victim: int, load: Load, ordering: Ordering, patience: int) -> int | None:
    """How many runs a server takes before one of that priority that is due at 0; None if more than `patience`."""
    waiting = [(rank(victim, 0, ordering), True)]
    for turn in range(patience + 1):
        for priority in load[turn % len(load)]:
            heappush(waiting, (rank(priority, turn * TURN, ordering), False))
        _, is_victim = heappop(waiting)
        if is_victim:
            return turn
    return None


def due_up_to_the_bound(victim: int, load: Load) -> int:
    turns = (victim - HIGHEST) * 1_000 * SECOND // TURN + 1
    return sum(len(load[turn % len(load)]) for turn in range(turns))


@given(PRIORITIES, st.lists(st.lists(PRIORITIES, max_size=4), min_size=1, max_size=5))
def test_under_ageing_every_run_is_served_within_the_bound_even_under_overload(victim: int, load: Load) -> None:
    bound = due_up_to_the_bound(victim, load)
    assert served_before(victim, load, "ageing", patience=bound) is not None


def test_under_a_full_load_of_the_highest_priority_ageing_serves_the_lowest_and_strict_starves_it() -> None:
    load = [[HIGHEST]]
    bound = due_up_to_the_bound(LOWEST, load)
    assert served_before(LOWEST, load, "ageing", patience=bound) == bound
    assert served_before(LOWEST, load, "strict", patience=100 * bound) is None


@pytest.mark.parametrize("priority", range(1, 11))
def test_one_to_ten_are_priorities(priority: int) -> None:
    assert check_priority(priority) == priority


@pytest.mark.parametrize("value", [0, 11, -1, True, 1.0, "1", None])
def test_nothing_else_is_a_priority(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"1 \(highest\) to 10 \(lowest\)") as caught:
        check_priority(value, "job.priority")
    assert caught.value.field == "job.priority"
    assert caught.value.value is value
