"""What an importer found: a job, what it loses, and its fire times by the rules of both systems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from mainspring.core.instants import DAY, Instant
from mainspring.core.model import Job
from mainspring.core.schedules.triggers import manual, next_fire
from mainspring.errors import InvalidInput

SHOWN = 5
"""Fire times that a dry run shows."""
COMPARED = 1000
"""Fire times that are compared. They reach beyond the next clock change for everything that fires hourly or less."""
_COMPARED_FOR = 400 * DAY

FireTimes = Callable[[Instant], Iterator[Instant]]
"""The instants after an instant, by the rules of the other system."""


class Found(msgspec.Struct, frozen=True):
    """One schedule of the other system."""

    source: str
    """Where the definition was found: a line of a file, a key, an id."""
    name: str
    job: Job | None
    """The job, without id and owner; None if no job can do what it does."""
    why_not: str = ""
    lost: tuple[str, ...] = ()
    """What the job does not say of the schedule."""
    theirs: FireTimes | None = None


class Comparison(msgspec.Struct, frozen=True):
    """The next fire times by both systems' rules, and the first instant at which they differ."""

    ours: list[Instant]
    theirs: list[Instant]
    differ_at: Instant | None


def left_out(source: str, name: str, error: InvalidInput | str) -> Found:
    """A schedule that cannot become a job, and why."""
    return Found(source, name, None, str(error))


def blank_job(namespace: str, now: Instant) -> Job:
    """A job of a namespace, made now, that an importer fills in."""
    return Job("", "", "", manual(), namespace, created_at=now, updated_at=now)


def our_fires(job: Job, after: Instant) -> Iterator[Instant]:
    """The instants at which a job is due."""
    due = next_fire(job.trigger, after, job.created_at)
    while due is not None and (job.policy.end_at is None or due <= job.policy.end_at):
        if job.policy.start_at is None or due >= job.policy.start_at:
            yield due
        due = next_fire(job.trigger, due, job.created_at)


def compare(found: Found, now: Instant) -> Comparison:
    """Compare the fire times of a schedule with those of the job that it becomes."""
    assert found.job is not None
    ours = list(islice(_until(our_fires(found.job, now), now + _COMPARED_FOR), COMPARED))
    if found.theirs is None:
        return Comparison(ours[:SHOWN], [], None)
    theirs = list(islice(_until(found.theirs(now), now + _COMPARED_FOR), COMPARED))
    shown = list(islice(our_fires(found.job, now), SHOWN)), list(islice(found.theirs(now), SHOWN))
    return Comparison(*shown, _first_difference(ours, theirs))


def _until(instants: Iterable[Instant], end: Instant) -> Iterator[Instant]:
    for instant in instants:
        if instant > end:
            return
        yield instant


def _first_difference(ours: Sequence[Instant], theirs: Sequence[Instant]) -> Instant | None:
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            return min(one, other)
    if len(ours) == len(theirs):
        return None
    return max(ours, theirs, key=len)[min(len(ours), len(theirs))]


def unique_names(found: Iterable[Found]) -> list[Found]:
    """The found jobs with unique names: the second `backup` becomes `backup-2`."""
    taken: dict[str, int] = {}
    renamed = []
    for each in found:
        taken[each.name] = count = taken.get(each.name, 0) + 1
        name = each.name if count == 1 else f"{each.name}-{count}"
        job = None if each.job is None else msgspec.structs.replace(each.job, name=name)
        renamed.append(msgspec.structs.replace(each, name=name, job=job))
    return renamed
