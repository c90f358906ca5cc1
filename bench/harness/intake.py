"""The measures of submitting, the same for all: a peer says how one run is submitted, and how many at once.

A run is a number, its place on the slate. Standard library only, since it runs in the peers' environments.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from threading import Lock
from typing import Any, NamedTuple

from bench.harness.script import Answer, Measure, Params, pace

CALLERS = 32
THREADS = 4
"""At a pace, more threads than this only take the interpreter from each other."""
WARM_S = 0.3


class Intake(NamedTuple):
    """How to submit, on an event loop."""

    one: Callable[[int], Awaitable[object]]
    many: Callable[[Sequence[int]], Awaitable[object]] | None = None


class BlockingIntake(NamedTuple):
    """How to submit, by calls that wait."""

    one: Callable[[int], object]
    many: Callable[[Sequence[int]], object] | None = None


Opening = Callable[[], AbstractAsyncContextManager[Intake]]
BlockingOpening = Callable[[], AbstractContextManager[BlockingIntake]]
Runner = Callable[[Any], Any]


def _batches(count: int, size: int) -> Iterator[range]:
    return (range(first, min(first + size, count)) for first in range(0, count, size))


async def _rate(one: Callable[[int], Awaitable[object]], callers: int, seconds: float) -> float:
    began, count = time.perf_counter(), 0

    async def call() -> None:
        nonlocal count
        while time.perf_counter() - began < seconds:
            await one(0)
            count += 1

    await asyncio.gather(*(call() for _ in range(callers)))
    return count / (time.perf_counter() - began)


def async_measures(opening: Opening, run: Runner = asyncio.run) -> Mapping[str, Measure]:
    """`submit together bulk fill send` of a peer that is used on an event loop."""

    async def submit(intake: Intake, params: Params) -> Answer:
        await _rate(intake.one, 1, WARM_S)
        return {"rates": [await _rate(intake.one, 1, params["seconds"])]}

    async def together(intake: Intake, params: Params) -> Answer:
        await _rate(intake.one, CALLERS, WARM_S)
        return {"rates": [await _rate(intake.one, CALLERS, params["seconds"])]}

    async def bulk(intake: Intake, params: Params) -> Answer:
        assert intake.many is not None, "it has no bulk submission"
        rates = []
        await intake.many(range(10))
        ends_at = time.perf_counter() + params["seconds"]
        while (began := time.perf_counter()) < ends_at:
            await intake.many(range(params["batch"]))
            rates.append(params["batch"] / (time.perf_counter() - began))
        return {"rates": rates}

    async def fill(intake: Intake, params: Params) -> Answer:
        if intake.many is not None:
            for batch in _batches(params["count"], params["batch"]):
                await intake.many(batch)
            return {}
        numbers = iter(range(params["count"]))

        async def caller() -> None:
            for number in numbers:
                await intake.one(number)

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return {}

    async def send(intake: Intake, params: Params) -> Answer:
        sent = [0.0] * (params["per_second"] * params["seconds"])
        turns = enumerate(pace(params["per_second"], params["seconds"]))

        async def caller() -> None:
            for number, pause in turns:
                await asyncio.sleep(pause)
                sent[number] = time.monotonic()
                await intake.one(number)

        await asyncio.gather(*(caller() for _ in range(params.get("callers", 1))))
        return {"sent": sent}

    def measure(work: Callable[[Intake, Params], Awaitable[Answer]]) -> Measure:
        async def begin(params: Params) -> Answer:
            async with opening() as intake:
                return await work(intake, params)

        return lambda params: run(begin(params))

    return {work.__name__: measure(work) for work in (submit, together, bulk, fill, send)}


def _blocking_rate(one: Callable[[int], object], callers: int, seconds: float) -> float:
    began = time.perf_counter()

    def call(_: int) -> int:
        count = 0
        while time.perf_counter() - began < seconds:
            one(0)
            count += 1
        return count

    with ThreadPoolExecutor(callers) as threads:
        count = sum(threads.map(call, range(callers)))
    return count / (time.perf_counter() - began)


def blocking_measures(opening: BlockingOpening) -> Mapping[str, Measure]:
    """The same of a peer that is used by calls that wait: its callers are threads."""

    def submit(intake: BlockingIntake, params: Params) -> Answer:
        _blocking_rate(intake.one, 1, WARM_S)
        return {"rates": [_blocking_rate(intake.one, 1, params["seconds"])]}

    def together(intake: BlockingIntake, params: Params) -> Answer:
        _blocking_rate(intake.one, CALLERS, WARM_S)
        return {"rates": [_blocking_rate(intake.one, CALLERS, params["seconds"])]}

    def bulk(intake: BlockingIntake, params: Params) -> Answer:
        assert intake.many is not None, "it has no bulk submission"
        rates = []
        intake.many(range(10))
        ends_at = time.perf_counter() + params["seconds"]
        while (began := time.perf_counter()) < ends_at:
            intake.many(range(params["batch"]))
            rates.append(params["batch"] / (time.perf_counter() - began))
        return {"rates": rates}

    def fill(intake: BlockingIntake, params: Params) -> Answer:
        if intake.many is not None:
            for batch in _batches(params["count"], params["batch"]):
                intake.many(batch)
        else:
            for number in range(params["count"]):
                intake.one(number)
        return {}

    def send(intake: BlockingIntake, params: Params) -> Answer:
        sent = [0.0] * (params["per_second"] * params["seconds"])
        turns, lock = enumerate(pace(params["per_second"], params["seconds"])), Lock()

        def caller(_: int) -> None:
            while True:
                with lock:
                    number, pause = next(turns, (-1, 0.0))
                if number < 0:
                    return
                time.sleep(pause)
                sent[number] = time.monotonic()
                intake.one(number)

        callers = min(params.get("callers", 1), THREADS)
        with ThreadPoolExecutor(callers) as threads:
            list(threads.map(caller, range(callers)))
        return {"sent": sent}

    def measure(work: Callable[[BlockingIntake, Params], Answer]) -> Measure:
        def begin(params: Params) -> Answer:
            with opening() as intake:
                return work(intake, params)

        return begin

    return {work.__name__: measure(work) for work in (submit, together, bulk, fill, send)}
