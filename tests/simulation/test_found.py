"""What the simulator found, each as small as it can be told."""

from random import Random

import pytest

from mainspring.core.model import Worker
from mainspring.services.heart import Heart
from mainspring.services.held import Held
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.testing import ManualClock
from mainspring.wiring import open_memory

HEARD_AT, A_TENTH_LATER = 134.36424411240122, 134.46424411240122
"""Their difference is less than a tenth, by the last bit; and a tenth after the one is the other."""


class FixedClock(ManualClock):
    """Shows what it is told to show."""

    shown = HEARD_AT

    def monotonic(self) -> float:
        return self.shown


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def store(clock: FixedClock) -> Store:
    return open_memory(clock)


async def test_a_heart_that_need_not_hear_yet_does_not_spin(clock: FixedClock, store: Store) -> None:
    heart = Heart(store, Worker(id="w"), Held(), lambda *_: None, Settings(), clock, Random(0))
    await heart.turn()
    clock.shown = A_TENTH_LATER

    assert await heart.turn() > 0
