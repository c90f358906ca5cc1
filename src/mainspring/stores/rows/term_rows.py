"""Terms and nodes: what both stores write and read of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.core.load.leadership import NODES_KEPT, OVERTAKEN, TERMS_KEPT
from mainspring.core.model import Event, Node, Term
from mainspring.stores.rows.transaction import Transaction
from mainspring.stores.sql import load_queries

_loops = msgspec.json.Decoder(dict[str, str]).decode


async def begin_term(tx: Transaction, name: str, owner: str) -> Term:
    """See `store.LeaseStore`."""
    queries = load_queries(tx.dialect, "leases")
    newest = await tx.fetchrow(queries["newest_term"], name)
    if newest is not None and newest[1] == owner:
        number, opened = newest[0], await tx.fetchval(queries["open_term"], name, newest[0], owner, tx.now)
    else:
        number = opened = await tx.fetchval(queries["begin_term"], name, owner, tx.now)
        await tx.run(queries["close_terms"], name, number, tx.now, OVERTAKEN)
        await tx.run(queries["forget_terms"], name, number - TERMS_KEPT)
        await tx.fetchval(queries["open_term"], name, number, owner, tx.now)
    if opened is not None:
        tx.events.append(Event("leader.elected", tx.now, worker=owner, count=number, reason=name))
    return Term(name, number, owner)


async def end_term(tx: Transaction, term: Term, reason: str) -> None:
    """See `store.LeaseStore`."""
    values = (term.name, term.number, term.owner, tx.now, reason)
    if await tx.run(load_queries(tx.dialect, "leases")["end_term"], *values):
        resigned = f"{term.name}: {reason}"
        tx.events.append(Event("leader.resigned", tx.now, worker=term.owner, count=term.number, reason=resigned))


async def check_in(tx: Transaction, node: Node) -> None:
    """See `store.LeaseStore`."""
    queries, loops = load_queries(tx.dialect, "leases"), msgspec.json.encode(node.loops).decode()
    await tx.run(queries["check_in"], node.name, node.coordination, node.every, tx.now, node.skew, loops)
    await tx.run(queries["forget_nodes"], tx.now - NODES_KEPT)


def node_of(row: Sequence[Any]) -> Node:
    """A node from its row."""
    name, coordination, every, started_at, checked_in_at, skew, loops = row
    return Node(name, coordination, every, started_at, checked_in_at, skew, _loops(loops))
