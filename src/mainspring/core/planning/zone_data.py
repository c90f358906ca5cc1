"""Other time zone data comes in: fire times are computed anew in steps, so that no transaction delays others for long.

The store keeps one record: with which data fire times are computed, and how far a change to other data has come. A
crash between two steps loses nothing: the next planner goes on from there. The newest data among live planners counts:
a planner with older data changes nothing while planners with newer data confirm the record. So planners with different
data do not undo each other's work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mainspring.core.instants import MINUTE, Duration, Instant
from mainspring.core.model import Job
from mainspring.core.planning.plans import Calendars
from mainspring.core.planning.revision import MOST_LOOKS, look_again

STEP: Final = 250
"""How many jobs a step looks at: a transaction of some 20 ms if all of them move."""
CONFIRM_AFTER: Duration = 5 * MINUTE
"""How often planners confirm the record."""
CONFIRMED_FOR: Duration = 3 * CONFIRM_AFTER
"""After this long without a step or a confirmation, no planner with that data lives."""


class ZoneRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """With which zone data fire times are computed."""

    version: str
    at: Instant = 0
    """When the last step was made, or the record last confirmed."""
    after: str | None = None
    """The id of the last job that was looked at. None once all were."""


class ZoneStep(msgspec.Struct, frozen=True):
    """What one step did."""

    moved: int = 0
    """How many jobs are due at another instant now."""
    left: bool = False
    """Whether another step has to follow."""
    faults: tuple[str, ...] = ()
    """Jobs whose next fire time cannot be computed, and why: they stay as they are."""


def read_record(text: str | None) -> ZoneRecord | None:
    """The record as a store keeps it; earlier versions of the program kept the version alone."""
    if text is None or text.startswith("{"):
        return None if text is None else msgspec.json.decode(text, type=ZoneRecord)
    return ZoneRecord(text)


def encode_record(record: ZoneRecord) -> str:
    """The record as a store keeps it."""
    return msgspec.json.encode(record).decode()


def take_up(known: ZoneRecord | None, version: str, now: Instant) -> ZoneRecord | None:
    """From where a planner whose data has this version goes on; None if it has nothing to do."""
    if known is None:
        return ZoneRecord(version, now)  # No fire time was computed before.
    age = abs(now - known.at)  # The clock may have been set back.
    if known.version != version:
        return None if known.version > version and age < CONFIRMED_FOR else ZoneRecord(version, now, "")
    if known.after is not None:
        return known
    return None if age < CONFIRM_AFTER else ZoneRecord(version, now)


class Moved(msgspec.Struct, frozen=True):
    """What became of the jobs of a step."""

    jobs: Sequence[Job]
    """Those that are due at another instant, as they should be stored."""
    faults: tuple[str, ...]
    last: str | None
    """The last job that was looked at, if the rest would take too long."""


def move(jobs: Sequence[Job], now: Instant, calendars: Mapping[str, Calendars]) -> Moved:
    """Compute when jobs are due next, with the zone data of this process. What is overdue stays due.

    A job that cannot be planned, say because its zone is not in these data, keeps no other from being planned.
    """
    moved: list[Job] = []
    faults: list[str] = []
    looks = 0
    for number, job in enumerate(jobs):
        if looks > MOST_LOOKS:
            return Moved(moved, tuple(faults), jobs[number - 1].id)
        try:
            again, cost = look_again(job, now, calendars[job.namespace])
        except Exception as error:
            faults.append(f"job {job.name} of namespace {job.namespace}: {error}")
            continue
        looks += cost
        if again.next_fire_at != job.next_fire_at:
            moved.append(again)
    return Moved(moved, tuple(faults), None)
