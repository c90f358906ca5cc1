"""Groups take turns: each gets its share, whatever the others ask for."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.planning.fair_queue import QUANTUM, FairQueue


def drain(queue: FairQueue[tuple[str, int]], costs: dict[str, int], most: int, now: int = 0) -> list[str]:
    served: list[str] = []
    while len(served) < most and (item := queue.pop(now)) is not None:
        served.append(item[0])
        queue.charge(item[0], costs[item[0]])
    return served


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 40), min_size=1))
def test_all_comes_out_once_and_in_order_within_its_group(sizes: dict[str, int]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for group, size in sizes.items():
        for number in range(size):
            queue.push(group, (group, number))
    found = []
    while (item := queue.pop(0)) is not None:
        found.append(item)
        queue.charge(item[0], 7)
    assert sorted(found) == sorted((group, number) for group, size in sizes.items() for number in range(size))
    for group, size in sizes.items():
        assert [number for name, number in found if name == group] == list(range(size))
    assert queue.next_at(0) is None


def test_a_group_of_expensive_items_gets_no_more_than_others() -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    costs = {"dear": 10 * QUANTUM, "cheap": 1}
    for group in costs:
        for number in range(5_000):
            queue.push(group, (group, number))
    served = Counter(drain(queue, costs, 2_000))
    assert served["cheap"] > 1_900
    assert served["dear"] >= 1


def test_a_group_of_one_item_at_a_time_does_not_escape_its_debts() -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    costs = {"dear": 50 * QUANTUM, "cheap": 1}
    for number in range(20_000):
        queue.push("cheap", ("cheap", number))
    served: Counter[str] = Counter()
    for number in range(6_000):
        if "dear" not in queue:
            queue.push("dear", ("dear", number))
        served.update(drain(queue, costs, 1))
    assert served["dear"] <= 3


def test_a_held_group_waits_and_the_others_go_on() -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for group in ("a", "b"):
        queue.push(group, (group, 0))
    queue.hold("a", 100)
    assert drain(queue, {"a": 1, "b": 1}, 10) == ["b"]
    assert (queue.next_at(50), queue.is_held("a", 99), queue.is_held("a", 100)) == (100, True, False)
    assert drain(queue, {"a": 1, "b": 1}, 10, now=100) == ["a"]


def test_what_is_put_back_is_next() -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for number in range(3):
        queue.push("a", ("a", number))
    first = queue.pop(0)
    assert first is not None
    queue.push_front("a", first)
    assert queue.pop(0) == ("a", 0)
