"""The time of a run, stretch by stretch: nothing is counted twice, and nothing is left out."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import SECOND
from mainspring.core.model import Attempt, Run
from mainspring.core.runs.spending import spend_time
from mainspring.core.states import State

DUE = 1_000 * SECOND
spans = st.integers(0, 100)


def a_run(state: State, due_at: int = DUE, **words: Any) -> Run:
    return Run(id="r", namespace="default", queue="default", region="default", task="t", args="{}", state=state,
               reason="", priority=5, due_at=due_at, created_at=DUE, options="{}", **words)  # fmt: skip


@given(st.lists(st.tuples(spans, spans), max_size=5), spans, st.sampled_from(["pending", "running", "failed"]))
def test_the_parts_add_up_to_the_whole(tries: list[tuple[int, int]], rest: int, state: State) -> None:
    place, attempts = DUE, []
    for number, (waited, took) in enumerate(tries):
        began, place = place + waited, place + waited + took
        attempts.append(Attempt("r", number + 1, number + 1, "w", "failed", began, place))
    now = place + rest
    started = place + rest // 2 if state == "running" else None
    finished = place if state == "failed" else None
    # A retry has moved the instant at which it is due.
    run = a_run(state, place + 1 if tries else DUE, fire_at=DUE, started_at=started, finished_at=finished)
    spent = spend_time(run, attempts, now)
    assert sum(each.duration for each in spent) == (place if state == "failed" else now) - DUE
    assert [each.text for each in spent if each.kind == "attempt"][: len(tries)] == [
        f"attempt {number + 1}" for number in range(len(tries))
    ]
    assert all(each.duration > 0 for each in spent if each.kind == "waiting")


def test_each_stretch_says_what_it_was() -> None:
    lost = Attempt("r", 1, 1, "w", "lost", None, DUE + 5)
    failed = Attempt("r", 2, 2, "w", "failed", DUE + 7, DUE + 9)
    spent = spend_time(a_run("pending", DUE + 10, fire_at=DUE), [lost, failed], DUE + 20)
    assert [(each.text, each.state, each.duration) for each in spent] == [
        ("waited to start", "pending", 5), ("attempt 1", "lost", 0), ("waited to try again", "retrying", 2),
        ("attempt 2", "failed", 2), ("waits to try again", "retrying", 11),
    ]  # fmt: skip
    assert [each.text for each in spend_time(a_run("blocked"), [], DUE + 3)] == ["waits to start"]
    assert spend_time(a_run("pending", DUE + 9), [], DUE) == []
