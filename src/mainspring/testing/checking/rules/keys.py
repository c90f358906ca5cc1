"""Keys: the runs of one key go one after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from mainspring.core.states import FAILED
from mainspring.testing.checking.stories.origins import accepted_by
from mainspring.testing.checking.stories.reading import earliest
from mainspring.testing.checking.stories.runs import RunStory, Turn
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record


class _Stay(NamedTuple):
    """How long a run had its key, at least: from its first claim to its end."""

    key: tuple[str, str]
    story: RunStory
    first: Turn
    last: Turn


def runs_of_one_key_go_in_order(stories: Stories) -> Iterator[Finding]:
    """(22) Of the runs with the same key one is at work, or waits for its retry, at a time; and they go in the order in
    which they were accepted. None of those that waited begins after one failed that stops its key.

    Not seen: the order of runs that were accepted at times that are not known exactly, by several requests, or by hand.
    """
    by_key: dict[tuple[str, str], list[_Stay]] = defaultdict(list)
    for story in stories.runs.values():
        if (stay := _stay(story)) is not None:
            by_key[stay.key].append(stay)
    for (_, key), stays in by_key.items():
        yield from _one_at_a_time(key, stays)
        accepted = [(record, stay) for stay in stays if (record := _accepted_at(stories, stay.story)) is not None]
        accepted.sort(key=lambda each: each[0].store)
        yield from _out_of_turn(key, accepted)
        yield from _begun_after_a_stop(key, stays, accepted)


def _stay(story: RunStory) -> _Stay | None:
    known, turns = story.known, story.claimed
    if known is None or known.key is None or not turns or (story.new is not None and not story.new.lines):
        return None
    return _Stay((known.namespace, known.key), story, turns[0], max(turns, key=lambda turn: turn.released))


def _one_at_a_time(key: str, stays: list[_Stay]) -> Iterator[Finding]:
    stays.sort(key=lambda stay: stay.first.claims[0].store)
    holder = stays[0]
    for stay in stays[1:]:
        if stay.first.claims[0].store < holder.last.released:
            yield _clash(f"runs {holder.story.id} and {stay.story.id} of key {key} were at work at once", holder, stay)
        holder = max(holder, stay, key=lambda each: each.last.released)


def _out_of_turn(key: str, accepted: list[tuple[Record, _Stay]]) -> Iterator[Finding]:
    """By the times of acceptance: a run whose first claim came before that of one accepted earlier."""
    before: tuple[Record, _Stay] | None = None
    for _, group in groupby(accepted, key=lambda each: each[0].store):
        same = list(group)
        for record, stay in same:
            if before is not None and stay.first.claims[0].store < earliest(before[1].first.claims[0]):
                message = f"run {stay.story.id} of key {key} went before run {before[1].story.id}, accepted earlier"
                yield _clash(message, before[1], stay, before[0], record)
        latest = max(same, key=lambda each: earliest(each[1].first.claims[0]))
        if before is None or earliest(latest[1].first.claims[0]) > earliest(before[1].first.claims[0]):
            before = latest


def _begun_after_a_stop(key: str, stays: list[_Stay], accepted: list[tuple[Record, _Stay]]) -> Iterator[Finding]:
    """A run that waited when one was claimed that then failed and stopped the key, and that was claimed after all."""
    for head in stays:
        run, options = head.story.run, head.story.options
        if run is None or run.state != FAILED or options is None or options.on_key_failure != "stop":
            continue
        claimed = head.first.claims[0].store
        for record, stay in accepted:
            if record.store >= claimed:
                break
            if stay.first.claims[0].store > claimed:
                message = f"run {stay.story.id} of key {key} began though run {head.story.id} failed and stops the key"
                yield _clash(message, head, stay, record)


def _accepted_at(stories: Stories, story: RunStory) -> Record | None:
    """The record that has the exact time at which a run was accepted."""
    record = accepted_by(stories, story)
    if record is None or record.sent is not None or len(story.submits) > 1 or record.what == "trigger":
        return None  # What was asked for again may have been accepted the first time.
    return record


def _clash(message: str, one: _Stay, other: _Stay, *more: Record) -> Finding:
    kinds = (one.story.source, *one.story.submits[:1], other.story.source, *other.story.submits[:1])
    return found(message, *kinds, one.first.claims[0], *one.last.proof(), other.first.claims[0], *more)
