"""Real processes while a real Redis fails over, by Sentinels, and while the way to it is slow: no run is lost, none is
done twice, and the history checker has nothing to say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from brokered import Cluster, run_through, wait, wait_for_events, wait_for_load
from redis import Redis
from redis.exceptions import RedisError

from mainspring.testing.servers.proxy import Proxy
from mainspring.testing.servers.redis import PROGRAM, RedisServer

SENTINELS = 3


class Sentinel(RedisServer):
    """The same program: it watches a master, and makes a replica master in its place."""

    def __init__(self, folder: Path, master: int) -> None:
        super().__init__(folder)
        self._config = self.folder / "sentinel.conf"
        self._config.write_text(
            f"sentinel monitor main 127.0.0.1 {master} {SENTINELS // 2 + 1}\n"
            "sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
        )

    def words(self) -> list[str]:
        return [PROGRAM, str(self._config), "--sentinel", "--port", str(self.port), "--dir", str(self.folder)]

    def knows(self, others: int) -> bool:
        """Whether it knows the replica, and this many other Sentinels."""
        with Redis(port=self.port, decode_responses=True) as client:
            state = client.sentinel_master("main")
            return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == others)

    def master(self) -> int:
        """The port of the present master."""
        with Redis(port=self.port, decode_responses=True) as client:
            return int(client.sentinel_get_master_addr_by_name("main")[1])


class Group:
    """A master, its replica, and Sentinels."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.master = RedisServer(folder).start()
        stack.callback(self.master.kill)
        self.replica = RedisServer(folder, "--replicaof", "127.0.0.1", str(self.master.port)).start()
        stack.callback(self.replica.kill)
        self.sentinels = [Sentinel(folder, self.master.port) for _ in range(SENTINELS)]
        for sentinel in self.sentinels:
            sentinel.start()
            stack.callback(sentinel.kill)
        wait(lambda: all(sentinel.knows(SENTINELS - 1) for sentinel in self.sentinels))

    @property
    def url(self) -> str:
        """The present master."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/main"

    def has_failed_over(self) -> bool:
        """Whether the replica is master, and takes writes."""
        try:
            with Redis(port=self.replica.port) as client:
                role = client.role()[0]
        except RedisError:
            return False
        return role in (b"master", "master") and all(each.master() == self.replica.port for each in self.sentinels)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(tmp_path, stack)


def leads_there(group: Group) -> bool:
    """Whether a node has led by the new master."""
    with Redis(port=group.replica.port) as client:
        return bool(client.exists("job:lock:scheduler", "{job:lock:scheduler}:token"))


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_a_master_that_is_gone_and_its_replica_takes_over(tmp_path: Path, group: Group, how: str) -> None:
    """Queue, leader and statuses on it. A master that was only paused comes back, and must not be believed."""

    def trouble(cluster: Cluster) -> None:
        group.master.kill() if how == "killed" else group.master.pause()
        wait(group.has_failed_over)
        wait_for_events(cluster, "broker.back")
        if how == "paused":
            group.master.resume()
            wait_for_load(cluster, 20)
        wait(lambda: leads_there(group))

    reported = run_through(
        tmp_path, f"{group.url}?timeout=300ms", trouble, {"MAINSPRING_LEASE": group.url, "MAINSPRING_CACHE": group.url}
    )
    assert {"broker.lost", "broker.back"} <= set(reported)
    assert leads_there(group)


def test_a_redis_that_is_slow_for_a_while(tmp_path: Path) -> None:
    redis = RedisServer(tmp_path).start()
    proxy = Proxy(redis.port, Random(7))
    proxy.start()

    def trouble(cluster: Cluster) -> None:
        proxy.delay_s = 1.0
        wait_for_events(cluster, "broker.lost")
        wait_for_load(cluster, 30)
        proxy.delay_s = 0.0
        wait_for_events(cluster, "broker.back")

    try:
        reported = run_through(tmp_path, f"redis://127.0.0.1:{proxy.port}?timeout=300ms", trouble)
    finally:
        proxy.close()
        redis.kill()
    assert {"broker.lost", "broker.back"} <= set(reported)
