"""Tallies: how many runs ended how in each period, how late they started and how long they took.

A pure function of the events: the loop that keeps them adds what it computes to what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import gcd
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeVar, get_args

import msgspec

from mainspring.core.instants import HOUR, MINUTE, Duration, Instant
from mainspring.core.model import DEFAULT, Event

K = TypeVar("K")
Kind = Literal["all", "job", "task", "error", "priority", "queue"]
Outcome = Literal["succeeded", "failed", "cancelled", "skipped", "missed"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
PERIODS: Final[Mapping[Kind, Duration]] = {
    "all": 5 * MINUTE,
    "priority": 5 * MINUTE,
    "queue": 5 * MINUTE,
    "job": HOUR,
    "task": HOUR,
    "error": HOUR,
}
"""How long a period of each kind is. There are many jobs, so theirs are longer."""
_WITHIN_A_PERIOD: Final = gcd(*PERIODS.values())
"""Instants of the same multiple of this are in the same period of each kind."""
NO_LEVELS: Final[Mapping[int, Duration]] = MappingProxyType({})
_LOWEST: Final[Duration] = 1_000
"""Durations up to a millisecond are one step."""
MOST_STEPS: Final = 64


class TallyKey(NamedTuple):
    """What a tally counts."""

    namespace: str
    kind: Kind
    began_at: Instant
    name: str


class Tally(msgspec.Struct, omit_defaults=True):
    """Counts by outcome, and histograms by step (see `step_of`) of lateness and duration."""

    outcomes: dict[Outcome, int] = {}
    late: dict[int, int] = {}
    took: dict[int, int] = {}
    beyond: int = 0
    """How many starts were later than the service level of their priority."""
    accepted: int = 0
    """How many runs were accepted. Counted by queue alone."""

    def add(self, other: Tally) -> None:
        """Add what another tally counted."""
        _add(self.outcomes, other.outcomes)
        _add(self.late, other.late)
        _add(self.took, other.took)
        self.beyond += other.beyond
        self.accepted += other.accepted


def _add(into: dict[K, int], more: Mapping[K, int]) -> None:
    for key, count in more.items():
        into[key] = into.get(key, 0) + count


def step_of(duration: Duration) -> int:
    """The step of a histogram that a duration falls into: two steps for each doubling from a millisecond on."""
    if duration <= _LOWEST:
        return 0
    # Squared, so that each doubling of it is half of one.
    return min(((duration * duration - 1) // (_LOWEST * _LOWEST)).bit_length(), MOST_STEPS)


def top_of(step: int) -> Duration:
    """The longest duration of a step."""
    whole, half = divmod(step, 2)
    return (_LOWEST << whole) * (1_414 if half else 1_000) // 1_000


def quantile(histogram: Mapping[int, int], share: float) -> Duration | None:
    """The duration that a share of what was counted does not exceed, to the top of its step; None if it is empty."""
    total, seen = sum(histogram.values()), 0
    for step in sorted(histogram):
        seen += histogram[step]
        if seen >= share * total:
            return top_of(step)
    return None


def period_of(kind: Kind, at: Instant) -> Instant:
    """The beginning of the period that an instant is in."""
    return at - at % PERIODS[kind]


def tally_events(events: Iterable[Event], levels: Mapping[int, Duration] = NO_LEVELS) -> dict[TallyKey, Tally]:
    """What events add to the tallies: for the namespace, for the job and the task that each names, for the queue of
    each run, and for the priority of what starts. `levels` are the service levels: how late a run of a priority may
    start."""
    found: dict[TallyKey, Tally] = {}
    # Thousands of events add the same. So what an event adds is computed once for all events that are alike.
    alike: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        alike.setdefault(_look(event, levels), []).append(event)
    for same in alike.values():
        times = len(same)
        for key, part, step, amount in _entries(same[0], levels):
            tally = found.setdefault(TallyKey(*key), Tally({}, {}, {}))
            if part == "beyond":
                tally.beyond += times
            elif part == "accepted":
                tally.accepted += times
            else:
                counts: dict[int | str, int] = getattr(tally, part)
                counts[step] = counts.get(step, 0) + times * amount
    return found


_Key = tuple[str, Kind, Instant, str]
_Entry = tuple[_Key, Literal["outcomes", "late", "took", "beyond", "accepted"], int | str, int]
"""A tally, the part of it that counts, what is counted there, and how often."""
_ENDS: Final = {f"{subject}.{outcome}": outcome for subject in ("run", "firing") for outcome in OUTCOMES}


def _look(event: Event, levels: Mapping[int, Duration]) -> tuple[object, ...]:
    """All that `_entries` reads of an event, as coarse as it counts. Events that look alike add the same."""
    late, duration, fire_at = event.late, event.duration, event.fire_at
    return (
        event.kind,
        event.namespace,
        event.at // _WITHIN_A_PERIOD,
        event.job,
        event.task,
        event.queue,
        event.run_id is None,
        event.count,
        event.attempt,
        event.priority,
        None if late is None else step_of(late),
        late is not None and late > levels.get(event.priority or 0, late),
        None if duration is None else step_of(duration),
        None if fire_at is None else step_of(max(event.at - fire_at, 0)),
    )


def _entries(event: Event, levels: Mapping[int, Duration]) -> Iterator[_Entry]:
    if event.late is not None and event.priority is not None:
        key: _Key = (event.namespace, "priority", period_of("priority", event.at), str(event.priority))
        yield key, "late", step_of(event.late), 1
        if event.late > levels.get(event.priority, event.late):
            yield key, "beyond", 0, 1
    if event.kind == "run.submitted":
        yield _queue_key(event), "accepted", 0, 1
    elif event.kind == "run.running":
        # A run is late against the instant that it was fired for.
        if event.attempt == 1 and event.fire_at is not None:
            late = step_of(max(event.at - event.fire_at, 0))
            for key in _keys(event):
                yield key, "late", late, 1
    elif (outcome := _ENDS.get(event.kind)) is not None:
        took = None if event.duration is None else step_of(event.duration)
        for key in _keys(event):
            yield key, "outcomes", outcome, max(event.count or 1, 1)
            if took is not None:
                yield key, "took", took, 1


def _keys(event: Event) -> list[_Key]:
    """The tallies of a namespace, a job, a task and, of a run, a queue that an event counts in."""
    keys: list[_Key] = [(event.namespace, "all", period_of("all", event.at), "")]
    if event.job is not None:
        keys.append((event.namespace, "job", period_of("job", event.at), event.job))
    if event.task is not None:
        keys.append((event.namespace, "task", period_of("task", event.at), event.task))
    if event.run_id is not None:
        keys.append(_queue_key(event))
    return keys


def _queue_key(event: Event) -> _Key:
    return (event.namespace, "queue", period_of("queue", event.at), event.queue or DEFAULT)
