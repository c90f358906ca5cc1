"""Many small runs in one call, each with its own outcome."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from scene import Attempt, scene_of, until

from mainspring import Mainspring, Retry
from mainspring.errors import InvalidInput
from mainspring.wiring import build_runtime


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


@pytest.mark.parametrize(("concurrency", "limit"), [(3, None), (50, 3)], ids=["concurrency", "limit"])
async def test_it_does_not_wait_for_more_runs_than_may_be_under_way_at_once(
    concurrency: int, limit: int | None
) -> None:
    office = Office(batch=100, batch_wait="10m", limit=limit)
    async with scene_of(office.app.tasks, concurrency=concurrency) as scene, asyncio.timeout(20):
        await asyncio.gather(*(scene.execute(each) for each in attempts([1], [2], [3])))
    assert office.calls == [[1, 2, 3]]


async def test_there_are_never_more_of_its_runs_under_way_than_places_and_none_than_its_limit(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'test.db'}", concurrency=6)
    sizes: dict[str, list[int]] = {"wide": [], "narrow": []}

    def define(name: str, limit: int | None) -> None:
        @app.task(name=name, batch=50, batch_wait="20ms", limit=limit)
        async def post(numbers: list[int]) -> list[int]:
            under_way[name] += len(numbers)
            sizes[name].append(under_way[name])
            await asyncio.sleep(0.01)
            under_way[name] -= len(numbers)
            return numbers

    under_way = {"wide": 0, "narrow": 0}
    define("wide", None)
    define("narrow", 2)
    async with app:
        runs = [await app.submit(name, {"numbers": [number]}) for number in range(20) for name in sizes]
        runtime = build_runtime(app, app.settings, schedule=True, work=True)
        await runtime.start()
        async with asyncio.timeout(20):
            assert [await run.result() for run in runs] == [[number] for number in range(20) for _ in sizes]
        await runtime.stop()
    assert 1 < max(sizes["wide"]) <= 6
    assert max(sizes["narrow"]) <= 2


async def test_one_member_is_cancelled_and_the_others_have_their_results(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'test.db'}")
    begun, gate = asyncio.Event(), asyncio.Event()

    @app.task(batch=3, batch_wait="10s", retry=Retry(0))
    async def post(numbers: list[int]) -> list[object]:
        begun.set()
        await gate.wait()
        return [ValueError("bad") if number == 3 else number for number in numbers]

    async with app:
        runtime = build_runtime(app, app.settings, schedule=True, work=True)
        await runtime.start()
        runs = [await post.submit([number]) for number in (1, 2, 3)]
        async with asyncio.timeout(20):
            await begun.wait()
            await runs[0].cancel("not needed")
            assert (await runs[0].wait()).state == "cancelled"
            gate.set()
            ends = [await run.wait() for run in runs]
        await runtime.stop()
    assert [end.state for end in ends] == ["cancelled", "succeeded", "failed"]
    assert ends[2].reason.startswith("ValueError: bad")


async def test_a_sync_function_that_raises_fails_all_and_is_no_longer_unstoppable() -> None:
    app = Mainspring()

    @app.task(name="post", batch=2, batch_wait="10s")
    def post(numbers: list[int]) -> None:
        raise OSError("down")

    both = attempts([1], [2])
    async with scene_of(app.tasks) as scene:
        outcomes = await asyncio.gather(*(scene.execute(each) for each in both))
    assert [outcome.failure and outcome.failure.message for outcome in outcomes] == ["down", "down"]
    assert not any(each.unstoppable for each in both)


async def test_an_isolation_that_a_batch_cannot_have_is_refused() -> None:
    office = Office(batch=2, batch_wait="20ms")
    async with scene_of(office.app.tasks) as scene:
        outcome = await scene.execute(Attempt("post", {"numbers": [1]}, isolation="limits"))
    assert outcome.failure is not None
    assert (outcome.failure.type, outcome.final) == ("IsolationUnavailable", True)
    with pytest.raises(InvalidInput, match="does not go with batch"):
        Office(batch=2, isolation="process")
    with pytest.raises(InvalidInput, match="a thread cannot be stopped"):
        Office(batch=2, timeout="1s", is_async=False)
    Office(batch=2, timeout="1s", is_async=False, isolation="none")
    Office(batch=2, timeout="1s")


def test_a_function_of_a_batch_takes_one_list() -> None:
    app = Mainspring()
    with pytest.raises(InvalidInput, match="one list"):

        @app.task(batch=10)
        def post(numbers: list[int], more: int) -> None: ...
