"""Real processes that a real Redis delivers to, while that is paused, emptied, killed and restarted, and workers die:
no run is lost, none is done twice, and the history checker has nothing to say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokered import Cluster, run_through, wait_for_events, wait_for_load
from redis import Redis

from mainspring.testing.servers.redis import RedisServer


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path).start()
    yield server
    server.kill()


def test_workers_that_are_killed_with_work_in_their_hands(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        for number in (1, 2):
            cluster.processes[number].kill()
            cluster.processes[number].wait(20)
            cluster.processes[number] = cluster.start("worker")

    run_through(tmp_path, f"{redis.url}?timeout=300ms", trouble)


def test_a_redis_that_is_flushed_in_the_middle_of_it(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        with Redis(port=redis.port) as client:
            for _ in range(50):
                client.flushall()

    run_through(tmp_path, f"{redis.url}?timeout=300ms", trouble)


def test_a_redis_that_is_killed_and_comes_back_empty(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        redis.kill()
        wait_for_events(cluster, "broker.lost")
        redis.start()
        wait_for_events(cluster, "broker.back")

    assert {"broker.lost", "broker.back"} <= set(run_through(tmp_path, f"{redis.url}?timeout=300ms", trouble))


def test_a_redis_that_stands_still_for_a_while(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        redis.pause()
        wait_for_events(cluster, "broker.lost")
        redis.resume()
        wait_for_events(cluster, "broker.back")

    assert {"broker.lost", "broker.back"} <= set(run_through(tmp_path, f"{redis.url}?timeout=300ms", trouble))


def test_a_redis_that_is_full(tmp_path: Path, redis: RedisServer) -> None:
    def trouble(cluster: Cluster) -> None:
        with Redis(port=redis.port) as client:
            client.config_set("maxmemory", "1")
            wait_for_load(cluster, 100)
            client.config_set("maxmemory", "0")

    run_through(tmp_path, f"{redis.url}?timeout=300ms", trouble)
