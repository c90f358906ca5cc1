"""What a history says about one job: its definitions, its ledger, and the instants at which it was due."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from mainspring.core.instants import LATEST, Duration, Instant
from mainspring.core.model import Job, JobPolicy
from mainspring.core.planning.plans import Calendars, jitter_of, next_fire_at
from mainspring.core.schedules.triggers import AfterTrigger
from mainspring.testing.checking.stories.reading import carried, given
from mainspring.testing.history import Record

_job = msgspec.json.Decoder(Job).decode

REMOVED = "removed"


class Version(NamedTuple):
    """A definition, and the record that has it."""

    record: Record
    job: Job


class Span(NamedTuple):
    """A definition, and between which instants it was in force: `since` excluded, `until` included."""

    job: Job
    since: Instant
    until: Instant


class JobStory:
    """All that happened to one job. What is derived is derived once, after all has been read."""

    def __init__(self, job_id: str) -> None:
        self.id = job_id
        self.name = job_id
        self.versions: dict[int, Version] = {}
        """The newest record of each version, in order of version."""
        self.newest: Version | None = None
        self.removed = False
        self._doubtful = False
        self.fires: list[Record] = []
        self.triggers: list[Record] = []
        self.rows: dict[Instant, list[Record]] = {}
        """The ledger by instant."""
        self.stretches: list[Record] = []
        """Its rows that stand for several instants, in order."""

    def define(self, record: Record, *, is_end: bool) -> None:
        """It was created, edited, paused or removed; or so it was at the end, when nothing was under way any more."""
        self.name = record.job or self.name
        self._doubtful = record.outcome != "ok" or (self._doubtful and not is_end)
        if record.outcome != "ok":
            return
        if record.state == REMOVED:
            self.removed = True
        else:
            job = carried(record, _job)
            self.versions[job.version] = self.newest = Version(record, job)

    def enter(self, row: Record) -> None:
        """A row of its ledger."""
        self.rows.setdefault(given(row, "fire_at", row.fire_at), []).append(row)
        if row.last_at is not None and row.last_at > (row.fire_at or 0):
            self.stretches.append(row)

    def sort(self) -> None:
        """All has been read: put it in order."""
        self.versions = dict(sorted(self.versions.items()))
        self.stretches.sort(key=_first_instant)
        if self.versions:
            self.newest = self.versions[max(self.versions)]

    @cached_property
    def definitions(self) -> list[Job]:
        """All of them, in order."""
        return [version.job for version in self.versions.values()]

    @cached_property
    def records(self) -> list[Record]:
        """The records that have them."""
        return [version.record for version in self.versions.values()]

    @cached_property
    def timings(self) -> list[Job]:
        """Definitions of which each is due at other instants: most edits leave these alone."""
        timing = {
            (job.trigger, job.policy.start_at, job.policy.end_at, job.policy.calendars, job.policy.on_excluded): job
            for job in self.definitions
        }
        return list(timing.values())

    @cached_property
    def policies(self) -> set[JobPolicy]:
        """Each that it ever had."""
        return {job.policy for job in self.definitions}

    @cached_property
    def is_complete(self) -> bool:
        """Whether all of its definitions are known."""
        return not self._doubtful and bool(self.versions) and list(self.versions) == [*range(1, len(self.versions) + 1)]

    @cached_property
    def is_timed(self) -> bool:
        """Whether it is known, and never waited for other jobs instead of the clock."""
        return bool(self.versions) and not any(isinstance(job.trigger, AfterTrigger) for job in self.timings)

    @cached_property
    def least_jitter(self) -> Duration:
        """Its runs were due no earlier than this after their instants."""
        return min(map(jitter_of, self.definitions), default=0)

    @cached_property
    def most_jitter(self) -> Duration:
        """Its runs were due no later than this after their instants."""
        return max(map(jitter_of, self.definitions), default=0)

    @cached_property
    def was_paused(self) -> bool:
        """Whether it was ever paused: what was due meanwhile is written down when it goes on."""
        return any(job.paused_at is not None for job in self.definitions)

    @cached_property
    def may_wait(self) -> bool:
        """Whether there may have been anything, besides a free worker, that its runs had to wait for."""
        return not self.is_complete or any(
            job.key or job.limit or job.policy.parallelism or job.policy.overlap in ("queue", "replace")
            for job in self.definitions
        )

    @cached_property
    def gated(self) -> Job | None:
        """A definition that has the gates that all of its runs had, if they had any."""
        kinds = {(job.task, job.limit, job.policy.parallelism) for job in self.definitions}
        if not self.is_complete or len(kinds) > 1:
            return None
        return self.definitions[0] if any(kinds.pop()[1:]) else None

    @cached_property
    def _by_hand(self) -> set[Instant | None]:
        """The instants for which it was fired by hand; None among them if one is not known."""
        return {trigger.fire_at for trigger in self.triggers}

    def spans(self) -> Iterator[Span]:
        """What held when. An edit takes effect for the instants after it."""
        edits = [*(job.updated_at for job in self.definitions[1:]), LATEST]
        for job, until in zip(self.definitions, edits, strict=True):
            yield Span(job, job.created_at if job.version == 1 else job.updated_at, until)

    def is_scheduled(self, row: Record) -> bool:
        """Whether a row was surely made by the clock and not by hand."""
        if row.kind is not None:
            return row.kind == "scheduled"
        return None not in self._by_hand and row.fire_at not in self._by_hand

    def stretch_over(self, instant: Instant) -> Record | None:
        """The row that stands for this instant among others."""
        position = bisect_right(self.stretches, instant, key=_first_instant)
        row = self.stretches[position - 1] if position else None
        return row if row is not None and instant <= (row.last_at or 0) else None


def _first_instant(row: Record) -> Instant:
    return row.fire_at or 0


def unlimited(job: Job) -> Job:
    """The same job, which may fire as often as it likes: how often it has fired is not known for every instant."""
    return replace(job, fired=0, policy=replace(job.policy, max_firings=None))


def is_due(job: Job, instant: Instant, calendars: Calendars) -> bool:
    """Whether a definition names an instant."""
    return next_fire_at(unlimited(job), instant - 1, calendars) == instant
