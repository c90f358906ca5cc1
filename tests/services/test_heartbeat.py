"""How long a heartbeat waits for the store, and when one that failed is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from stage import USUAL, FaultyStore, JumpingClock, at_home, let_pass, make_worker

from mainspring import Mainspring
from mainspring.core.instants import MINUTE, SECOND
from mainspring.services.worker.heartbeat import Heartbeat
from mainspring.settings import Settings

PATIENT = msgspec.structs.replace(USUAL, claim_ttl=3 * MINUTE, claim_renew=30 * SECOND, worker_dead_after=3 * MINUTE)


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


async def pauses_of(heartbeat: Heartbeat, count: int) -> list[float]:
    """The pauses after this many heartbeats in a row that the store did not answer."""
    return [await heartbeat._turn_safely() for _ in range(count)]


def is_about(pause_s: float, wanted_s: float) -> bool:
    """Half of a pause is random."""
    return wanted_s / 2 <= pause_s <= wanted_s


async def test_failed_heartbeats_are_repeated_soon_and_then_less_often(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    line = FaultyStore(store)
    line.lose_request("renew", 12)
    found = await pauses_of(make_worker(app, line, clock, USUAL).heartbeat, 12)
    longest_s = USUAL.claim_renew / SECOND
    for number, pause_s in enumerate(found):
        wanted_s = 0.05 * 2**number
        assert min(wanted_s / 2, longest_s / 2) <= pause_s <= min(wanted_s, longest_s), number


async def test_the_pauses_between_heartbeats_can_be_chosen(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    chosen = msgspec.structs.replace(PATIENT, heartbeat_retries=(10 * SECOND, 30 * SECOND))
    line = FaultyStore(store)
    line.lose_request("renew", 3)
    found = await pauses_of(make_worker(app, line, clock, chosen).heartbeat, 3)
    assert [is_about(pause_s, wanted_s) for pause_s, wanted_s in zip(found, (10, 30, 30), strict=True)] == [True] * 3


async def test_a_heartbeat_without_an_answer_ends_after_its_timeout(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    assert Settings().heartbeat_timeout == 60 * SECOND
    short = msgspec.structs.replace(PATIENT, heartbeat_timeout=2 * SECOND)
    line = FaultyStore(store)
    line.hold_request("renew")
    heartbeat = make_worker(app, line, clock, short).heartbeat
    waiting = asyncio.create_task(heartbeat._turn_safely())
    await let_pass(clock, "1900ms")
    assert not waiting.done()
    await let_pass(clock, "200ms")
    assert waiting.done()
    assert is_about(await waiting, 0.05)
