"""What becomes of a stored job that is edited, paused or resumed: what it keeps, and when it is due next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from mainspring.core.instants import SECOND, Instant
from mainspring.core.model import Job
from mainspring.core.planning.plans import (
    Calendars,
    PlannedFiring,
    Search,
    next_fire_at,
    pass_over,
    pause_reason,
)
from mainspring.core.schedules.triggers import (
    PAST_TOLERANCE,
    AfterTrigger,
    AtTrigger,
    check_not_past,
    check_to_come,
)

_DEFINITION: Final = ("task", "trigger", "args", "queue", "priority", "key", "limit", "policy", "options")
MOST_RECONSIDERED: Final = 1_000
"""Of how many jobs at most the next fire times are computed while their calendar is saved."""
MOST_LOOKS: Final = 30_000
"""After this many comparisons with rules of calendars, the others have to wait."""
_TIMING: Final = ("start_at", "end_at", "calendars", "on_excluded")


class Revision(msgspec.Struct, frozen=True):
    """A changed job as it should be stored, and the overdue instants that the change gives up."""

    job: Job
    passed_over: tuple[PlannedFiring, ...] = ()


def check_times(job: Job, stored: Job | None, now: Instant) -> None:
    """Refuse a job that could never fire, because its instant or its end has passed. What it had before is kept."""
    if stored is None or job.trigger != stored.trigger:
        check_not_past(job.trigger, now)
    end_at = job.policy.end_at
    if end_at is not None and (stored is None or end_at != stored.policy.end_at):
        check_to_come(end_at, now, "end_at", "choose a later end, or leave it out")


def begin(job: Job, now: Instant, calendars: Calendars) -> Job:
    """A new job as it should be stored: due for the first time after now."""
    fresh = msgspec.structs.replace(job, version=1, fired=0, last_fire_at=None, created_at=now, updated_at=now)
    return msgspec.structs.replace(fresh, next_fire_at=_first_fire_at(fresh, now, calendars))


def _first_fire_at(job: Job, now: Instant, calendars: Calendars) -> Instant | None:
    """When a job with a new trigger is due: after now; or at once, where it was due a moment ago."""
    recent = isinstance(job.trigger, AtTrigger) and now - PAST_TOLERANCE <= job.trigger.at <= now
    return next_fire_at(job, now - PAST_TOLERANCE - 1 if recent else now, calendars)


def revise(stored: Job, wanted: Job, now: Instant, calendars: Calendars) -> Revision | None:
    """The stored job with the wanted definition; None if that is the one it has.

    It keeps its identity, its counts and its pause. An instant that is due but has not fired stays due, unless the
    change is one of time: then it is accounted for as skipped, and the job is due next after now.
    """
    if all(getattr(stored, field) == getattr(wanted, field) for field in _DEFINITION):
        return None
    definition = {field: getattr(wanted, field) for field in (*_DEFINITION, "origin", "source")}
    job = msgspec.structs.replace(stored, **definition, version=stored.version + 1, updated_at=now)
    return _retime(stored, job, now, calendars) if _is_retimed(stored, job) else Revision(job)


def _is_retimed(stored: Job, job: Job) -> bool:
    if stored.trigger != job.trigger:
        return True
    most = job.policy.max_firings
    if most != stored.policy.max_firings and (stored.next_fire_at is None or (most is not None and job.fired >= most)):
        return True
    return any(getattr(stored.policy, field) != getattr(job.policy, field) for field in _TIMING)


def _retime(stored: Job, job: Job, now: Instant, calendars: Calendars) -> Revision:
    given_up = pass_over(stored, now, calendars, "the schedule was changed before it fired").firings
    # An `after` job is looked at once more: what its upstreams did so far may be all that the new trigger asks for.
    first = _first_fire_at if stored.trigger != job.trigger else next_fire_at
    due = now if isinstance(job.trigger, AfterTrigger) else first(job, now, calendars)
    return Revision(msgspec.structs.replace(job, next_fire_at=due), given_up)


def set_paused(job: Job, now: Instant, calendars: Calendars, why: str, *, paused: bool) -> Revision | None:
    """A job that is paused or resumed; None if it is so already.

    A resumed job is due next after now, and the instants that passed during its pause are accounted for as skipped.
    """
    if paused == (job.paused_at is not None):
        return None
    if paused:
        return Revision(msgspec.structs.replace(job, paused_at=now, paused_why=why))
    plan = pass_over(job, now, calendars, pause_reason(job.paused_why))
    resumed = msgspec.structs.replace(job, paused_at=None, paused_why="", next_fire_at=plan.next_fire_at)
    return Revision(resumed, plan.firings)


def reconsider(job: Job, now: Instant, calendars: Calendars) -> Job:
    """A job whose calendars have changed. Its version is raised, since plans made with the old ones no longer hold.

    An instant that is due but has not fired stays due.
    """
    return look_again(job, now, calendars)[0]


def look_again(job: Job, now: Instant, calendars: Calendars) -> tuple[Job, int]:
    """As `reconsider`, and how many comparisons that took."""
    search, due = Search(job, calendars), job.next_fire_at
    if not isinstance(job.trigger, AfterTrigger) and (due is None or due > now):
        due = search.next_after(now)
    return msgspec.structs.replace(job, version=job.version + 1, next_fire_at=due), search.looks


def reconsider_some(jobs: Iterable[Job], now: Instant, calendars: Calendars) -> list[Job]:
    """The first of some jobs whose calendars have changed, as many as can be searched for quickly."""
    done: list[Job] = []
    looks = 0
    for job in jobs:
        if looks > MOST_LOOKS:
            break
        again, cost = look_again(job, now, calendars)
        looks += cost
        done.append(again)
    return done


def mark(now: Instant) -> Instant:
    """When all others of them are due: soon. Planners, by turns, find that this is no instant of theirs, and when the
    next is. Between two seconds, where few triggers are due."""
    return now - now % SECOND + 1
