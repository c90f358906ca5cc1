"""Instants and durations: whole microseconds, so that arithmetic is exact and rows stay narrow.

An instant is the number of microseconds since 1970-01-01T00:00:00Z; a duration is a number of microseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

import tzdata

from mainspring.errors import InvalidDuration, InvalidInput, InvalidZone

Instant = int
Duration = int

MILLISECOND: Duration = 1_000
SECOND: Duration = 1_000_000
MINUTE: Duration = 60 * SECOND
HOUR: Duration = 60 * MINUTE
DAY: Duration = 24 * HOUR
WEEK: Duration = 7 * DAY

ZONE_DATA: str = tzdata.IANA_VERSION
"""The version of the zone data that fire times are computed with."""
_ZONES = Path(tzdata.__file__).parent / "zoneinfo"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {"us": 1, "ms": MILLISECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)\s*", re.ASCII)
_LONGEST: Duration = 36_525 * DAY

# A year short of what datetime can hold at either end, so that an instant can be shown in every zone.
EARLIEST: Instant = (datetime(2, 1, 1, tzinfo=UTC) - EPOCH) // _MICROSECOND
LATEST: Instant = (datetime(9999, 1, 1, tzinfo=UTC) - EPOCH) // _MICROSECOND - 1

# What a host's zone directory holds besides zones: its own setting, and copies that count leap seconds.
_NOT_ZONES = re.compile(r"/|\.|localtime$|posixrules$|posix/|right/")


def parse_duration(value: str | int | float | timedelta, field: str = "duration") -> Duration:
    """Read `"1h30m"`, `"250ms"`, a timedelta, or a number of seconds."""
    if isinstance(value, timedelta):
        duration = value // _MICROSECOND
    elif isinstance(value, str):
        duration = _parse_text(value, field)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= _LONGEST / SECOND:  # So that not-a-number fails too.
            raise InvalidDuration(field, value, "is not a usable number of seconds", 'write it like "30s" or "1h30m"')
        duration = round(value * SECOND)
    else:
        raise InvalidDuration(field, value, "is not a duration", 'write it like "30s" or "1h30m"')
    if duration < 0:
        raise InvalidDuration(field, value, "is negative", "durations run forward")
    if duration > _LONGEST:
        raise InvalidDuration(field, value, "is longer than a hundred years", "choose a shorter one")
    return duration


def _parse_text(text: str, field: str) -> Duration:
    total, position = 0.0, 0
    stripped = text.strip().lower()
    while position < len(stripped):
        part = _PART.match(stripped, position)
        if part is None or len(part.group(1)) > 18:
            break
        total += float(part.group(1)) * _UNITS[part.group(2)]
        position = part.end()
    if not stripped or position < len(stripped):
        raise InvalidDuration(
            field, text, "is not a duration", 'write it like "30s", "1h30m" or "250ms" (units us, ms, s, m, h, d, w)'
        )
    return round(total)


def format_duration(duration: Duration) -> str:
    """Text like `1h30m`, without loss: `parse_duration` reads it back, unless it is negative."""
    if duration < 0:
        return "-" + format_duration(-duration)
    if duration == 0:
        return "0s"
    parts = []
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", MILLISECOND), ("us", 1)):
        count, duration = divmod(duration, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def to_datetime(instant: Instant, zone: str = "UTC") -> datetime:
    """The instant as an aware datetime in a zone."""
    moment = EPOCH + timedelta(microseconds=instant)
    return moment if zone == "UTC" else moment.astimezone(load_zone(zone))


def from_datetime(moment: datetime, field: str = "instant") -> Instant:
    """An aware datetime as an instant; a naive one is refused, since it is ambiguous."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidInput(field, moment.isoformat(), "has no time zone", "add one, e.g. datetime(..., tzinfo=UTC)")
    instant = (moment - EPOCH) // _MICROSECOND
    if not EARLIEST <= instant <= LATEST:
        raise InvalidInput(field, moment.isoformat(), "is out of range", "choose an instant in the years 2 to 9998")
    return instant


def from_wall(wall: datetime, zone: str) -> Instant:
    """The instant at which the clocks of a zone first show `wall`, a naive datetime.

    A reading that they skip gives the instant of the jump: the first one that exists.
    """
    local = wall.replace(tzinfo=load_zone(zone), fold=0)
    instant = from_datetime(local)
    if to_datetime(instant, zone).replace(tzinfo=None) == wall:
        return instant
    # The jump lies between the two readings of a skipped time: by the offset after it, and by the offset before it.
    return _last_change(from_datetime(local.replace(fold=1)), instant, zone)


def transition_between(early: Instant, late: Instant, zone: str) -> Instant | None:
    """The instant in (early, late] at which a zone's offset became what it is at `late`; None if `early` has it too."""
    if offset_at(early, zone) == offset_at(late, zone):
        return None
    return _last_change(early, late, zone)


def offset_at(instant: Instant, zone: str) -> Duration:
    """How far the clocks of a zone are ahead of UTC at an instant; negative where they are behind."""
    local = to_datetime(instant, zone)
    return (local.replace(tzinfo=UTC) - local) // _MICROSECOND


def _last_change(early: Instant, late: Instant, zone: str) -> Instant:
    offset = offset_at(late, zone)
    while late - early > 1:
        middle = (early + late) // 2
        if offset_at(middle, zone) == offset:
            late = middle
        else:
            early = middle
    return late


def parse_instant(value: str | datetime, field: str = "at") -> Instant:
    """Read an ISO 8601 text with an offset (`2026-03-01T09:00:00+01:00`, or ending in `Z`), or an aware datetime."""
    if isinstance(value, datetime):
        return from_datetime(value, field)
    if not isinstance(value, str):
        raise InvalidInput(field, value, "is not an instant", "write it like 2026-03-01T09:00:00+01:00")
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise InvalidInput(field, value, "is not an instant", "write it like 2026-03-01T09:00:00+01:00") from None
    if moment.tzinfo is None:
        raise InvalidInput(field, value, "has no time zone", "end it with Z or an offset like +01:00")
    return from_datetime(moment, field)


def format_instant(instant: Instant, zone: str = "UTC") -> str:
    """ISO 8601 with offset, as short as exactness allows."""
    text = to_datetime(instant, zone).isoformat(timespec="auto")
    return text.removesuffix("+00:00") + "Z" if zone == "UTC" else text


def load_zone(name: str, field: str = "tz") -> ZoneInfo:
    """The zone of that name in the IANA database."""
    if isinstance(name, str) and name and not _NOT_ZONES.match(name):
        try:
            return _read_zone(name)
        except (ValueError, OSError):
            pass  # Unknown, not a zone file, or a directory of zones: for the caller all the same.
    raise InvalidZone(field, name, "is not a time zone", "use a name of the IANA database, e.g. Europe/Berlin")


# ZoneInfo itself keeps only the eight zones used last; a ninth would cost 50 µs of file reading at every use.
@lru_cache(maxsize=1024)
def _read_zone(name: str) -> ZoneInfo:
    """A zone of the `tzdata` package, so that every node computes with the same zones, whatever its system has."""
    with _ZONES.joinpath(*name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
