"""How the time of a run was spent: its waits and its attempts, from the instant at which it was due until its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Attempt, AttemptOutcome, Run
from mainspring.core.states import RUNNING, State

Stretch = Literal["waiting", "attempt"]


class Spent(NamedTuple):
    """A wait or an attempt of a run."""

    kind: Stretch
    text: str
    state: State | AttemptOutcome | Literal["retrying"]
    duration: Duration


def spend_time(run: Run, attempts: Sequence[Attempt], now: Instant) -> list[Spent]:
    """The stretches of a run's time in order, without a gap: their sum is the time from its first due instant to its
    end, or until now. A retry moves the due instant of a run, so that of its first attempt is not always known: then
    the time counts from the instant of its firing, or from the first attempt."""
    end = now if run.finished_at is None else run.finished_at
    begins = [each.finished_at if each.started_at is None else each.started_at for each in attempts]
    place = min(run.due_at, end)
    if begins and begins[0] < run.due_at:
        place = begins[0] if run.fire_at is None else min(run.fire_at, begins[0])
    found: list[Spent] = []
    for attempt, began in zip(attempts, begins, strict=True):
        _wait(found, began - place, is_over=True)
        place = max(place, began)
        _add(found, "attempt", f"attempt {attempt.attempt}", attempt.outcome, attempt.finished_at - place)
        place = max(place, attempt.finished_at)
    if run.state == RUNNING and run.started_at is not None:
        _wait(found, run.started_at - place, is_over=True)
        place = max(place, run.started_at)
        _add(found, "attempt", f"attempt {run.attempt + 1}", RUNNING, end - place)
    elif run.finished_at is None:
        _wait(found, end - place, is_over=False, state=run.state)
    return found


def _wait(found: list[Spent], duration: Duration, *, is_over: bool, state: State = "pending") -> None:
    for_what = "to try again" if found else "to start"
    text = f"{'waited' if is_over else 'waits'} {for_what}"
    _add(found, "waiting", text, "retrying" if found and state == "pending" else state, duration)


def _add(
    found: list[Spent], kind: Stretch, text: str, state: State | AttemptOutcome | Literal["retrying"], took: Duration
) -> None:
    if took > 0 or kind == "attempt":
        found.append(Spent(kind, text, state, max(took, 0)))
