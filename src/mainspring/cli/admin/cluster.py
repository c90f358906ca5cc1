"""`mainspring cluster`."""

from __future__ import annotations

from collections.abc import Collection

import click

from mainspring.cli.lazy import RemoteVerb
from mainspring.cli.opening import show_answer
from mainspring.cli.output.screen import Screen, Value, state_cell
from mainspring.cli.output.times import relative
from mainspring.cli.session import Session
from mainspring.core.instants import Instant
from mainspring.operations import records


@click.command(cls=RemoteVerb)
@click.option("--limit", default=20, show_default=True, metavar="N", help="How many terms of the history.")
@click.pass_obj
def cluster(session: Session, limit: int) -> None:
    """Show the leader, the nodes that check in, and past terms: their holders, their times, and why each ended."""
    show_answer(session, lambda scheduler: scheduler.cluster.show(limit), _draw)


def _draw(screen: Screen, found: records.Cluster, now: Instant) -> None:
    if found.nodes:
        leaders = {term.owner for term in found.terms if term.ended_at is None}
        rows = [_node_row(node, now, leaders) for node in found.nodes]
        screen.table(("NODE", "STATE", "ROLE", "COORDINATION", "CHECK-IN", "LAST", "UP"), rows)
    if not found.terms:
        screen.hint("No node has led yet. Start one with `mainspring up` or `mainspring server`.")
        return
    screen.table(("NAME", "TERM", "LEADER", "BEGAN", "ENDED", "WHY"), [_term_row(term, now) for term in found.terms])


def _node_row(node: records.Node, now: Instant, leaders: Collection[str]) -> list[Value]:
    role = "leads" if node.node in leaders else "stands by" if node.coordination == "leader" else ""
    return [
        node.node,
        state_cell("active" if node.alive else "dead"),
        role if node.alive else "",
        node.coordination,
        node.check_in,
        relative(node.checked_in_at, now),
        relative(node.started_at, now).removesuffix(" ago"),
    ]


def _term_row(term: records.Term, now: Instant) -> list[Value]:
    ended = "leads" if term.ended_at is None else relative(term.ended_at, now)
    return [term.name, str(term.number), term.owner, relative(term.began_at, now), ended, term.reason]
