"""Tallies and error groups: pure functions of events and failures."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import Event, Failure, Run
from mainspring.core.runs.errors import generalized, kind_of_error
from mainspring.core.runs.tallies import (
    _ENDS,
    MOST_STEPS,
    OUTCOMES,
    Tally,
    TallyKey,
    period_of,
    quantile,
    step_of,
    tally_events,
    top_of,
)

NOW = 1_900_000_000 * SECOND
LEVELS = {1: MINUTE}
kinds = st.sampled_from([*(f"run.{each}" for each in OUTCOMES[:4]), "run.submitted", "run.running", "run.retrying",
                         "firing.missed", "firing.fired", "job.paused"])  # fmt: skip
events = st.builds(
    Event,
    kinds,
    st.integers(NOW, NOW + 3 * HOUR),
    st.sampled_from(["default", "other"]),
    run_id=st.sampled_from(["r", None]),
    job=st.sampled_from([None, "a", "b"]),
    task=st.sampled_from(["t", "u"]),
    fire_at=st.none() | st.integers(NOW - HOUR, NOW + HOUR),
    attempt=st.integers(1, 3),
    duration=st.none() | st.integers(0, HOUR),
    count=st.none() | st.integers(1, 5),
    priority=st.none() | st.integers(1, 3),
    late=st.none() | st.integers(0, HOUR),
    queue=st.sampled_from([None, "gpu"]),
)


def merged(parts: list[list[Event]]) -> dict[TallyKey, Tally]:
    found: dict[TallyKey, Tally] = {}
    for part in parts:
        for key, tally in tally_events(part, LEVELS).items():
            found.setdefault(key, Tally({}, {}, {})).add(tally)
    return found


@given(st.lists(events, max_size=30), st.integers(0, 30))
def test_it_does_not_matter_how_events_are_split_into_batches(reported: list[Event], at: int) -> None:
    assert merged([reported[:at], reported[at:]]) == tally_events(reported, LEVELS)


@given(st.lists(events, max_size=30))
def test_every_end_is_counted_once_for_the_namespace_its_job_its_task_and_its_queue(reported: list[Event]) -> None:
    tallies = tally_events(reported)
    for outcome in OUTCOMES:
        ended = [each for each in reported if each.kind in (f"run.{outcome}", f"firing.{outcome}")]
        for kind, counted in (
            ("all", ended),
            ("task", ended),
            ("job", [each for each in ended if each.job is not None]),
        ):
            total = sum(tally.outcomes.get(outcome, 0) for key, tally in tallies.items() if key.kind == kind)
            assert total == sum(each.count or 1 for each in counted)
    for queue in ("default", "gpu"):
        own = [each for each in reported if (each.queue or "default") == queue]
        found = [tally for key, tally in tallies.items() if key.kind == "queue" and key.name == queue]
        assert sum(tally.accepted for tally in found) == sum(each.kind == "run.submitted" for each in own)
        ended = [each for each in own if each.kind in _ENDS and each.run_id is not None]
        assert sum(sum(tally.outcomes.values()) for tally in found) == sum(each.count or 1 for each in ended)
    assert all(key.began_at == period_of(key.kind, key.began_at) for key in tallies)


def test_starts_are_counted_by_priority_against_their_service_levels() -> None:
    started = [
        Event("run.running", NOW, attempt=attempt, priority=priority, late=late)
        for priority, late, attempt in ((1, MINUTE, 1), (1, MINUTE + 1, 2), (2, HOUR, 1), (5, HOUR, 1))
    ]
    tallies = tally_events(started, {1: MINUTE, 2: HOUR})
    found = {key.name: (sum(tally.late.values()), tally.beyond) for key, tally in tallies.items()}
    assert found == {"1": (2, 1), "2": (1, 0), "5": (1, 0)}, "a priority without a level is never late"
    assert {key.kind for key in tallies} == {"priority"}


@given(st.integers(0, 400 * HOUR))
def test_a_step_holds_its_durations(duration: int) -> None:
    step = step_of(duration)
    assert 0 <= step <= MOST_STEPS
    assert duration <= top_of(step) * 1.001
    assert step == 0 or duration >= top_of(step - 1) * 0.999


@given(st.lists(st.integers(0, HOUR), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_not_below_the_share(durations: list[int], share: float) -> None:
    histogram: dict[int, int] = {}
    for each in durations:
        histogram[step_of(each)] = histogram.get(step_of(each), 0) + 1
    bound = quantile(histogram, share)
    assert bound is not None
    assert sum(each <= bound * 1.001 for each in durations) >= share * len(durations) * 0.999
    assert quantile({}, share) is None


def failed(message: str, kind: str = "ValueError", traceback: str = "", reason: str = "") -> Run:
    error = msgspec.json.encode(Failure(kind, message, traceback)).decode() if kind else None
    return Run(id="r", namespace="default", queue="q", region="r", task="t", args="{}", state="failed", reason=reason,
               priority=5, due_at=NOW, created_at=NOW, options="{}", error=error)  # fmt: skip


@given(st.integers(), st.integers(), st.text("abc ", max_size=8), st.text("abc ", max_size=8))
def test_failures_that_differ_in_numbers_and_quoted_texts_alone_are_of_one_kind(
    first: int, second: int, one: str, other: str
) -> None:
    messages = [f"row {abs(number)} of '{text}' is refused" for number, text in ((first, one), (second, other))]
    assert kind_of_error(failed(messages[0])) == kind_of_error(failed(messages[1]))
    assert generalized(messages[0]) == "row * of * is refused"
    assert generalized("object can't be used in 'await'") == "object can't be used in *"


def test_type_and_place_distinguish_kinds_and_a_line_does_not() -> None:
    frame = 'Traceback:\n  File "/srv/app/etl/load.py", line {}, in {}\n    fetch()\n'
    here, moved, elsewhere = (frame.format(*each) for each in ((88, "fetch"), (91, "fetch"), (88, "store")))
    kind = kind_of_error(failed("no", traceback=here))
    assert (kind.type, kind.message, kind.place) == ("ValueError", "no", "etl/load.py fetch")
    assert kind == kind_of_error(failed("no", traceback=moved))
    assert kind.id != kind_of_error(failed("no", traceback=elsewhere)).id
    assert kind.id != kind_of_error(failed("no", "KeyError", traceback=here)).id
    lost = kind_of_error(failed("", "", reason="worker w-17 was lost"))
    assert (lost.type, lost.message) == ("", "worker w-* was lost")
    assert (
        kind_of_error(msgspec.structs.replace(failed("x"), error='["not", "a failure"]', reason="odd")).message == "odd"
    )


@given(st.text(), st.text(max_size=200))
def test_every_failure_has_a_kind(message: str, traceback: str) -> None:
    kind = kind_of_error(failed(message, traceback=traceback))
    assert len(kind.id) == 16
    assert len(kind.message) <= 300
