"""Pools: which runs may begin where, so that none starves and urgent ones do not wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.runs.pools import PriorityPool, make_pools, read_pools, room_of
from mainspring.errors import InvalidInput

USUAL = make_pools({1: 100, 2: 50, 3: 20})
SIZES = st.dictionaries(st.integers(1, 10), st.integers(1, 12), min_size=1, max_size=4)


def test_every_priority_has_one_pool() -> None:
    assert [pool.priorities for pool in USUAL] == [(1,), (2,), (3, 4, 5, 6, 7, 8, 9, 10)]
    assert [pool.priorities for pool in make_pools({5: 1, 3: 1})] == [(1, 2, 3, 4), (5, 6, 7, 8, 9, 10)]
    assert make_pools({4: 7}) == (PriorityPool(7, tuple(range(1, 11))),)


def test_a_pool_takes_its_own_and_idle_ones_help_lower_priorities() -> None:
    assert [room_of(USUAL, [0, 0, 0], index) for index in range(3)] == [100, 150 - 25, 170 - 25 - 13]


def test_a_quarter_of_a_pool_is_left_to_its_own_runs_when_it_helps() -> None:
    assert room_of(USUAL, [0, 0, 132], 2) == 0
    assert room_of(USUAL, [0, 0, 132], 0) >= 25
    assert room_of(USUAL, [0, 0, 132], 1) == 13


def test_while_its_own_runs_take_it_up_a_pool_helps_nobody() -> None:
    assert room_of(USUAL, [100, 50, 0], 2) == 20
    assert room_of(USUAL, [80, 0, 0], 1) == 50
    assert room_of(USUAL, [90, 45, 20], 2) == 0


def test_a_pool_of_one_place_never_helps() -> None:
    assert room_of(make_pools({1: 1, 2: 1}), [0, 1], 1) == 0


@given(st.data(), SIZES)
def test_whatever_comes_and_ends_each_priority_gets_its_own_places_in_the_end_and_no_more_run_than_there_are_places(
    data: st.DataObject, sizes: dict[int, int]
) -> None:
    pools = make_pools(sizes)
    held = [0] * len(pools)
    for _ in range(data.draw(st.integers(0, 30))):
        index = data.draw(st.integers(0, len(pools) - 1))
        if data.draw(st.booleans()):
            held[index] += data.draw(st.integers(0, room_of(pools, held, index)))
        else:
            held[index] -= data.draw(st.integers(0, held[index]))
        for upto in range(len(pools)):
            assert sum(held[: upto + 1]) <= sum(pool.places for pool in pools[: upto + 1])
    index = data.draw(st.integers(0, len(pools) - 1))
    for other in range(len(pools)):
        held[other] = min(held[other], pools[other].places)  # The runs that were helped have ended.
    assert room_of(pools, held, index) >= pools[index].places - held[index]


@given(SIZES, st.data())
def test_after_any_flood_of_lower_priority_an_urgent_run_begins_at_once(
    sizes: dict[int, int], data: st.DataObject
) -> None:
    pools = make_pools(sizes)
    urgent = data.draw(st.integers(0, len(pools) - 1))
    held = [0] * len(pools)
    for index in data.draw(st.permutations(range(urgent + 1, len(pools)))):
        held[index] = room_of(pools, held, index)
    assert room_of(pools, held, urgent) >= pools[urgent].kept >= 1


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (["100"], "write priority=places"),
        (["=5"], "write priority=places"),
        (["1="], "write priority=places"),
        (["0=5"], "whole number from 1"),
        (["11=5"], "whole number from 1"),
        (["-1=5"], "whole number from 1"),
        (["high=5"], "whole number from 1"),
        (["1=0"], "from 1 to 10000"),
        (["1=-3"], "from 1 to 10000"),
        (["1=many"], "from 1 to 10000"),
        (["1=10001"], "from 1 to 10000"),
        (["1=99999999999999999999"], "from 1 to 10000"),
        (["1=5", "2=5", "1=7"], "priority 1 again"),
    ],
)
def test_what_is_no_pool_is_refused_with_a_remedy(written: list[str], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_pools("pools", written)


def test_pools_are_in_order_of_priority() -> None:
    assert read_pools("pools", [" 3 = 20", "1=100 "]) == ((1, 100), (3, 20))
