"""The load of the next day: what fires when, where it does not fit, and which jobs to move. Times are arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from mainspring.core.instants import MINUTE, Instant

REACH = 60
"""A job is moved by this many minutes at most."""


class Plan(msgspec.Struct, frozen=True):
    """A job as the forecast sees it."""

    job: str
    fire_at: tuple[Instant, ...]
    run_s: float
    """How long one of its runs takes."""
    priority: int = 5


class Load(msgspec.Struct, frozen=True):
    """One minute."""

    at: Instant
    runs: int
    busy: float
    """Places that the work due in this minute needs, if it is to be done within it."""
    late_s: float
    """How far behind the workers are at its end."""


class Jam(msgspec.Struct, frozen=True):
    """A period in which more is due than fits, until the workers have caught up."""

    begin: Instant
    end: Instant
    late_s: float
    """How late runs start at worst."""
    jobs: list[str]
    """The jobs that need the most, the largest first."""


class Move(msgspec.Struct, frozen=True):
    """A firing that would fit elsewhere."""

    job: str
    at: Instant
    to: Instant


class Forecast(msgspec.Struct, frozen=True):
    """What is known of the period."""

    runs: int
    places: int
    busiest: Load | None
    jams: list[Jam]
    moves: list[Move]
    load: list[Load]


def forecast_load(plans: Sequence[Plan], places: int, begin: Instant, end: Instant) -> Forecast:
    """Minute by minute: the work that is due, and what the workers have not done of it yet."""
    minutes = max(-(-(end - begin) // MINUTE), 1)
    due = _due(plans, begin, minutes)
    load = _load(due, plans, places, begin, minutes)
    jams = _jams(load, due, plans)
    busiest = max(load, key=lambda each: each.busy, default=None)
    moves = _moves(due, plans, places, begin, minutes)
    return Forecast(sum(each.runs for each in load), places, busiest, jams, moves, load)


def _due(plans: Sequence[Plan], begin: Instant, minutes: int) -> dict[int, dict[int, int]]:
    """How often each plan fires in each minute, by number."""
    due: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for number, plan in enumerate(plans):
        for instant in plan.fire_at:
            minute = (instant - begin) // MINUTE
            if 0 <= minute < minutes:
                due[minute][number] = due[minute].get(number, 0) + 1
    return due


def _work_s(firing: Mapping[int, int], plans: Sequence[Plan]) -> float:
    return sum(count * plans[number].run_s for number, count in firing.items())


def _load(
    due: Mapping[int, Mapping[int, int]], plans: Sequence[Plan], places: int, begin: Instant, minutes: int
) -> list[Load]:
    left_s, load = 0.0, []
    for minute in range(minutes):
        firing = due.get(minute, {})
        work_s = _work_s(firing, plans)
        left_s = max(left_s + work_s - places * 60, 0.0)
        late_s = left_s / places if places else left_s
        load.append(Load(begin + minute * MINUTE, sum(firing.values()), work_s / 60, late_s))
    return load


def _jams(load: Sequence[Load], due: Mapping[int, Mapping[int, int]], plans: Sequence[Plan]) -> list[Jam]:
    jams, first = [], None
    for minute, each in enumerate([*load, None]):
        if each is not None and each.late_s > 0:
            first = minute if first is None else first
        elif first is not None:
            asked: defaultdict[int, float] = defaultdict(float)
            for inside in range(first, minute):
                for number, count in due.get(inside, {}).items():
                    asked[number] += count * plans[number].run_s
            ranked = sorted(asked, key=lambda number: (-asked[number], plans[number].job))
            worst = max(load[inside].late_s for inside in range(first, minute))
            jams.append(Jam(load[first].at, load[minute - 1].at + MINUTE, worst, [plans[each].job for each in ranked]))
            first = None
    return jams


def _moves(
    due: Mapping[int, Mapping[int, int]], plans: Sequence[Plan], places: int, begin: Instant, minutes: int
) -> list[Move]:
    """Moves the least important jobs of each minute that is too full into the nearest later minute with room."""
    room_s = places * 60.0
    free_s = [room_s - _work_s(due.get(minute, {}), plans) for minute in range(minutes)]
    moves = []
    for minute in range(minutes):
        firing = due.get(minute, {})
        for number in sorted(firing, key=lambda number: (-plans[number].priority, -plans[number].run_s)):
            work_s = firing[number] * plans[number].run_s
            if free_s[minute] >= 0 or work_s == 0:
                break
            later = range(minute + 1, min(minute + 1 + REACH, minutes))
            target = next((each for each in later if free_s[each] >= work_s), None)
            if target is not None:
                free_s[minute] += work_s
                free_s[target] -= work_s
                moves.append(Move(plans[number].job, begin + minute * MINUTE, begin + target * MINUTE))
    return moves
