"""etcd, ZooKeeper and the Kubernetes Lease, on real servers: the suite of the port, and what holds for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from electors import KINDS, Elector, held, opened, renewed, started
from mainspring.conformance.lease import Elapse, WatchedLeaseConformance
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.model import Hold
from mainspring.errors import InvalidInput, LeaseUnavailable
from mainspring.lease import Lease

_spaces = count()


@pytest.fixture(scope="module", params=KINDS)
def elector(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elector]:
    with started(request.param, tmp_path_factory.mktemp(request.param)) as elector:
        yield elector


class TestElectors(WatchedLeaseConformance):
    ttl = 2 * SECOND
    moment = 800 * MILLISECOND

    @pytest.fixture
    async def lease(self, elector: Elector) -> AsyncIterator[Lease]:
        self.elector, self.space = elector, f"test-{next(_spaces)}"
        async with opened(elector.url(self.space)) as lease:
            yield lease

    @pytest.fixture
    def elapse(self) -> Elapse:
        async def elapse(duration: Duration) -> None:
            await asyncio.sleep(duration / SECOND)

        return elapse

    async def doubt(self, lease: Lease, hold: Hold) -> None:
        self.elector.rob(self.space, hold.name)


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
async def test_members_that_hang_or_die_are_passed_over_until_no_majority_is_left(kind: str, tmp_path: Path) -> None:
    with started(kind, tmp_path, members=3) as elector:
        async with opened(elector.url("test", timeout="3s")) as lease:
            hold = await held(lease, ttl=60 * SECOND)
            if kind == "etcd":  # A client of ZooKeeper notices a server that hangs after two thirds of its session.
                hanging = elector.leader()
                hanging.pause()
                assert await renewed(lease, hold) is not None
                hanging.resume()
            elector.leader().kill()
            assert await renewed(lease, hold) is not None
            next(member for member in elector.members if member.runs).kill()
            with pytest.raises(LeaseUnavailable, match=str(elector.server.port)):
                await renew_until_it_fails(lease, hold)
            elector.start()
            assert await renewed(lease, hold) is not None, "members keep what they know"


async def renew_until_it_fails(lease: Lease, hold: Hold) -> None:
    """The member that is left takes a moment to notice that it is alone."""
    async with asyncio.timeout(60):
        while True:
            await lease.renew(hold)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("etcd://", "names no host"),
        ("etcd://h:x", "names no host"),
        ("etcd://h?prefix=a", "has an option 'prefix'"),
        ("zookeeper://", "names no host"),
        ("zookeeper://h?auth=x", "one of digest, sasl"),
        ("zookeeper://h?x=1", "option 'x'"),
    ],
)
async def test_a_url_that_says_nothing_is_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        async with opened(url):
            pass
