"""The loop of the simulated world: virtual time, and processes that can be frozen and killed."""

import asyncio
from collections.abc import Iterator

import pytest

from mainspring.testing.simulation.world.hosts import Host, HostingLoop
from mainspring.testing.simulation.world.loop import Stuck


@pytest.fixture
def loop() -> Iterator[HostingLoop]:
    loop = HostingLoop()
    yield loop
    loop.bury()
    loop.close()


async def tick(marks: list[float]) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            marks.append(loop.time())
            await asyncio.sleep(1.0)
    finally:
        marks.append(-1.0)


def test_time_passes_only_where_everybody_waits(loop: HostingLoop) -> None:
    loop.run_until_complete(asyncio.sleep(86_400))

    assert loop.time() == 86_400


def test_a_frozen_process_does_nothing_and_then_goes_on_where_it_was(loop: HostingLoop) -> None:
    process, marks = Host(loop), list[float]()
    process.spawn(tick(marks))
    loop.run_until_complete(asyncio.sleep(1.5))

    process.freeze()
    loop.run_until_complete(asyncio.sleep(10.0))
    assert marks == [0.0, 1.0]

    process.thaw()
    loop.run_until_complete(asyncio.sleep(1.2))
    assert marks == [0.0, 1.0, 11.5, 12.5]


def test_a_killed_process_never_runs_again_not_even_its_clean_up(loop: HostingLoop) -> None:
    process, marks = Host(loop), list[float]()
    process.spawn(tick(marks))
    loop.run_until_complete(asyncio.sleep(1.5))

    process.kill()
    loop.run_until_complete(asyncio.sleep(10.0))

    assert marks == [0.0, 1.0]


def test_what_a_process_starts_belongs_to_it(loop: HostingLoop) -> None:
    process, marks = Host(loop), list[float]()

    async def parent() -> None:
        loop.create_task(tick(marks))
        loop.call_later(2.0, marks.append, 99.0)

    process.spawn(parent())
    loop.run_until_complete(asyncio.sleep(0.5))
    process.kill()
    loop.run_until_complete(asyncio.sleep(5.0))

    assert marks == [0.0]


def test_a_loop_that_spins_is_noticed(loop: HostingLoop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    spin()
    with pytest.raises(Stuck, match="no time passed"):
        loop.run_until_complete(asyncio.sleep(1.0))


def test_a_wait_without_an_end_is_noticed(loop: HostingLoop) -> None:
    with pytest.raises(Stuck, match="never happen"):
        loop.run_until_complete(loop.create_future())


def test_threads_are_refused(loop: HostingLoop) -> None:
    with pytest.raises(RuntimeError, match="threads do not exist"):
        loop.run_until_complete(asyncio.wait_for(loop.run_in_executor(None, print), 1))
