"""The shape of every loop: it waits, is woken, survives whatever a turn raises, and ends when asked to."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Sequence
from random import Random

import pytest
from stage import JumpingClock, let_others_run, let_pass, turning

from mainspring.errors import StoreUnavailable
from mainspring.services.loop import LONGEST_BACKOFF_S, Loop, within


class Script(Loop):
    """A loop whose turns do what a list says: give a delay, or raise."""

    name = "script"

    def __init__(self, clock: JumpingClock, turns: Sequence[float | Exception], seed: int = 0) -> None:
        super().__init__(clock, Random(seed))
        self._turns = iter(turns)
        self.turns_at: list[float] = []

    async def turn(self) -> float:
        self.turns_at.append(self.clock.monotonic())
        step = next(self._turns, 1_000_000.0)
        if isinstance(step, Exception):
            raise step
        return step

    @property
    def pauses(self) -> list[float]:
        """The time between each turn and the next."""
        return [later - earlier for earlier, later in zip(self.turns_at, self.turns_at[1:], strict=False)]


async def test_it_turns_at_once_and_then_when_the_last_turn_said(clock: JumpingClock) -> None:
    loop = Script(clock, [2.0, 0.5, 0.0])
    async with turning(loop):
        await let_pass(clock, "10s")
    assert loop.turns_at == [0.0, 2.0, 2.5, 2.5]


async def test_a_wake_interrupts_waiting(clock: JumpingClock) -> None:
    loop = Script(clock, [60.0])
    async with turning(loop):
        await let_pass(clock, "3s")
        loop.wake()
        await let_others_run()
        assert loop.turns_at == [0.0, 3.0]


async def test_a_wake_during_a_turn_is_not_lost(clock: JumpingClock) -> None:
    class WokenMidway(Script):
        async def turn(self) -> float:
            if len(self.turns_at) == 0:
                self.wake()
            return await super().turn()

    loop = WokenMidway(clock, [60.0])
    async with turning(loop):
        await let_others_run()
        assert loop.turns_at == [0.0, 0.0]


async def test_a_wake_shortens_one_wait_only(clock: JumpingClock) -> None:
    loop = Script(clock, [60.0, 60.0])
    async with turning(loop):
        await let_others_run()
        loop.wake()
        loop.wake()
        await let_pass(clock, "30s")
        assert loop.turns_at == [0.0, 0.0]


class TestTrouble:
    async def test_a_failing_turn_is_repeated_later_and_later_and_never_given_up(self, clock: JumpingClock) -> None:
        loop = Script(clock, [StoreUnavailable("locked")] * 30)
        async with turning(loop):
            await let_pass(clock, "10m")
        assert len(loop.turns_at) == 31
        ceilings = [min(0.05 * 2**n, LONGEST_BACKOFF_S) for n in range(30)]
        assert all(ceiling / 2 <= pause <= ceiling + 1e-6 for pause, ceiling in zip(loop.pauses, ceilings, strict=True))

    async def test_nodes_that_failed_together_do_not_come_back_together(self, clock: JumpingClock) -> None:
        loops = [Script(clock, [StoreUnavailable("locked")], seed) for seed in range(20)]
        async with turning(*loops):
            await let_pass(clock, "1s")
        assert len({loop.pauses[0] for loop in loops}) == 20

    async def test_it_recovers_and_begins_again_with_short_pauses(self, clock: JumpingClock) -> None:
        trouble = [StoreUnavailable("locked")] * 6
        loop = Script(clock, [*trouble, 1.0, *trouble[:1], 1.0])
        async with turning(loop):
            await let_pass(clock, "1m")
        assert loop.pauses[5] > 0.5
        assert loop.pauses[7] <= 0.05

    @pytest.mark.parametrize("error", [ValueError("a bug"), ZeroDivisionError(), TimeoutError(), OSError("io")])
    async def test_an_unexpected_exception_does_not_kill_it(
        self, clock: JumpingClock, error: Exception, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop = Script(clock, [error, 1.0])
        async with turning(loop):
            await let_pass(clock, "5s")
        assert len(loop.turns_at) == 3
        assert caplog.records[0].exc_info, "a bug is logged with its traceback"

    async def test_a_cancellation_that_was_not_meant_for_it_does_not_kill_it(
        self, clock: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """As of something that a turn awaits, and that other code has cancelled."""

        class Struck(Script):
            async def turn(self) -> float:
                delay = await super().turn()
                if len(self.turns_at) == 2:
                    awaited = asyncio.get_running_loop().create_future()
                    awaited.cancel()
                    await awaited
                return delay

        loop = Struck(clock, [1.0, 1.0, 1.0])
        async with turning(loop):
            await let_pass(clock, "5s")
            assert len(loop.turns_at) == 4
        assert "CancelledError" in caplog.text

    async def test_its_own_cancellation_ends_it(self, clock: JumpingClock) -> None:
        task = asyncio.create_task(Script(clock, [60.0]).run())
        await let_others_run()
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled()

    async def test_expected_trouble_is_reported_without_a_traceback(
        self, clock: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "mainspring")
        async with turning(Script(clock, [StoreUnavailable("locked"), 1.0])):
            await let_pass(clock, "1s")
        assert [record.exc_info for record in caplog.records] == [None, None]
        assert "locked" in caplog.messages[0]
        assert "recovered after" in caplog.messages[1]

    async def test_wakes_do_not_shorten_the_pause_after_a_failure(self, clock: JumpingClock) -> None:
        """A store in trouble must not be asked as often as hints come."""
        loop = Script(clock, [StoreUnavailable("locked")] * 5)
        async with turning(loop):
            for _ in range(100):
                loop.wake()
                await let_pass(clock, "1ms")
        assert len(loop.turns_at) <= 4


class TestEnd:
    async def test_stop_ends_it_while_it_waits(self, clock: JumpingClock) -> None:
        loop = Script(clock, [60.0])
        task = asyncio.create_task(loop.run())
        await let_others_run()
        loop.stop()
        await let_others_run()
        assert task.done()
        assert loop.stopping

    async def test_stop_ends_it_while_it_backs_off(self, clock: JumpingClock) -> None:
        loop = Script(clock, [StoreUnavailable("locked")] * 9)
        task = asyncio.create_task(loop.run())
        await let_pass(clock, "1s")
        loop.stop()
        await let_others_run()
        assert task.done()

    async def test_halt_returns_when_the_turn_has_ended(self, clock: JumpingClock) -> None:
        class Slow(Script):
            async def turn(self) -> float:
                await self.clock.sleep(5.0)
                return await super().turn()

        loop = Slow(clock, [60.0])
        async with turning(loop):
            await let_pass(clock, "1s")
            halting = asyncio.create_task(loop.halt())
            await let_others_run()
            assert not halting.done()
            await let_pass(clock, "4s")
            assert halting.done()
            assert loop.turns_at == [5.0]

    async def test_halting_a_loop_that_never_ran_returns(self, clock: JumpingClock) -> None:
        await Script(clock, []).halt()


async def test_a_loop_that_never_waits_lets_others_run(clock: JumpingClock) -> None:
    eager = Script(clock, [0.0] * 1_000_000)
    async with asyncio.timeout(20), turning(eager):
        await let_others_run(rounds=30)
        assert 1 < len(eager.turns_at) < 100


class TestWithin:
    async def test_an_answer_in_time_is_given(self, clock: JumpingClock) -> None:
        async def answer() -> int:
            await clock.sleep(1.0)
            return 42

        asked = asyncio.create_task(within(clock, 2.0, answer()))
        await let_pass(clock, "1s")
        assert await asked == 42

    async def test_a_call_that_takes_too_long_is_cancelled(self, clock: JumpingClock) -> None:
        never = asyncio.get_running_loop().create_future()
        asked = asyncio.create_task(within(clock, 2.0, never))
        await let_pass(clock, "2s")
        with pytest.raises(StoreUnavailable):
            await asked
        assert never.cancelled()

    async def test_a_call_that_something_else_cancels_has_no_answer(self, clock: JumpingClock) -> None:
        call = asyncio.get_running_loop().create_future()
        asked = asyncio.create_task(within(clock, 2.0, call))
        await let_others_run()
        call.cancel()
        with pytest.raises(StoreUnavailable, match="cancelled"):
            await asked

    async def test_errors_pass(self, clock: JumpingClock) -> None:
        async def fail() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await within(clock, 2.0, fail())


async def test_the_error_of_an_abandoned_call_is_not_logged(clock: JumpingClock) -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    async def fail_late() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("too late to matter")

    for calls in ([asyncio.Event().wait()], [fail_late(), asyncio.Event().wait()]):
        waiting = asyncio.create_task(within(clock, 2.0, asyncio.gather(*calls)))
        await let_pass(clock, "3s")
        with pytest.raises(StoreUnavailable):
            await waiting
        del waiting
    await let_others_run()
    gc.collect()
    assert not errors
