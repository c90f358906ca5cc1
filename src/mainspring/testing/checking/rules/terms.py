"""Terms: they grow, and fence what was begun under older ones."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from mainspring.core.instants import format_instant
from mainspring.testing.checking.stories.reading import earliest, surely_before
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record


def terms_grow_and_fence(stories: Stories) -> Iterator[Finding]:
    """(17) Each term has its own number, greater than those before; and nothing is fired under a term once a later
    one has begun.

    Not seen: the order of terms and firings where it is not known; firings without a term.
    """
    by_name: dict[str | None, list[Record]] = defaultdict(list)
    for record in stories.terms:
        by_name[record.name].append(record)
    for name, terms in by_name.items():
        terms.sort(key=_order)
        yield from _not_growing(name, terms)
        yield from _under_old_terms(stories, terms, {name} if len(by_name) > 1 else {name, None})


def _order(record: Record) -> tuple[int, int]:
    return record.store, record.seq


def _number(record: Record) -> int:
    return record.term or 0


def _not_growing(name: str | None, terms: list[Record]) -> Iterator[Finding]:
    owners: dict[int, Record] = {}
    for record in terms:
        first = owners.setdefault(_number(record), record)
        if first.actor != record.actor:
            yield found(f"term {record.term} of {name} was given to {first.actor} and to {record.actor}", first, record)
    for one, other in pairwise(terms):
        if _number(other) < _number(one) and surely_before(one, other):
            yield found(f"term {other.term} of {name} began after term {one.term}", one, other)


def _under_old_terms(stories: Stories, terms: list[Record], names: set[str | None]) -> Iterator[Finding]:
    """`names` are those by which firings may name these terms."""
    newest: list[Record] = []
    for record in terms:
        newest.append(record if not newest or _number(record) > _number(newest[-1]) else newest[-1])
    begun = [record.store for record in terms]
    for job in stories.jobs.values():
        for fire in job.fires:
            if fire.outcome != "ok" or fire.term is None or fire.name not in names:
                continue
            position = bisect_left(begun, earliest(fire))
            if position and _number(newest[position - 1]) > fire.term:
                term = newest[position - 1]
                message = (
                    f"job {job.name} was fired for {format_instant(fire.fire_at or 0)} under term {fire.term}, after "
                    f"term {term.term} had begun at {format_instant(term.store)}"
                )
                yield found(message, term, fire)
