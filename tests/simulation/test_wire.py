"""The way to the store: what each fault does to a call, and what the history says of it."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from mainspring.core.model import NewRun
from mainspring.errors import StoreFull, StoreUnavailable
from mainspring.store import RunFilter, Store
from mainspring.testing.history import History
from mainspring.testing.simulation.faults import Profile, Weather
from mainspring.testing.simulation.ports.scribe import Scribe
from mainspring.testing.simulation.ports.wire import PATIENCE_S, Wire
from mainspring.testing.simulation.world.clock import LARGEST_ERROR, ProcessClock, StoreClock
from mainspring.testing.simulation.world.hosts import Host, HostingLoop
from mainspring.wiring import open_memory

START = 1_800_000_000_000_000


class Stage:
    """One process, its wire and the store behind it."""

    def __init__(self, *faults: str) -> None:
        self.loop = HostingLoop()
        self.happened = Counter[str]()
        self.history = History()
        self.clock = StoreClock(self.loop, START)
        self.store: Store = open_memory(self.clock)
        self.weather = Weather(Profile("", dict.fromkeys(faults, 100.0 / len(faults)) if faults else {}), frozenset(),
                               self.happened)  # fmt: skip
        self.host = Host(self.loop)
        clock = ProcessClock(self.clock, Random(1), wrong=True)
        scribe = Scribe(self.history, self.clock, self.happened)
        self.wire = Wire(self.store, "process", self.host, clock, self.weather, scribe, "seed")

    async def submit(self, run_id: str = "r1") -> list[str]:
        return await self.wire.as_store.submit([NewRun(run_id, "quick", START, START)])

    async def stored(self) -> list[str]:
        return [run.id for run in await self.store.list_runs(RunFilter())]

    def outcomes(self) -> list[str]:
        return [record.outcome for record in self.history.records]


@pytest.fixture
def stages() -> Iterator[list[Stage]]:
    made: list[Stage] = []
    yield made
    for stage in made:
        stage.loop.bury()
        stage.loop.run_until_complete(stage.store.close())
        stage.loop.close()


def play(stages: list[Stage], *faults: str) -> Stage:
    stages.append(Stage(*faults))
    return stages[-1]


def test_in_good_weather_a_call_is_carried_out_and_recorded(stages: list[Stage]) -> None:
    stage = play(stages)

    assert stage.loop.run_until_complete(stage.submit()) == ["r1"]
    assert stage.outcomes() == ["ok"]


def test_a_lost_request_was_never_made(stages: list[Stage]) -> None:
    stage = play(stages, "lost_request")

    with pytest.raises(StoreUnavailable):
        stage.loop.run_until_complete(stage.submit())
    assert stage.loop.run_until_complete(stage.stored()) == []
    assert stage.outcomes() == []


def test_a_lost_reply_leaves_the_deed_done_and_its_doer_in_doubt(stages: list[Stage]) -> None:
    stage = play(stages, "lost_reply")

    with pytest.raises(StoreUnavailable):
        stage.loop.run_until_complete(stage.submit())
    assert stage.loop.run_until_complete(stage.stored()) == ["r1"]
    assert stage.outcomes() == ["unknown"]


def test_a_late_delivery_arrives_after_its_sender_has_given_up(stages: list[Stage]) -> None:
    stage = play(stages, "late_delivery")

    with pytest.raises(StoreUnavailable):
        stage.loop.run_until_complete(stage.submit())
    stage.weather.heal()
    stage.loop.run_until_complete(asyncio.sleep(PATIENCE_S))
    assert stage.loop.run_until_complete(stage.stored()) == ["r1"]


def test_a_delayed_request_arrives_though_its_sender_was_killed(stages: list[Stage]) -> None:
    stage = play(stages, "long_delay")
    stage.host.spawn(stage.submit())
    stage.loop.run_until_complete(asyncio.sleep(0.01))

    stage.host.kill()
    stage.loop.run_until_complete(asyncio.sleep(PATIENCE_S))

    assert stage.loop.run_until_complete(stage.stored()) == ["r1"]


def test_a_doubled_call_is_carried_out_twice_and_answered_once(stages: list[Stage]) -> None:
    stage = play(stages, "duplicate")

    assert stage.loop.run_until_complete(stage.submit()) == ["r1"]
    stage.loop.run_until_complete(asyncio.sleep(PATIENCE_S))

    assert sorted(stage.outcomes()) == ["ok", "unknown"]
    assert stage.loop.run_until_complete(stage.stored()) == ["r1"]


def test_a_store_that_is_down_or_full_says_so(stages: list[Stage]) -> None:
    stage = play(stages)

    stage.weather.full = True
    with pytest.raises(StoreFull):
        stage.loop.run_until_complete(stage.submit())
    stage.weather.full, stage.weather.down = False, True
    with pytest.raises(StoreUnavailable):
        stage.loop.run_until_complete(stage.submit())


def test_a_process_is_off_about_the_time_by_no_more_than_is_said(stages: list[Stage]) -> None:
    stage = play(stages)

    assert 0 < abs(stage.wire.now() - stage.clock.now()) <= LARGEST_ERROR
