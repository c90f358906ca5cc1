"""What the simulator found, each in the smallest form."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import cast

import pytest

from mainspring.core.model import Claim, NewRun, Report, Worker
from mainspring.core.runs.priority import Ordering
from mainspring.executor import AttemptContext
from mainspring.services.worker.claimer import Claimer
from mainspring.services.worker.claims import Claims
from mainspring.services.worker.fence import Fence
from mainspring.services.worker.heartbeat import Heartbeat
from mainspring.services.worker.runner import prepare
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.testing import ManualClock
from mainspring.wiring import open_memory

HEARD_AT, A_TENTH_LATER = 134.36424411240122, 134.46424411240122
"""Their difference is less than a tenth, by the last bit; and a tenth after the one is the other."""


class FixedClock(ManualClock):
    """Shows what a test gives it."""

    shown = HEARD_AT

    def monotonic(self) -> float:
        return self.shown


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def store(clock: FixedClock) -> AsyncIterator[Store]:
    opened = open_memory(clock)
    yield opened
    await opened.close()


async def test_a_heart_that_need_not_hear_yet_does_not_spin(clock: FixedClock, store: Store) -> None:
    heart = Heartbeat(store, Worker(id="w"), Claims(), lambda *_: None, lambda *_: None, Settings(), clock, Random(0))
    await heart.turn()
    clock.shown = A_TENTH_LATER

    assert await heart.turn() > 0


class LateLine:
    """A store whose answers to claims come after the claims have run out."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self._store = store
        self._clock = clock
        self.now = store.now
        self.next_due = store.next_due
        self.leave_claim = store.leave_claim

    async def claim(self, worker: Worker, limit: int, ttl: int, ordering: Ordering, *, ahead: int = 0) -> list[Claim]:
        claims = await self._store.claim(worker, limit, ttl, ordering, ahead=ahead)
        self._clock.advance(ttl)
        return claims


async def test_nothing_begins_under_a_claim_that_ran_out_on_its_way() -> None:
    """Chaos seed 0: the answer to a claim took eight seconds, and its work began two seconds after the claim had ended,
    when another worker might have had it."""
    clock = ManualClock()
    store, worker, held = open_memory(clock), Worker(id="w", tasks=("t",)), Claims()
    await store.submit([NewRun("r", "t", clock.now(), clock.now())])
    begun: list[AttemptContext] = []
    given_back: list[tuple[str, int]] = []
    line = cast(Store, LateLine(store, clock))
    claimer = Claimer(
        line,
        line,
        worker,
        held,
        lambda attempts, _: begun.extend(attempts),
        lambda attempts, _: begun.extend(attempts),
        given_back.extend,
        lambda: None,
        Settings(),
        clock,
        Random(0),
    )

    await claimer.turn()

    assert (begun, given_back, len(held)) == ([], [("r", 1)], 0)
    assert await store.hand_back(given_back) == 1
    await store.close()


async def test_a_claim_that_came_late_is_given_up_while_the_heart_waits_for_an_answer() -> None:
    """Chaos seed 10274: the answer to a claim took five of its six seconds. The heart was between two beats, so work
    went on for a second after the claim had ended."""
    clock, held = ManualClock(), Claims()
    stopped: list[tuple[str, str]] = []
    fence = Fence(held, lambda run_id, kind, _: stopped.append((run_id, kind)), clock, Random(0))
    turning = asyncio.create_task(fence.run())
    await _let_others_run()

    claim = Claim("r", 1, "t", "{}", "{}", 0, 0, 5, 0, "default", None, None, 0, 0)
    held.add([AttemptContext(claim, prepare("{}"))], clock.monotonic() + 0.8)
    await _let_others_run()
    clock.advance("800ms")
    await _let_others_run()

    assert (stopped, len(held)) == ([("r", "fenced")], 0)
    fence.stop()
    await turning


async def test_what_has_ended_need_not_be_stopped_if_its_claim_is_gone() -> None:
    """A beat between the commit of a report and its answer finds no claim: that was said to have passed to another."""
    held = Claims()
    stopped: list[str] = []
    fence = Fence(held, lambda run_id, *_: stopped.append(run_id), ManualClock(), Random(0))
    for name in ("ended", "at work"):
        claim = Claim(name, 1, "t", "{}", "{}", 0, 0, 5, 0, "default", None, None, 0, 0)
        held.add([AttemptContext(claim, prepare("{}"))], 1e9)
    held.note([Report("ended", 1, "succeeded", "succeeded")])

    fence.lower([("ended", 1), ("at work", 1)], "its claim has passed to another")

    assert (stopped, len(held)) == (["at work"], 0)


async def _let_others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
