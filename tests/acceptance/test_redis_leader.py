"""Processes that elect their leader by Redis: one plans, another takes over, and the store has the last word even where
Redis forgets who leads, or stands still."""

import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from judging import judge
from test_standby import Nodes

from mainspring.testing.chaos.redis import RedisServer, is_installed


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    if not is_installed():
        pytest.skip("no Redis: `make services` installs one")
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
    """Every instant has its firing, once, whoever led."""
    seen = len(nodes.firings())
    nodes.wait("more firings", lambda: len(nodes.firings()) > seen + 4, 40)
    assert {later - earlier for earlier, later in pairwise(nodes.firings())} == {500_000}
    nodes.end()
    verdict = judge(nodes.folder, f"sqlite:///{nodes.folder / 'x.db'}")
    assert verdict.ok, str(verdict)


def test_who_holds_the_lease_on_redis_leads_and_another_takes_over(nodes: Nodes, redis: RedisServer) -> None:
    assert nodes.ask("SELECT count(*) FROM leases WHERE name = 'scheduler'") == [(0,)]
    term, leader = nodes.leader()
    os.kill(leader, signal.SIGKILL)
    nodes.processes.pop(leader).wait(timeout=40)
    nodes.wait("a new leader", lambda: nodes.leader()[0] > term, 40)
    check_history(nodes)


def test_a_redis_that_restarts_empty_loses_and_doubles_no_firing(nodes: Nodes, redis: RedisServer) -> None:
    redis.kill()
    redis.start()
    check_history(nodes)


def test_a_redis_that_stands_still_for_a_while_loses_and_doubles_no_firing(nodes: Nodes, redis: RedisServer) -> None:
    redis.pause()
    nodes.wait("a while", lambda: is_late(nodes), 40)
    redis.resume()
    check_history(nodes)


def is_late(nodes: Nodes) -> bool:
    """Whether the last instant is more than two seconds ago, because nobody leads."""
    return time.time_ns() // 1_000 - nodes.firings()[-1] > 2_000_000
