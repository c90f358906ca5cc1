"""Limits: how many may be at work at once, at a gate or of one job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from mainspring.core.instants import Instant, format_instant
from mainspring.core.model import Gate, Overlap
from mainspring.core.planning.plans import make_runs
from mainspring.core.runs.regions import home_of
from mainspring.testing.checking.stories.jobs import JobStory
from mainspring.testing.checking.stories.origins import accepted_by, origin
from mainspring.testing.checking.stories.runs import RunStory
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record


class Stay(NamedTuple):
    """A run was surely inside from `start` to `end`."""

    start: Instant
    end: Instant
    holder: str
    shown_by: tuple[Record | None, ...]


def crowd(stays: Iterable[Stay], capacity: int) -> Sequence[Stay]:
    """The first that were in at once, one more than there is room for; empty if that never happened."""
    inside: list[tuple[Instant, int, Stay]] = []
    for number, stay in enumerate(sorted(stays, key=lambda stay: stay.start)):
        if stay.end <= stay.start:
            continue
        while inside and inside[0][0] <= stay.start:
            heappop(inside)
        heappush(inside, (stay.end, number, stay))
        if len(inside) > capacity:
            return [each for _, _, each in sorted(inside)]
    return ()


def concurrency_stays_within_limits(stories: Stories) -> Iterator[Finding]:
    """(16) No more runs hold a gate at once than it has room for: a gate of a task, of a job or of a firing.

    Held from the claim to the report, the return or the loss. Where a gate had several capacities, the largest counts.
    Not seen: gates of jobs that had them for a while only; claims whose begin or end is not known well enough.
    """
    stays: dict[tuple[str, str], list[Stay]] = defaultdict(list)
    capacities: dict[tuple[str, str], int] = {}
    for story in stories.runs.values():
        known = story.known
        if known is None or not story.claimed:
            continue
        for gate in _gates(stories, story):
            name = (known.namespace, gate.name)
            capacities[name] = max(gate.capacity, capacities.get(name, 0))
            stays[name] += _holds(stories, story)
    for name, capacity in capacities.items():
        if inside := crowd(stays[name], capacity):
            yield _overfull(f"gate {name[1]}", capacity, inside)


def _overfull(what: str, capacity: int, inside: Sequence[Stay]) -> Finding:
    moment = max(stay.start for stay in inside)
    holders = ", ".join(stay.holder for stay in inside)
    message = f"{what} has room for {capacity}, and {len(inside)} were in at {format_instant(moment)}: {holders}"
    return found(message, *(record for stay in inside for record in stay.shown_by))


def _gates(stories: Stories, story: RunStory) -> tuple[Gate, ...]:
    if story.new is not None:
        return story.new.gates
    run = story.run
    if run is None or run.job_id is None or run.fire_at is None:
        return ()
    gated = stories.job(run.job_id).gated
    return () if gated is None else make_runs(gated, run.fire_at, run.fire_at)[0].gates


def _holds(stories: Stories, story: RunStory) -> Iterator[Stay]:
    for turn in story.claimed:
        holder = f"run {story.id} with token {turn.token}"
        yield Stay(turn.claims[0].store, turn.released, holder, (*origin(stories, story), *turn.proof()))


def jobs_overlap_as_they_may(stories: Stories) -> Iterator[Finding]:
    """(14) With `forbid` there are never runs of two firings of a job in a region that have not ended; with `replace`
    no two are at work; with `queue` no more runs than one firing has are at work or wait for their retry.

    Not seen: jobs whose overlap policy or number of completions was edited; runs that were repeated by hand.
    """
    by_job: dict[tuple[str, str], list[RunStory]] = defaultdict(list)
    for story in stories.runs.values():
        run = story.run
        if run is not None and run.job_id is not None and run.retry_of is None and story.claimed:
            by_job[run.job_id, home_of(run.region, run.options)].append(story)
    for (job_id, region), runs in by_job.items():
        job = stories.job(job_id)
        policies = {(policy.overlap, policy.completions) for policy in job.policies}
        if not job.is_complete or len(policies) > 1:
            continue
        overlap, completions = policies.pop()
        yield from _overlapping(stories, job, region, runs, overlap, completions)


def _overlapping(
    stories: Stories, job: JobStory, region: str, runs: Sequence[RunStory], overlap: Overlap, completions: int
) -> Iterator[Finding]:
    stays = [_lifetime(stories, story, overlap) for story in runs]
    if overlap == "queue":
        if inside := crowd(stays, completions):
            yield _overfull(f"overlap=queue of job {job.name} in region {region}", completions, inside)
    elif overlap != "allow":
        firings: dict[Instant | None, list[Stay]] = defaultdict(list)
        for story, stay in zip(runs, stays, strict=True):
            firings[story.run.fire_at if story.run else None].append(stay)
        if inside := crowd(map(_merged, firings.values()), 1):
            yield _overfull(f"overlap={overlap} of job {job.name} in region {region}", 1, inside)


def _lifetime(stories: Stories, story: RunStory, overlap: Overlap) -> Stay:
    turns = story.claimed
    first, last = turns[0].claims[0], max(turns, key=lambda turn: turn.released)
    shown_by = (*origin(stories, story), first, *last.proof())
    accepted = accepted_by(stories, story)
    if overlap == "forbid" and accepted is not None and accepted.store < first.store:
        return Stay(accepted.store, last.released, f"run {story.id}", (*shown_by, accepted))
    return Stay(first.store, last.released, f"run {story.id}", shown_by)


def _merged(stays: Sequence[Stay]) -> Stay:
    """All runs of one firing as one: they may run together."""
    first, last = min(stays, key=lambda stay: stay.start), max(stays, key=lambda stay: stay.end)
    holder = first.holder if first is last else f"{first.holder} and {last.holder}"
    return Stay(first.start, last.end, holder, (*first.shown_by, *last.shown_by))
