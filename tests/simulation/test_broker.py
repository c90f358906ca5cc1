"""The broker of the simulated world: good while nothing is wrong with it, and bad in each way that its profile has."""

from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from mainspring.broker import Notice, Subscription
from mainspring.core.model import Worker
from mainspring.errors import BrokerUnavailable
from mainspring.testing.history import History
from mainspring.testing.simulation import Scenario, run_scenario
from mainspring.testing.simulation.faults import PROFILES, Weather
from mainspring.testing.simulation.ports.broker import TAKEN_S, Courier
from mainspring.testing.simulation.ports.scribe import Scribe
from mainspring.testing.simulation.ports.transports import TRANSPORTS
from mainspring.testing.simulation.ports.wire import Wire
from mainspring.testing.simulation.world.clock import ProcessClock, StoreClock
from mainspring.testing.simulation.world.hosts import Host, HostingLoop
from mainspring.wiring import open_memory

WORKER = Worker(id="w", queues=("default",), regions=("default",))


class Scene:
    """One broker, and one process that uses it."""

    def __init__(self, profile: str = "calm") -> None:
        self.happened = Counter[str]()
        self.loop = HostingLoop()
        self.clock = StoreClock(self.loop, 0)
        self.weather = Weather(PROFILES[profile], frozenset(), self.happened)
        self.host = Host(self.loop)
        scribe = Scribe(History(keep=False), self.clock, self.happened)
        clock = ProcessClock(self.clock, Random(1), wrong=False)
        self.store = open_memory(self.clock)
        self.wire = Wire(self.store, "p", self.host, clock, self.weather, scribe, "seed")
        kind = TRANSPORTS[PROFILES[profile].transport]
        self.post = kind(self.clock, self.weather, "strict", Random(2))
        self.courier = Courier(self.post, self.wire, self.host, self.clock, Random(3))

    def play(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            self.loop.run_until_complete(work)
        finally:
            self.loop.run_until_complete(self.store.close())
            self.loop.close()

    async def consumer(self) -> Subscription:
        return await self.courier.subscribe(WORKER, lambda: None)

    async def received(self, limit: int = 10) -> list[str]:
        return [delivery.run_id for delivery in await (await self.consumer()).receive(limit)]


def notice(run_id: str, priority: int = 5, queue: str = "default") -> Notice:
    return Notice(run_id, 0, "default", queue, "default", priority, 0)


def test_the_best_is_delivered_once_and_only_to_workers_of_its_line() -> None:
    scene = Scene()

    async def play() -> None:
        await scene.courier.publish([notice("low", 9), notice("high", 1), notice("elsewhere", 1, "mail")])
        assert await scene.received(1) == ["high"]
        await scene.courier.publish([notice("high", 1)])
        assert await scene.received() == ["low"]
        assert await scene.received() == []

    scene.play(play())


def test_what_is_not_acknowledged_is_delivered_again_and_what_is_released_at_once() -> None:
    scene = Scene()

    async def play() -> None:
        await scene.courier.publish([notice("a"), notice("b")])
        consumer = await scene.consumer()
        first, second = await consumer.receive(2)
        await consumer.release([second])
        assert await scene.received() == [second.run_id]
        await consumer.ack([second])
        await scene.clock.sleep(TAKEN_S + 1)
        assert await scene.received() == [first.run_id]

    scene.play(play())


def test_it_forgets_stands_still_and_is_cut_off() -> None:
    scene = Scene()

    async def play() -> None:
        await scene.courier.publish([notice("a")])
        scene.post.forget()
        assert await scene.received() == []
        scene.weather.mute = True
        with pytest.raises(BrokerUnavailable):
            await scene.courier.publish([notice("a")])
        scene.weather.heal()
        scene.wire.cut = True
        with pytest.raises(BrokerUnavailable):
            await scene.received()

    scene.play(play())


def test_a_loose_one_loses_doubles_and_mixes_up() -> None:
    scene = Scene("broker")

    async def play() -> None:
        consumer = await scene.consumer()
        for number in range(300):
            await scene.courier.publish([notice(f"{number}-{place}", place) for place in range(1, 4)])
            try:
                await consumer.ack(await consumer.receive(3))
            except BrokerUnavailable:
                continue

    scene.play(play())

    assert {kind for kind in ("lost_message", "doubled_message", "mixed_messages") if scene.happened[kind]} == {
        "lost_message",
        "doubled_message",
        "mixed_messages",
    }


def test_a_listener_hears_of_what_arrives_in_its_lines_until_it_dies() -> None:
    scene, heard = Scene(), list[float]()

    async def play() -> None:
        await scene.courier.subscribe(WORKER, lambda: heard.append(scene.loop.time()))
        await scene.courier.publish([notice("elsewhere", 1, "mail")])
        await scene.clock.sleep(1)
        assert heard == []
        await scene.courier.publish([notice("a")])
        await scene.clock.sleep(1)
        assert len(heard) == 1
        scene.host.kill()
        await scene.courier.publish([notice("b")])
        await scene.clock.sleep(1)
        assert len(heard) == 1

    scene.play(play())


def test_in_a_world_with_a_broker_runs_are_claimed_as_it_delivers_them() -> None:
    result = run_scenario(Scenario(1, "broker", 1.0), keep=False)

    assert result.ok, str(result.verdict)
    assert result.sometimes["delivered run claimed"] > 0


def test_without_one_nothing_of_it_happens() -> None:
    result = run_scenario(Scenario(1, "crash", 0.5), keep=False)

    assert result.ok, str(result.verdict)
    assert result.sometimes["runs delivered by a broker"] == result.sometimes["delivered run claimed"] == 0
