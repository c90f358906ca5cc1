"""Brokers of the simulated world that work as Kafka and SQS do."""

from __future__ import annotations

import pytest
from test_broker import Scene, notice

from mainspring.broker import Delivery, Notice
from mainspring.testing.simulation import Scenario, run_scenario
from mainspring.testing.simulation.ports.transports import HIDDEN_S, LONGEST_COMMIT_S

KEYS = "abcdefghijklmnop"


def keyed(run_id: str, key: str) -> Notice:
    return notice(run_id)._replace(order_key=key)


def ids(deliveries: list[Delivery]) -> list[str]:
    return [delivery.run_id for delivery in deliveries]


def test_a_partition_keeps_the_order_of_a_key_and_has_one_consumer_at_a_time() -> None:
    scene = Scene("partitions")

    async def play() -> None:
        first, second = await scene.consumer(), await scene.consumer()
        await scene.courier.publish([keyed(f"{key}{number}", key) for number in range(20) for key in KEYS])
        received = [ids(await each.receive(1_000)) for each in (first, second)]
        assert all(received)
        assert sorted(received[0] + received[1]) == sorted(f"{key}{n}" for n in range(20) for key in KEYS)
        for key in KEYS:
            (mine,) = [order for order in ([each for each in some if each[0] == key] for some in received) if order]
            assert mine == [f"{key}{number}" for number in range(20)]

    scene.play(play())


def test_what_was_not_committed_is_delivered_again_when_consumers_come_or_go() -> None:
    scene = Scene("partitions")

    async def play() -> None:
        first = await scene.consumer()
        await scene.courier.publish([keyed("a", "k"), keyed("b", "k")])
        a, b = await first.receive(10)
        await first.ack([a])
        await scene.clock.sleep(LONGEST_COMMIT_S + 1)
        await first.ack([b])  # Committed a moment later, which is too late.
        second = await scene.consumer()
        again = [each for consumer in (first, second) for each in await consumer.receive(10)]
        assert [(each.run_id, each.redelivered) for each in again] == [("b", True)]
        await first.close()
        third = await second.receive(10)
        assert ids(third) == ["b"]
        await first.ack(again)  # Of a partition that has moved on: it counts for nothing.
        await scene.clock.sleep(LONGEST_COMMIT_S + 1)
        assert [each.waiting for each in await scene.courier.depth()] == [1]

    scene.play(play())
    assert scene.happened["late commit"] > 0
    assert scene.happened["rebalance"] > 0


def test_what_is_hidden_is_visible_again_unless_it_is_extended_or_acknowledged() -> None:
    scene = Scene("visibility")
    scene.weather.heal()  # Acknowledgements are not forgotten.

    async def play() -> None:
        consumer = await scene.consumer()
        await scene.courier.publish([notice("a"), notice("b")])
        held = sorted(await consumer.receive(10))
        assert await scene.received() == []
        await scene.clock.sleep(HIDDEN_S * 0.75)
        await consumer.extend(held[:1])
        await scene.clock.sleep(HIDDEN_S * 0.5)
        (again,) = await consumer.receive(10)
        assert (again.run_id, again.redelivered) == ("b", True)
        await consumer.ack(held)  # For b another delivery counts by now.
        await scene.clock.sleep(HIDDEN_S + 1)
        assert await scene.received() == ["b"]

    scene.play(play())


@pytest.mark.parametrize(
    ("profile", "happens"), [("partitions", "record delivered again"), ("visibility", "message visible again")]
)
def test_in_worlds_with_them_all_promises_are_kept(profile: str, happens: str) -> None:
    results = [run_scenario(Scenario(seed, profile, 1.0), keep=False) for seed in range(3)]
    assert [str(result.verdict) for result in results if not result.ok] == []
    assert sum(result.sometimes[happens] for result in results) > 0
    assert sum(result.sometimes["delivered run claimed"] for result in results) > 0
