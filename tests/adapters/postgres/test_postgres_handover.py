"""When a lone submission looks for a worker's offer."""

from __future__ import annotations

from datetime import timedelta

from mainspring.stores.postgres.submissions.handover import LATELY_S, PAUSE_S, Handover
from mainspring.testing import ManualClock


def test_the_first_one_tries() -> None:
    handover = Handover(ManualClock().monotonic)
    assert handover.is_worth_it()
    assert not handover.is_likely()


def test_after_one_in_vain_the_next_ones_do_not_for_a_moment() -> None:
    clock = ManualClock()
    handover = Handover(clock.monotonic)
    handover.missed()
    assert not handover.is_worth_it()
    clock.advance(timedelta(seconds=PAUSE_S * 1.5))
    assert handover.is_worth_it()


def test_while_others_were_handed_over_lately_one_in_vain_does_not_count() -> None:
    clock = ManualClock()
    handover = Handover(clock.monotonic)
    handover.done()
    handover.missed()
    assert handover.is_likely()
    assert handover.is_worth_it()
    clock.advance(timedelta(seconds=LATELY_S * 1.5))
    assert not handover.is_likely()
    assert handover.is_worth_it()
