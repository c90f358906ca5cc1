"""What a client does when the line to its server breaks: nothing twice, nothing lost, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from client_work import Flaky, cut_after, date_by, hang_up, lose_reply, refuse
from door import Door

from mainspring import Client, Retry, manual
from mainspring.clock import SystemClock
from mainspring.conformance.store.samples import a_worker, success
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import LogLine
from mainspring.errors import Conflict, ServerUnavailable

QUICK = Retry(3, delay="10ms", factor=2.0, cap="2s", jitter=0.5)


@pytest.fixture(scope="module")
def flaky(door: Door) -> Iterator[Flaky]:
    proxy = Flaky(door.url)
    yield proxy
    proxy.close()


@pytest.fixture
async def client(door: Door, flaky: Flaky) -> AsyncIterator[Client]:
    flaky.will()
    async with Client(flaky.url, door.token("admin"), retry=QUICK) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def keys(flaky: Flaky) -> set[str]:
    return {each.headers["idempotency-key"] for each in flaky.seen}


class TestOnce:
    async def test_a_submission_whose_reply_is_lost_is_not_doubled(
        self, flaky: Flaky, client: Client, name: str
    ) -> None:
        flaky.will(lose_reply, lose_reply)
        run = await client.runs.submit(name)
        assert (len(flaky.seen), len(keys(flaky))) == (3, 1)
        assert [each.run_id async for each in client.runs.list(task=name)] == [run.run_id]

    async def test_nor_is_a_batch(self, flaky: Flaky, client: Client, name: str) -> None:
        flaky.will(lose_reply)
        ids = await client.runs.submit_many(name, [{"n": n} for n in range(10)])
        assert [each.run_id async for each in client.runs.list(task=name)] == sorted(ids, reverse=True)

    async def test_nor_a_firing_nor_a_job(self, flaky: Flaky, client: Client, name: str) -> None:
        flaky.will(lose_reply)
        await client.jobs.add(name, manual(), task=name)
        flaky.will(lose_reply)
        firing = await client.jobs.trigger(name)
        assert [each.run_id async for each in client.runs.list(task=name)] == [firing.run_id]

    async def test_two_submissions_are_two(self, flaky: Flaky, client: Client, name: str) -> None:
        first, second = await client.runs.submit(name), await client.runs.submit(name)
        assert first.run_id != second.run_id
        assert len(keys(flaky)) == 2

    async def test_a_change_that_may_have_happened_is_not_sent_again(
        self, flaky: Flaky, client: Client, name: str
    ) -> None:
        job = await client.jobs.add(name, manual(), task=name)
        flaky.will(lose_reply)
        with pytest.raises(ServerUnavailable, match="was lost"):
            await client.jobs.edit(name, priority=1, version=job.version)
        assert len(flaky.seen) == 1
        with pytest.raises(Conflict, match='has version "2"'):
            await client.jobs.edit(name, priority=1, version=job.version)
        flaky.will(lose_reply)
        with pytest.raises(ServerUnavailable, match="was lost"):
            await client.jobs.remove(name)
        assert len(flaky.seen) == 1


class TestAgain:
    @pytest.mark.parametrize(("kind", "status"), [("rate-limited", 429), ("overloaded", 503), ("unavailable", 503)])
    async def test_what_is_refused_for_now_is_asked_again(
        self, flaky: Flaky, client: Client, name: str, kind: str, status: int
    ) -> None:
        flaky.will(refuse(kind, status), refuse(kind, status), hang_up)
        await client.runs.submit(name)
        assert (len(flaky.seen), len(keys(flaky))) == (4, 1)

    async def test_the_server_says_when(self, flaky: Flaky, client: Client, name: str) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        flaky.will(refuse("rate-limited", 429, retry_after=1))
        await client.runs.submit(name)
        assert loop.time() - began >= 1.0

    async def test_a_server_that_asks_for_too_long_a_wait_is_an_error_at_once(
        self, flaky: Flaky, client: Client, name: str
    ) -> None:
        flaky.will(refuse("rate-limited", 429, retry_after=3))
        with pytest.raises(ServerUnavailable, match="rate-limited"):
            await client.runs.submit(name)
        assert len(flaky.seen) == 1

    async def test_it_does_not_go_on_for_ever(self, flaky: Flaky, client: Client, name: str) -> None:
        flaky.will(*[refuse("overloaded", 503)] * 10)
        with pytest.raises(ServerUnavailable, match="overloaded"):
            await client.runs.submit(name)
        assert len(flaky.seen) == 4
        flaky.will(*[hang_up] * 10)
        with pytest.raises(ServerUnavailable, match="was lost"):
            await client.workers.list()
        assert len(flaky.seen) == 4

    async def test_a_change_that_was_refused_at_the_door_is_sent_again(
        self, flaky: Flaky, client: Client, name: str
    ) -> None:
        job = await client.jobs.add(name, manual(), task=name)
        flaky.will(refuse("overloaded", 503))
        assert (await client.jobs.edit(name, priority=1, version=job.version)).version == 2
        flaky.will(refuse("unavailable", 503))
        with pytest.raises(ServerUnavailable):
            await client.jobs.edit(name, priority=2)
        assert len(flaky.seen) == 1

    async def test_other_refusals_are_final(self, flaky: Flaky, client: Client, name: str) -> None:
        flaky.will(refuse("forbidden", 403))
        with pytest.raises(Exception, match="forbidden"):
            await client.runs.submit(name)
        assert len(flaky.seen) == 1


async def test_the_clock_that_counts_is_the_servers(flaky: Flaky, client: Client) -> None:
    here = SystemClock().now
    flaky.will(date_by(3600), date_by(1))
    await client.workers.list()
    assert abs(client.now() - here() - HOUR) < 10 * SECOND
    await client.workers.list()
    assert abs(client.now() - here()) < 10 * SECOND


class TestStreams:
    async def test_events_go_on_where_the_line_broke(self, door: Door, flaky: Flaky, client: Client, name: str) -> None:
        store = await door.app.open()
        await store.number_events(10_000)
        position = await store.next_position()
        ids = [(await client.runs.submit(name)).run_id for _ in range(6)]
        await store.number_events(10_000)
        flaky.will(cut_after(2), hang_up, cut_after(1), refuse("overloaded", 503))
        seen = []
        async for event in client.events.follow(after=position - 1, task=name):
            seen.append(event.run_id)
            if len(seen) == 6:
                break
        assert seen == ids
        assert [each.headers.get("last-event-id") is None for each in flaky.seen] == [True] + [False] * 4

    async def test_so_does_what_a_run_writes(self, door: Door, flaky: Flaky, client: Client, name: str) -> None:
        run = await client.runs.submit(name)
        store = await door.app.open()
        (claim,) = await store.claim(a_worker("w1", tasks=(name,)), 1, MINUTE, "strict")
        texts = [f"line {number}" for number in range(5)]
        await store.record([LogLine(run.run_id, 1, store.now(), "stdout", text) for text in texts], [])
        await store.report([success(claim)])
        flaky.will(cut_after(1), cut_after(2))
        assert [line.text async for line in client.runs.logs(run.run_id, follow=True)] == texts
        assert len(flaky.seen) == 3

    async def test_a_stream_that_never_lasts_is_given_up(self, flaky: Flaky, client: Client) -> None:
        flaky.will(*[hang_up] * 20)
        with pytest.raises(ServerUnavailable):
            await anext(client.events.follow())
        assert len(flaky.seen) == 4
