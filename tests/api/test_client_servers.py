"""A client of several servers: in turns, past those that fail, over to another where nothing can be doubled."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator

import pytest
from client_work import Flaky, hang_up, lose_reply
from door import Door

from mainspring import Client, Retry
from mainspring.client.servers import FIRST_REST_S, LONGEST_REST_S, Servers
from mainspring.errors import InvalidInput, ServerUnavailable

ONCE = Retry(0)


@pytest.fixture
def pair(door: Door) -> Iterator[tuple[Flaky, Flaky]]:
    proxies = Flaky(door.url), Flaky(door.url)
    yield proxies
    for each in proxies:
        each.close()


@pytest.fixture
async def client(door: Door, pair: tuple[Flaky, Flaky]) -> AsyncIterator[Client]:
    async with Client(f"{pair[0].url}, {pair[1].url}", door.token("admin"), retry=ONCE) as client:
        yield client


def nobody() -> str:
    """An address on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


async def test_requests_go_to_the_servers_in_turns(client: Client, pair: tuple[Flaky, Flaky]) -> None:
    for _ in range(6):
        await client.ready()
    assert [len(each.seen) for each in pair] == [3, 3]


async def test_a_server_that_is_gone_costs_nothing_and_is_passed_over(door: Door, pair: tuple[Flaky, Flaky]) -> None:
    async with Client(f"{nobody()},{pair[0].url}", door.token("admin"), retry=ONCE) as client:
        for _ in range(5):
            await client.ready()
        assert [each.failures for each in client._connection.servers.all] == [1, 0]
    assert len(pair[0].seen) == 5


async def test_a_submission_whose_reply_is_lost_goes_to_the_other_and_is_not_doubled(
    client: Client, pair: tuple[Flaky, Flaky], request: pytest.FixtureRequest
) -> None:
    task = request.node.name
    pair[0].will(lose_reply)
    run = await client.runs.submit(task)
    assert [len(each.seen) for each in pair] == [1, 1]
    assert len({each.headers["idempotency-key"] for proxy in pair for each in proxy.seen}) == 1
    assert [each.run_id async for each in client.runs.list(task=task)] == [run.run_id]


async def test_where_all_fail_it_is_said(client: Client, pair: tuple[Flaky, Flaky]) -> None:
    for each in pair:
        each.will(hang_up)
    with pytest.raises(ServerUnavailable):
        await client.runs.submit("x")
    assert [len(each.seen) for each in pair] == [1, 1]


def test_a_server_rests_longer_after_each_failure_and_is_asked_if_all_rest() -> None:
    now = 100.0
    servers = Servers("http://a,http://b", lambda: now)
    a, b = servers.all
    servers.note(a, well=False)
    assert [servers.choose() for _ in range(3)] == [b, b, b]
    servers.note(b, well=False)
    assert servers.choose() in (a, b)
    assert not servers.has_other([])
    now += FIRST_REST_S
    assert {servers.choose(), servers.choose()} == {a, b}
    for _ in range(20):
        servers.note(a, well=False)
    assert a.rests_until == now + LONGEST_REST_S
    servers.note(a, well=True)
    assert servers.has_other([b])


@pytest.mark.parametrize("urls", ["", " , ", "http://a,nonsense"])
def test_what_names_no_server_is_refused(urls: str) -> None:
    with pytest.raises(InvalidInput):
        Client(urls)
