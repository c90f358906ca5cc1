"""Declarations: how the jobs that code declares are compared with the stored ones, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from mainspring.core.answers import Saved
from mainspring.core.instants import HOUR, Duration, Instant
from mainspring.core.model import DEFAULT, Job
from mainspring.core.planning.plans import Calendars
from mainspring.core.planning.revision import Revision, begin, revise
from mainspring.core.runs.graph import check_acyclic
from mainspring.core.schedules.triggers import AfterTrigger

PAGE: Final = 1_000
"""How many jobs one transaction compares or writes: it stays short, and its memory bounded, however many there are."""
UNDECLARED: Final = "its app no longer declares it"
"""Why such a job is paused; one that is declared again goes on by itself."""
NEW: Final[Duration] = HOUR
"""While other workers of the app live, a job is not given up within this time of its creation: in a rolling deploy a
process with older code may start last, and does not know it yet."""


class Comparison(msgspec.Struct, frozen=True):
    """What has to be written so that stored jobs become those that are declared."""

    created: tuple[Job, ...] = ()
    revisions: tuple[tuple[Job, Revision], ...] = ()
    """The stored job, and what becomes of it."""
    adopted: tuple[Job, ...] = ()
    """Jobs to be stored with this origin: their definition is as declared, but this code was not known to declare
    them."""
    resumed: tuple[str, ...] = ()
    """Jobs that were paused only because they were not declared."""
    unchanged: tuple[str, ...] = ()

    def saved(self) -> Saved:
        """What a sync says of it."""
        return Saved(
            created=tuple(job.name for job in self.created),
            updated=tuple(old.name for old, _ in self.revisions),
            unchanged=self.unchanged,
            resumed=self.resumed,
        )


def compare(declared: Iterable[Job], stored: Mapping[str, Job], now: Instant, calendars: Calendars) -> Comparison:
    """Compare declared jobs with the stored ones of the same names."""
    created, revisions, adopted, resumed, unchanged = [], [], [], [], []
    for job in declared:
        old = stored.get(job.name)
        if old is None:
            created.append(begin(job, now, calendars))
            continue
        if is_paused_as_undeclared(old):
            resumed.append(job.name)
        if revision := revise(old, job, now, calendars):
            revisions.append((old, revision))
            continue
        unchanged.append(job.name)
        if (old.origin, old.source) != (job.origin, job.source):
            adopted.append(msgspec.structs.replace(old, origin=job.origin, source=job.source))
    return Comparison(tuple(created), tuple(revisions), tuple(adopted), tuple(resumed), tuple(unchanged))


def differs(declared: Job, stored: Job | None, now: Instant, calendars: Calendars) -> bool:
    """Whether anything has to be written for a declared job."""
    found = compare([declared], {} if stored is None else {stored.name: stored}, now, calendars)
    return bool(found.created or found.revisions or found.adopted or found.resumed)


def is_paused_as_undeclared(job: Job) -> bool:
    """Whether a job is paused only because no code declared it."""
    return job.paused_at is not None and job.paused_why == UNDECLARED


def pages_of(jobs: Sequence[Job]) -> Iterator[Sequence[Job]]:
    """The jobs in pages, each job after those of them that it fires after; DependencyCycle if that is a circle."""
    ordered = jobs if len(jobs) <= PAGE else _in_order(jobs)
    for start in range(0, len(ordered), PAGE):
        yield ordered[start : start + PAGE]


def _in_order(jobs: Sequence[Job]) -> list[Job]:
    by_name = {job.name: job for job in jobs}
    edges = {job.name: [name for name in upstream_names(job) if name in by_name] for job in jobs if upstream_names(job)}
    check_acyclic(edges, "jobs")
    placed: dict[str, Job] = {}
    for job in jobs:
        left = [job.name]
        while left:
            waiting = [name for name in edges.get(left[-1], ()) if name not in placed]
            if waiting:
                left += waiting
            else:
                name = left.pop()
                placed.setdefault(name, by_name[name])
    return list(placed.values())


def upstream_names(job: Job) -> tuple[str, ...]:
    """The jobs that a job fires after."""
    return job.trigger.jobs if isinstance(job.trigger, AfterTrigger) else ()


def source_of(app: str, module: str) -> str:
    """Distinguishes the jobs of one program from those of another. A chosen name does; under the name that
    all programs have that chose none, it takes the module, too."""
    return module if app == DEFAULT else ""


def may_give_up(
    task: str, age: Duration, own_tasks: Collection[str], live_tasks: Collection[str], *, alone: bool
) -> bool:
    """Whether a job that this code no longer declares may be paused or removed by it.

    Not if a live worker knows its task and this code does not: that worker's code is newer, or another program's. Nor
    if the job is new while other workers of the app live: then this code may be the older one.
    """
    if task not in own_tasks and task in live_tasks:
        return False
    return alone or age >= NEW
