"""What an edit of a calendar does to the firings of a job: which move, which disappear, which appear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from mainspring.core.instants import Instant
from mainspring.core.model import Job
from mainspring.core.planning.plans import Calendars, is_moved_to_next_day
from mainspring.core.schedules.calendars import excluded, next_allowed_day
from mainspring.core.schedules.triggers import CronTrigger

Effect = Literal["moved", "dropped", "added"]


class FiringChange(NamedTuple):
    """One firing that differs: `at` is None if it appears, `to` is None if it disappears."""

    effect: Effect
    at: Instant | None
    to: Instant | None
    reason: str = ""

    @property
    def first(self) -> Instant:
        """The earlier of its instants."""
        return min(instant for instant in (self.at, self.to) if instant is not None)


def compare_firings(
    job: Job, planned: Sequence[Instant], wanted: Sequence[Instant], old: Calendars, new: Calendars
) -> list[FiringChange]:
    """The differences between the instants under the old calendars and those under the new ones, in order of time.

    A firing counts as moved if the job moves excluded instants to the next allowed day and the one follows from the
    other in this way. Applied to `planned`, the changes give `wanted`.
    """
    before, after = set(planned), set(wanted)
    gone, come = sorted(before - after), after - before
    moves: dict[Instant, Instant] = {}
    if is_moved_to_next_day(job):
        _pair(job, gone, come, new, moves)
        back: dict[Instant, Instant] = {}
        _pair(job, sorted(come), set(gone) - moves.keys(), old, back)
        moves |= {later: earlier for earlier, later in back.items()}
    names = job.policy.calendars
    changes = [
        FiringChange("moved", at, moves[at], excluded(names, at, new) or _former(excluded(names, moves[at], old)))
        if at in moves
        else FiringChange("dropped", at, None, excluded(names, at, new) or "")
        for at in gone
    ]
    taken = set(moves.values())
    changes += [FiringChange("added", None, to, _former(excluded(names, to, old))) for to in come if to not in taken]
    return sorted(changes, key=lambda change: change.first)


def _former(reason: str | None) -> str:
    return "" if reason is None else f"no longer: {reason}"


def _pair(
    job: Job, leaving: Sequence[Instant], free: set[Instant], calendars: Calendars, moves: dict[Instant, Instant]
) -> None:
    """Note for each leaving instant the free one that the calendars move it to, and take that one."""
    zone = job.trigger.tz if isinstance(job.trigger, CronTrigger) else "UTC"
    for instant in leaving:
        target = next_allowed_day(instant, job.policy.calendars, calendars, zone)
        if target is not None and target in free:
            free.remove(target)
            moves[instant] = target
