from __future__ import annotations

import graphlib
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.runs.graph import check_acyclic, find_cycle
from mainspring.errors import DependencyCycle

NAMES = st.sampled_from("abcdefgh")
GRAPHS = st.dictionaries(NAMES, st.sets(NAMES, max_size=3), max_size=8)
Graph = dict[str, set[str]]


def has_cycle(edges: Graph) -> bool:
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError:
        return True
    return False


@given(GRAPHS)
def test_a_cycle_is_found_exactly_where_no_topological_order_exists(edges: Graph) -> None:
    assert (find_cycle(edges) is not None) == has_cycle(edges)


@given(GRAPHS)
def test_what_is_found_is_a_cycle_of_this_graph(edges: Graph) -> None:
    cycle = find_cycle(edges)
    if cycle is not None:
        assert len(set(cycle)) == len(cycle) > 0
        assert all(after in edges[before] for before, after in zip(cycle, cycle[1:] + cycle[:1], strict=True))


@given(GRAPHS, st.randoms(use_true_random=False))
def test_equal_graphs_give_the_same_cycle_in_whatever_order_they_are_written(edges: Graph, dice: Random) -> None:
    nodes = list(edges)
    dice.shuffle(nodes)
    shuffled = {node: dice.sample(sorted(edges[node]), len(edges[node])) for node in nodes}
    assert find_cycle(shuffled) == find_cycle(edges)


def test_a_job_that_depends_on_itself_is_a_cycle_of_one() -> None:
    assert find_cycle({"a": ["a"]}) == ["a"]


def test_a_diamond_is_no_cycle() -> None:
    assert find_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"]}) is None


def test_a_graph_with_more_paths_than_could_be_walked_is_searched_node_by_node() -> None:
    layers = {f"{side}{layer}": {f"a{layer + 1}", f"b{layer + 1}"} for layer in range(200) for side in "ab"}
    assert find_cycle(layers) is None


def test_a_chain_of_a_hundred_thousand_is_searched_without_recursion() -> None:
    chain = {str(number): [str(number + 1)] for number in range(100_000)}
    assert find_cycle(chain) is None
    chain["100000"] = ["0"]
    cycle = find_cycle(chain)
    assert cycle is not None
    assert len(cycle) == 100_001


def test_the_error_names_the_circle_and_the_field() -> None:
    with pytest.raises(DependencyCycle) as caught:
        check_acyclic({"report": ["load"], "load": ["fetch"], "fetch": ["report"], "other": ["report"]}, "after")
    assert caught.value.field == "after"
    assert caught.value.value == "fetch -> report -> load -> fetch"
    assert "'fetch -> report -> load -> fetch' is a circle" in str(caught.value)


def test_what_has_no_circle_passes() -> None:
    check_acyclic({"report": ["load"], "load": ["fetch"]}, "after")
