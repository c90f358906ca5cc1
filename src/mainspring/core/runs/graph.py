"""Circles among dependencies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from mainspring.errors import DependencyCycle

Edges = Mapping[str, Collection[str]]


def find_cycle(edges: Edges) -> list[str] | None:
    """Some circle, as nodes that each lead to the next and the last to the first; None if there is none.

    A node that leads to itself is a circle of one. Equal graphs give the same circle, in whatever order they list their
    nodes. Chains may be as long as memory allows.
    """
    cleared: set[str] = set()
    for root in sorted(edges):
        if root not in cleared and (cycle := _cycle_from(root, edges, cleared)):
            return cycle
    return None


def check_acyclic(edges: Edges, field: str) -> None:
    """Raise DependencyCycle, naming the circle, if there is one."""
    if cycle := find_cycle(edges):
        circle = " -> ".join([*cycle, cycle[0]])
        raise DependencyCycle(field, circle, "is a circle", "remove one of these dependencies")


def _cycle_from(root: str, edges: Edges, cleared: set[str]) -> list[str] | None:
    """Search in depth; nodes from which no circle can be reached are added to `cleared`."""
    # The path from the root to the current node, and at each node the successors not yet tried.
    path: dict[str, Iterator[str]] = {root: _successors(edges, root)}
    while path:
        node, untried = next(reversed(path.items()))
        successor = next((each for each in untried if each not in cleared), None)
        if successor is None:
            path.popitem()
            cleared.add(node)
        elif successor in path:
            nodes = list(path)
            return nodes[nodes.index(successor) :]
        else:
            path[successor] = _successors(edges, successor)
    return None


def _successors(edges: Edges, node: str) -> Iterator[str]:
    # Sorted, because the order of a set of strings differs from process to process.
    return iter(sorted(edges.get(node, ())))
