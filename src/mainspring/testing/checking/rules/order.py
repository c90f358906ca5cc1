"""Priorities: the best run goes first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from mainspring.core.instants import Instant
from mainspring.core.runs.priority import HIGHEST, rank
from mainspring.core.states import FAILED, SUCCEEDED
from mainspring.testing.checking.stories.origins import accepted_by, origin, waits_for_nothing
from mainspring.testing.checking.stories.reading import earliest
from mainspring.testing.checking.stories.runs import RunStory
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record

SELDOM = 2
"""Passed over twice that part of the bound apart, a run is not passed over all the time."""
Line = tuple[str, str, str, str]
"""Namespace, queue, region, task: a worker either serves all runs that have these in common, or none."""


class _Claimed(NamedTuple):
    """A claim, and what decides its order."""

    claim: Record
    story: RunStory
    line: Line
    priority: int
    due: Instant
    """When the run was due; of one that was claimed before, when it was due at first."""


class _Arrival(NamedTuple):
    """A run that waits: ordered by when it was due."""

    due: Instant
    seq: int
    since: Instant
    claimed: _Claimed


def the_best_run_goes_first(stories: Stories) -> Iterator[Finding]:
    """(13) A worker never claims a run while a better one, which it could have claimed as well, is left.

    Better by both orderings, strict and ageing, so that it does not matter which one is set; under ageing this is also
    why no run starves. Not seen: that better runs were left which had to wait for anything, or had been claimed before;
    or that are of a task, queue or region of which the worker claimed nothing, as it may not serve them, or of a task
    of which it was given a run that its code does not take, as it leaves those to others; claims whose order to others
    is not known. Where claimers pass over what others look at, it must go on for `passing_bound`, again
    and again, without a fault: one that was passed over once may then have to wait for better ones.
    """
    claims = [claimed for story in stories.runs.values() for claimed in _claims(story)]
    claims.sort(key=lambda each: (each.claim.store, each.claim.seq))
    serves: dict[str | None, dict[Line, _Claimed]] = defaultdict(dict)
    aside = {(each.claim.worker, each.line[-1]) for each in claims if not _is_taken(stories, each)}
    for claimed in claims:
        if (claimed.claim.worker, claimed.line[-1]) not in aside:
            serves[claimed.claim.worker].setdefault(claimed.line, claimed)
    waiting = _Waiting(stories, claims)
    for claimed in claims:
        waiting.move_to(earliest(claimed.claim))
        for line, witness in serves[claimed.claim.worker].items():
            better = waiting.better_than(claimed, line)
            if better is not None:
                yield _overtaken(stories, claimed, better, witness)
                break


def _is_taken(stories: Stories, claimed: _Claimed) -> bool:
    known = claimed.story.known
    return known is None or stories.takes(claimed.claim.worker, known)


def _claims(story: RunStory) -> Iterator[_Claimed]:
    known = story.known
    if known is None:
        return
    line = (known.namespace, known.queue, known.region, known.task)
    for turn in story.claimed:
        due = story.new.due_at if story.new is not None else _unchanged_due(story)
        if due is not None:
            yield _Claimed(turn.claims[0], story, line, known.priority, due)


def _unchanged_due(story: RunStory) -> Instant | None:
    """A run that ended with its first claim is still due when it was: it never went back to wait. One that was skipped
    may have, if it was given back and expired."""
    run = story.run
    ended = run is not None and run.token == 1 and run.state in (SUCCEEDED, FAILED)
    return run.due_at if run is not None and ended else None


def _overtaken(stories: Stories, claimed: _Claimed, better: _Claimed, witness: _Claimed) -> Finding:
    message = (
        f"worker {claimed.claim.worker} claimed run {claimed.story.id} (priority {claimed.priority}, token "
        f"{claimed.claim.token}) while run {better.story.id} (priority {better.priority}) was due and waited"
    )
    evidence: list[Record | None] = []
    for each in (claimed, better, witness):
        evidence += [each.claim, *origin(stories, each.story), accepted_by(stories, each.story)]
    return found(message, *evidence)


class _Passing(NamedTuple):
    """How long a run has been passed over."""

    since: Instant
    last: Instant


class _Waiting:
    """The runs that surely wait, as time goes on: accepted, due, and never claimed so far."""

    def __init__(self, stories: Stories, claims: list[_Claimed]) -> None:
        self._stories = stories
        self._bound = stories.bounds.passing
        self._coming: list[_Arrival] = []
        for claimed in claims:
            accepted = accepted_by(stories, claimed.story)
            if claimed.claim.token == 1 and accepted is not None and waits_for_nothing(stories, claimed.story):
                since = max(accepted.store, claimed.due)
                self._coming.append(_Arrival(claimed.due, claimed.claim.seq, since, claimed))
        self._coming.sort(key=lambda arrival: arrival.since, reverse=True)
        self._heaps: dict[tuple[Line, int], list[_Arrival]] = defaultdict(list)
        self._passed: dict[str, _Passing] = {}

    def move_to(self, now: Instant) -> None:
        """Admit those that came before now."""
        while self._coming and self._coming[-1].since < now:
            arrival = self._coming.pop()
            heappush(self._heaps[arrival.claimed.line, arrival.claimed.priority], arrival)

    def better_than(self, claimed: _Claimed, line: Line) -> _Claimed | None:
        """One in a line that waited before this one was claimed, and still did afterwards, and has the better rank; if
        it has been passed over for too long."""
        for priority in range(HIGHEST, claimed.priority + 1):
            heap = self._heaps.get((line, priority))
            while heap and earliest(heap[0].claimed.claim) <= claimed.claim.store:
                heappop(heap)
            if not heap or heap[0].since >= earliest(claimed.claim):
                continue
            is_better = rank(priority, heap[0].due, "ageing") < rank(claimed.priority, claimed.due, "ageing")
            passed = heap[0].claimed.story
            is_left = is_better and not self._is_paused(passed, claimed.claim)
            if is_left and self._is_too_long(passed.id, claimed.claim.store):
                return heap[0].claimed
        return None

    def _is_paused(self, story: RunStory, claim: Record) -> bool:
        """Whether a run was passed over since its queue is paused: then it has not been passed over at all."""
        if story.known is None or self._stories.pause_before(story.known.queue, claim) is None:
            return False
        self._passed.pop(story.id, None)
        return True

    def _is_too_long(self, run_id: str, now: Instant) -> bool:
        """Whether a run that is passed over now has been, again and again, for as long as the bound."""
        passing = self._passed.get(run_id)
        if (
            passing is None
            or now - passing.last > self._bound // SELDOM
            or not self._stories.is_undisturbed(passing.since, now)
        ):
            passing = _Passing(now, now)
        self._passed[run_id] = passing._replace(last=now)
        return now - passing.since >= self._bound
