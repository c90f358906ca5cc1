"""What the store holds, as Prometheus reads it: whole numbers, and labels that no tenant can make too many of."""

from __future__ import annotations

from typing import Any

from mainspring.api.prometheus import MOST_QUEUES, OTHERS, namespace_families
from mainspring.core.answers import Backlog
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import Worker
from mainspring.core.runs.why import DEAD_LATELY, Crowd

NOW = 100 * HOUR


def figures(workers: list[Worker], backlog: list[Backlog]) -> dict[tuple[str, ...], float]:
    crowd = Crowd(workers, NOW, 10 * SECOND)
    return {
        (sample.name.removeprefix("mainspring_"), *sample.labels.values()): sample.value
        for family in namespace_families("default", {}, crowd, backlog, NOW)
        for sample in family.samples
    }


def a_worker(name: str, silent: int = 0, **words: Any) -> Worker:
    return Worker(id=name, tasks=("t",), heartbeat_at=NOW - silent, **words)


def test_a_depth_of_ten_million_is_reported_by_queue_and_region() -> None:
    reported = figures(
        [], [Backlog("default", "video", "eu", 3, 10_000_000, NOW - MINUTE), Backlog("b", "q", "r", 1, 5, 0)]
    )
    assert reported["queue_depth", "default", "video", "eu", "3"] == 10_000_000
    assert reported["queue_oldest_seconds", "default", "video", "eu", "3"] == 60
    assert reported["queue_depth", "default", "video", "eu", "4"] == 0
    assert not [name for name in reported if "b" in name]


def test_queues_that_a_tenant_makes_up_are_summed_up() -> None:
    backlog = [Backlog("default", f"q{number}", "eu", 5, number, NOW) for number in range(1, 1001)]
    reported = {name: value for name, value in figures([], backlog).items() if name[0] == "queue_depth"}
    assert len({name[2] for name in reported}) == MOST_QUEUES + 1
    assert sum(reported.values()) == sum(range(1, 1001))
    assert reported["queue_depth", "default", OTHERS, OTHERS, "5"] == sum(range(1, 1001 - MOST_QUEUES))


def test_utilisation_and_the_share_of_the_dead() -> None:
    workers = [
        a_worker("a", concurrency=10, running=7),
        a_worker("b", concurrency=10, running=1),
        a_worker("c", silent=MINUTE, concurrency=10, running=3),
        a_worker("d", silent=MINUTE, state="stopped"),
        a_worker("e", silent=DEAD_LATELY + SECOND, state="dead"),
    ]
    reported = figures(workers, [])
    assert reported["worker_places", "default"] == 20
    assert reported["worker_utilisation", "default"] == 0.4
    assert reported["workers", "default", "dead"] == 1
    assert reported["workers_dead_share", "default"] == 1 / 3
