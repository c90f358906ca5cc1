"""Many small runs in one call, each with its own outcome."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from scene import Attempt, scene_of, until

from mainspring import Mainspring
from mainspring.errors import InvalidInput


class Office:
    """A task that notes what it was called with."""

    def __init__(self, *, is_async: bool = True, **words: Any) -> None:
        self.app = Mainspring()
        self.calls: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

        async def post(numbers: list[int]) -> list[object]:
            self.calls.append(list(numbers))
            await self.gate.wait()
            return [ValueError(f"not {number}") if number < 0 else number * 10 for number in numbers]

        def post_sync(numbers: list[int]) -> None:
            self.calls.append(list(numbers))

        self.app.task(name="post", **words)(post if is_async else post_sync)


def attempts(*lists: list[Any]) -> list[Attempt]:
    return [Attempt("post", {"numbers": numbers}) for numbers in lists]


async def test_runs_that_come_together_are_one_call_and_each_gets_what_is_its_own() -> None:
    office = Office(batch=3, batch_wait="10s")
    async with scene_of(office.app.tasks) as scene:
        outcomes = await asyncio.gather(*(scene.execute(each) for each in attempts([1], [2, 3], [4])))
    assert office.calls == [[1, 2, 3, 4]]
    assert [json.loads(each.result or "") for each in outcomes] == [[10], [20, 30], [40]]


async def test_a_batch_that_does_not_fill_goes_after_its_wait() -> None:
    office = Office(batch=100, batch_wait="20ms")
    async with scene_of(office.app.tasks) as scene:
        await asyncio.gather(*(scene.execute(each) for each in attempts([1], [2])))
    assert office.calls == [[1, 2]]


async def test_one_that_fails_does_not_take_the_others_with_it() -> None:
    office = Office(batch=3, batch_wait="10s")
    async with scene_of(office.app.tasks) as scene:
        good, bad, wrong = await asyncio.gather(*(scene.execute(each) for each in attempts([1], [-2], [3])))
    assert [good.kind, bad.kind, wrong.kind] == ["succeeded", "failed", "succeeded"]
    assert bad.failure is not None
    assert (bad.failure.type, bad.failure.message) == ("ValueError", "not -2")


async def test_arguments_that_do_not_fit_stay_out_of_the_batch() -> None:
    office = Office(batch=2, batch_wait="20ms")
    async with scene_of(office.app.tasks) as scene:
        wrong, good = await asyncio.gather(*(scene.execute(each) for each in attempts(["x"], [1])))
    assert (wrong.kind, wrong.final, good.kind) == ("failed", True, "succeeded")
    assert office.calls == [[1]]


async def test_one_that_is_stopped_leaves_the_batch_and_the_last_takes_it_along() -> None:
    office = Office(batch=2, batch_wait="10s")
    office.gate.clear()
    async with scene_of(office.app.tasks) as scene:
        first, second = (scene.begin(each) for each in attempts([1], [2]))
        await until(lambda: office.calls)
        first.cancel()
        await asyncio.wait([first])
        office.gate.set()
        assert json.loads((await second).result or "") == [20]
        office.gate.clear()
        office.calls.clear()
        both = [scene.begin(each) for each in attempts([1], [2])]
        await until(lambda: office.calls)
        for each in both:
            each.cancel()
        await asyncio.wait(both)
    assert all(each.cancelled() for each in both)


async def test_one_that_is_stopped_while_it_waits_is_not_in_the_call() -> None:
    office = Office(batch=2, batch_wait="10s")
    async with scene_of(office.app.tasks) as scene:
        first = scene.begin(attempts([1])[0])
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        await asyncio.gather(*(scene.execute(each) for each in attempts([2], [3])))
    assert office.calls == [[2, 3]]


async def test_a_sync_function_may_return_nothing() -> None:
    office = Office(is_async=False, batch=2, batch_wait="10s")
    async with scene_of(office.app.tasks) as scene:
        outcomes = await asyncio.gather(*(scene.execute(each) for each in attempts([1], [2])))
    assert [each.result for each in outcomes] == ["null", "null"]


def test_a_function_of_a_batch_takes_one_list() -> None:
    app = Mainspring()
    with pytest.raises(InvalidInput, match="one list"):

        @app.task(batch=10)
        def post(numbers: list[int], more: int) -> None: ...
