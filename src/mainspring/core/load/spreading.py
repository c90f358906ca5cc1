"""Which jobs to move by some minutes so that a peak of starts flattens. Pure: the instants are arguments."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from mainspring.core.instants import MINUTE, Instant
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger, Trigger

_HOUR: Final = 60
_DAY: Final = 24 * _HOUR


class Firing(NamedTuple):
    """Jobs of one schedule: when they start, how many runs each start has, and how they may move."""

    instants: Sequence[Instant]
    runs: int
    shifts: Sequence[int]
    """The minutes by which the job may move; none if it may not."""


def spread(
    firings: Sequence[Firing], first: Instant, target: int = 0, enough: Callable[[], bool] = lambda: False
) -> dict[int, int]:
    """By how many minutes to move which of the firings, so that fewer runs start in the fullest minute.

    The fullest minute gives its movable jobs away, each to the emptiest minutes that it can reach; until the peak is at
    most `target`, or no job in it could start in a minute that stays below it.
    """
    minutes = [[(instant - first) // MINUTE for instant in each.instants] for each in firings]
    load: Counter[int] = Counter()
    leaving: defaultdict[int, list[int]] = defaultdict(list)
    for number, each in enumerate(firings):
        for minute in minutes[number]:
            load[minute] += each.runs
            if each.shifts:
                leaving[minute].append(number)
    moves: dict[int, int] = {}
    while load and not enough():
        peak = max(load, key=lambda minute: (load[minute], -minute))
        if load[peak] <= target:
            break
        chosen = _next_of(leaving[peak], moves)
        if chosen is None:
            break
        shift = _best_shift(firings[chosen], minutes[chosen], load, load[peak])
        if shift is None:
            continue
        moves[chosen] = shift
        for minute in minutes[chosen]:
            load[minute] -= firings[chosen].runs
            load[minute + shift] += firings[chosen].runs
    return moves


def _next_of(candidates: list[int], moves: dict[int, int]) -> int | None:
    """The next job of a minute that has not moved. Each is taken once: what did not fit then will not fit later."""
    while candidates:
        number = candidates.pop()
        if number not in moves:
            return number
    return None


def _best_shift(firing: Firing, minutes: Sequence[int], load: Counter[int], peak: int) -> int | None:
    """The shift after which the fullest of the job's minutes is emptiest; None if none stays below the peak."""
    own = Counter(minutes)

    def fullest(shift: int) -> int:
        return max(load[minute + shift] + (own[minute] - own[minute + shift]) * firing.runs for minute in own)

    best = min(firing.shifts, key=lambda shift: (fullest(shift), abs(shift), shift))
    return best if fullest(best) < peak else None


def shift_trigger(trigger: Trigger, minutes: int, created_at: Instant) -> Trigger | None:
    """The trigger that is due some minutes later or earlier, and otherwise alike; None if there is none."""
    match trigger:
        case CronTrigger(expression):
            moved = shift_cron(expression, minutes)
            return None if moved is None else msgspec.structs.replace(trigger, expression=moved)
        case EveryTrigger(period, anchor):
            start = created_at if anchor is None else anchor
            return EveryTrigger(period, start + minutes * MINUTE % period)
        case _:
            return None


def shift_cron(expression: str, minutes: int) -> str | None:
    """A cron expression with one fixed minute, some minutes later or earlier. Beyond the hour, the hour moves with it;
    beyond the day only an expression of every day can move."""
    fields = expression.split()
    at = 1 if len(fields) > 5 else 0
    if len(fields) < 5 or not fields[at].isdecimal():
        return None
    minute, hour, rest = int(fields[at]) + minutes, fields[at + 1], fields[at + 2 :]
    every_day = all(field in ("*", "?") for field in rest)
    if not 0 <= minute < _HOUR:
        if hour == "*" and every_day:
            minute %= _HOUR
        elif hour.isdecimal():
            clock = int(hour) * _HOUR + minute
            if not 0 <= clock < _DAY and not every_day:
                return None
            hour, minute = str(clock % _DAY // _HOUR), clock % _HOUR
        else:
            return None
    return " ".join([*fields[:at], str(minute), hour, *rest])
