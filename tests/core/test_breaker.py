"""The circuit breaker: opens at half, pauses, probes, closes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.load.breaker import Breaker, Policy, admit, note, retry_in

POLICY = Policy()


def after(outcomes: list[bool], breaker: Breaker | None = None, at: float = 0.0) -> Breaker:
    breaker = breaker or Breaker()
    for well in outcomes:
        breaker, let = admit(breaker, at)
        if let:
            breaker = note(breaker, at, well=well)
    return breaker


def test_it_opens_when_half_of_the_calls_fail_and_not_before() -> None:
    assert after([True, False] * 4).state == "closed"  # Eight calls are too few.
    assert after([True, False] * 5).state == "open"
    assert after([True, True, False] * 20).state == "closed"


def test_open_it_lets_nothing_pass_until_its_pause_is_over() -> None:
    breaker = after([False] * 10)
    assert retry_in(breaker, 0.25) == 0.75
    assert admit(breaker, POLICY.pause_s - 0.01) == (breaker, False)
    breaker, let = admit(breaker, POLICY.pause_s)
    assert (let, breaker.state) == (True, "half-open")


def test_half_open_a_few_probes_decide() -> None:
    breaker = after([False] * 10)
    let_through = 0
    for _ in range(20):
        breaker, let = admit(breaker, 1.0)
        let_through += let
    assert let_through == POLICY.probes
    closing = breaker
    for _ in range(POLICY.probes):
        closing = note(closing, 1.1, well=True)
    assert closing == Breaker(began_at=1.1)
    again = note(breaker, 1.1, well=False)
    assert (again.state, again.pause_s) == ("open", 2 * POLICY.pause_s)


def test_each_failed_probe_makes_the_pause_longer_up_to_a_bound() -> None:
    breaker, now = after([False] * 10), 0.0
    pauses = []
    for _ in range(10):
        now += breaker.pause_s
        breaker, let = admit(breaker, now)
        assert let
        breaker = note(breaker, now, well=False)
        pauses.append(breaker.pause_s)
    assert pauses[:4] == [2.0, 4.0, 8.0, 16.0]
    assert pauses[-1] == POLICY.longest_pause_s


def test_probes_that_never_come_back_do_not_keep_it_half_open_for_ever() -> None:
    breaker = after([False] * 10)
    for _ in range(POLICY.probes):
        breaker, _ = admit(breaker, 1.0)
    assert not admit(breaker, 2.0)[1]
    assert admit(breaker, 1.0 + POLICY.window_s)[1]


def test_failures_of_long_ago_are_forgotten() -> None:
    breaker = after([False] * 9)
    assert after([False] * 5, breaker, at=POLICY.window_s + 1).state == "closed"


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), max_size=200))
def test_it_never_opens_while_fewer_than_half_fail_and_always_lets_somebody_try_again(
    calls: list[tuple[float, bool]],
) -> None:
    breaker, now = Breaker(), 0.0
    good = bad = 0
    for pause, well in calls:
        now += pause
        before = breaker
        breaker, let = admit(breaker, now)
        if not let:
            assert breaker.state != "closed"
            continue
        good, bad = good + well, bad + (not well)
        breaker = note(breaker, now, well=well)
        if before.state == "closed" and breaker.state == "open":
            assert not well
            assert bad >= POLICY.least / 2
    assert admit(breaker, now + POLICY.longest_pause_s + POLICY.window_s)[1]
