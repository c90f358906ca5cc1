"""Processes that elect their leader by Redis: one plans, another takes over, the store has the last word where Redis
forgets the leader, and its own lease stands in while Redis does not answer."""

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from judging import judge
from redis import Redis
from test_standby import Nodes

from mainspring.testing.servers.redis import RedisServer


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path).start()
    monkeypatch.setenv("MAINSPRING_LEASE", f"{server.url}?timeout=500ms")
    yield server
    server.kill()


@pytest.fixture
def nodes(tmp_path: Path, redis: RedisServer) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    nodes.start()
    nodes.start()
    nodes.wait("firings", lambda: len(nodes.firings()) >= 3)
    nodes.wait("two workers", lambda: nodes.ask("SELECT count(*) FROM workers")[0][0] == 2)
    yield nodes
    nodes.end()


def check_history(nodes: Nodes) -> None:
    """Every instant has its firing, once, whichever node led."""
    seen = len(nodes.firings())
    nodes.wait("more firings", lambda: len(nodes.firings()) > seen + 4, 40)
    assert {later - earlier for earlier, later in pairwise(nodes.firings())} == {500_000}
    nodes.end()
    verdict = judge(nodes.folder, f"sqlite:///{nodes.folder / 'x.db'}")
    assert verdict.ok, str(verdict)


def test_the_holder_of_the_lease_on_redis_leads_and_another_takes_over(nodes: Nodes, redis: RedisServer) -> None:
    assert is_held(redis)
    term, leader = nodes.leader()
    os.kill(leader, signal.SIGKILL)
    nodes.processes.pop(leader).wait(timeout=40)
    nodes.wait("a new leader", lambda: nodes.leader()[0] > term, 40)
    check_history(nodes)


def test_a_redis_that_restarts_empty_loses_and_doubles_no_firing(nodes: Nodes, redis: RedisServer) -> None:
    redis.kill()
    redis.start()
    check_history(nodes)


@pytest.mark.parametrize("trouble", ["paused", "killed"])
def test_while_redis_does_not_answer_firings_go_on(nodes: Nodes, redis: RedisServer, trouble: str) -> None:
    getattr(redis, "pause" if trouble == "paused" else "kill")()
    begun = len(nodes.firings())
    nodes.wait("firings without Redis", lambda: len(nodes.firings()) > begun + 10, 60)
    assert {later - earlier for earlier, later in pairwise(nodes.firings())} == {500_000}
    getattr(redis, "resume" if trouble == "paused" else "start")()
    nodes.wait("the lease on Redis", lambda: is_held(redis), 60)
    check_history(nodes)


def is_held(redis: RedisServer) -> bool:
    with Redis(port=redis.port) as client:
        return bool(client.exists("job:lock:scheduler"))
