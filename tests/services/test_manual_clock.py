"""The settable clock: time passes only when a test says so, and sleepers wake in an order that is always the same."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.clock import Clock
from mainspring.core.instants import HOUR, MINUTE, SECOND, parse_instant
from mainspring.errors import InvalidDuration, InvalidInput
from mainspring.testing.clock import ManualClock

NOON = "2026-03-01T12:00:00Z"


async def let_others_run() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_it_stands_still_until_it_is_moved() -> None:
    clock: Clock = ManualClock(NOON)
    assert clock.now() == clock.now() == parse_instant(NOON)
    assert clock.monotonic() == clock.monotonic()


def test_wall_clock_and_monotonic_time_move_together() -> None:
    clock = ManualClock(NOON)
    began = clock.monotonic()
    clock.advance(90 * SECOND + 1)
    assert clock.now() == parse_instant(NOON) + 90_000_001
    assert clock.monotonic() - began == pytest.approx(90.000001)


@pytest.mark.parametrize("duration", [HOUR + 30 * MINUTE, "1h30m", timedelta(hours=1, minutes=30)])
def test_durations_are_microseconds_text_or_timedeltas(duration: int | str | timedelta) -> None:
    clock = ManualClock(NOON)
    clock.advance(duration)
    assert clock.now() == parse_instant("2026-03-01T13:30:00Z")


@pytest.mark.parametrize(
    "instant", ["2026-03-02T00:00:00Z", datetime(2026, 3, 2, tzinfo=UTC), parse_instant("2026-03-02T00:00:00Z")]
)
def test_instants_are_numbers_text_or_datetimes(instant: int | str | datetime) -> None:
    clock = ManualClock(NOON)
    clock.set(instant)
    assert clock.now() == ManualClock(instant).now() == parse_instant("2026-03-02T00:00:00Z")
    assert clock.monotonic() == 12 * 3600


def test_setting_it_back_does_not_turn_monotonic_time_back() -> None:
    clock = ManualClock(NOON)
    clock.advance("10s")
    clock.set("2026-03-01T11:00:00Z")
    assert clock.now() == parse_instant("2026-03-01T11:00:00Z")
    assert clock.monotonic() == 10


@pytest.mark.parametrize("duration", [-1, timedelta(seconds=-1), "-1s"])
def test_time_does_not_pass_backwards(duration: int | str | timedelta) -> None:
    with pytest.raises(InvalidDuration):
        ManualClock(NOON).advance(duration)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(InvalidInput):
        ManualClock("2026-03-01T12:00:00")


async def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = ManualClock(NOON)
    sleeper = asyncio.create_task(clock.sleep(10))
    await let_others_run()
    clock.advance(10 * SECOND - 1)
    await let_others_run()
    assert not sleeper.done()
    clock.advance(1)
    await sleeper


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.lists(st.integers(1, 5), min_size=5, max_size=12))
def test_sleepers_wake_by_due_time_then_by_when_they_fell_asleep(naps: list[int], steps: list[int]) -> None:
    async def scenario() -> list[int]:
        clock = ManualClock(NOON)
        woken: list[int] = []

        async def nap(number: int) -> None:
            await clock.sleep(naps[number])
            woken.append(number)

        sleepers = [asyncio.create_task(nap(number)) for number in range(len(naps))]
        await let_others_run()
        for step in steps:
            clock.advance(step * SECOND)
            await let_others_run()
        await asyncio.gather(*sleepers)
        return woken

    assert asyncio.run(scenario()) == sorted(range(len(naps)), key=lambda number: (naps[number], number))


async def test_pending_is_the_earliest_sleeper() -> None:
    clock = ManualClock(NOON)
    assert clock.pending() is None
    sleepers = [asyncio.create_task(clock.sleep(seconds)) for seconds in (30, 10, 20)]
    await let_others_run()
    assert clock.pending() == parse_instant(NOON) + 10 * SECOND
    clock.set(clock.pending() or 0)
    assert clock.pending() == parse_instant(NOON) + 20 * SECOND
    clock.advance("1m")
    assert clock.pending() is None
    await asyncio.gather(*sleepers)


async def test_a_sleeper_that_was_cancelled_is_forgotten() -> None:
    clock = ManualClock(NOON)
    short, long = asyncio.create_task(clock.sleep(1)), asyncio.create_task(clock.sleep(2))
    await let_others_run()
    short.cancel()
    await let_others_run()
    assert clock.pending() == parse_instant(NOON) + 2 * SECOND
    clock.advance("5s")
    await long


async def test_setting_the_wall_clock_back_does_not_make_a_sleeper_sleep_longer() -> None:
    clock = ManualClock(NOON)
    sleeper = asyncio.create_task(clock.sleep(10))
    await let_others_run()
    clock.set("2026-03-01T11:00:00Z")
    clock.advance("10s")
    await sleeper


@pytest.mark.parametrize("seconds", [0, -1, 1e-9])
async def test_sleeping_for_no_time_lets_others_run(seconds: float) -> None:
    ran: list[str] = []
    other = asyncio.create_task(asyncio.sleep(0))
    other.add_done_callback(lambda _: ran.append("other"))
    for _ in range(3):
        await ManualClock(NOON).sleep(seconds)
    assert ran == ["other"]
