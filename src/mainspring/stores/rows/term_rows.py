"""What both stores report of terms, and nodes as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Event, Node, Term

_loops = msgspec.json.Decoder(dict[str, str]).decode


def resigned(term: Term, reason: str, now: Instant) -> Event:
    """The event of a term that its owner has ended."""
    return Event("leader.resigned", now, worker=term.owner, count=term.number, reason=f"{term.name}: {reason}")


def node_values(node: Node, now: Instant) -> tuple[object, ...]:
    """What is stored of a node that checks in."""
    return node.name, node.coordination, node.every, now, node.skew, msgspec.json.encode(node.loops).decode()


def node_of(row: Sequence[Any]) -> Node:
    """A node from its row."""
    name, coordination, every, started_at, checked_in_at, skew, loops = row
    return Node(name, coordination, every, started_at, checked_in_at, skew, _loops(loops))
