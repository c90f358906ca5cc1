"""When a lone submission looks for a worker's offer."""

from __future__ import annotations

from datetime import timedelta

from mainspring.stores.postgres.submissions.handover import LATELY_S, PAUSE_S, Handing
from mainspring.testing import ManualClock


def test_the_first_one_tries() -> None:
    handing = Handing(ManualClock().monotonic)
    assert handing.is_worth_it()
    assert not handing.is_likely()


def test_after_one_in_vain_the_next_ones_do_not_for_a_moment() -> None:
    clock = ManualClock()
    handing = Handing(clock.monotonic)
    handing.missed()
    assert not handing.is_worth_it()
    clock.advance(timedelta(seconds=PAUSE_S * 1.5))
    assert handing.is_worth_it()


def test_while_others_were_handed_over_lately_one_in_vain_does_not_count() -> None:
    clock = ManualClock()
    handing = Handing(clock.monotonic)
    handing.done()
    handing.missed()
    assert handing.is_likely()
    assert handing.is_worth_it()
    clock.advance(timedelta(seconds=LATELY_S * 1.5))
    assert not handing.is_likely()
    assert handing.is_worth_it()
