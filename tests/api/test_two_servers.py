"""Two servers and a worker on one PostgreSQL database, as real processes: what one promised, the other keeps."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fleet import PATIENCE_S, Fleet, open_fleet

from mainspring import Client, every
from mainspring.client.connection import RETRY
from mainspring.errors import Conflict, MainspringError, NotAllowed, ServerUnavailable


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with open_fleet(tmp_path_factory.mktemp("fleet")) as fleet:
        yield fleet


@pytest.fixture
async def pair(fleet: Fleet, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Client, Client]]:
    """The same subject at each of them, another for each test: limits go by subject."""
    async with fleet.client(0, request.node.name) as one, fleet.client(1, request.node.name) as other:
        yield one, other


async def test_a_key_is_one_run_whichever_server_gets_it(pair: tuple[Client, Client]) -> None:
    one, other = pair

    async def submit(client: Client, number: int) -> str | None:
        try:
            return (await client.runs.submit("elsewhere", {"n": number}, idempotency_key=f"key-{number}")).run_id
        except Conflict:
            return None  # The other one works on it right now.

    answers = await asyncio.gather(*(submit(client, number) for number in range(40) for client in (one, other, other)))
    ids = [{run_id for run_id in answers[at : at + 3] if run_id} for at in range(0, 120, 3)]
    assert {len(found) for found in ids} == {1}
    assert len([run async for run in one.runs.list(task="elsewhere")]) == 40
    with pytest.raises(Conflict, match="used for another request"):
        await other.runs.submit("elsewhere", {"n": "another"}, idempotency_key="key-1")


async def test_a_limit_is_one_budget(pair: tuple[Client, Client]) -> None:
    one, other = pair
    await one.runs.submit_many("elsewhere", [{}] * 700, delay="1d")
    with pytest.raises(ServerUnavailable, match="700"):
        await other.runs.submit_many("elsewhere", [{}] * 700, delay="1d")
    await other.runs.submit_many("elsewhere", [{}] * 200, delay="1d")


async def test_events_of_one_server_are_streamed_by_the_other(pair: tuple[Client, Client]) -> None:
    one, other = pair

    async def watch() -> list[str]:
        seen = []
        async for event in other.events.follow(task="encode"):
            seen.append(event.kind)
            if event.kind == "run.succeeded":
                break
        return seen

    watching = asyncio.create_task(watch())
    while not watching.done():
        run = await one.runs.submit("encode", {"video": 1})
        assert await other.runs.result(run.run_id, timeout=PATIENCE_S) == "1 in HD"
    assert watching.result()[-1] == "run.succeeded"


async def test_a_token_that_one_revokes_is_refused_by_the_other(fleet: Fleet, pair: tuple[Client, Client]) -> None:
    one, _ = pair

    async def go_on(eve: Client) -> None:
        while True:
            await eve.workers.list()
            await asyncio.sleep(0.05)

    async with fleet.client(1, "eve") as eve:
        await eve.workers.list()
        await one.tokens.revoke(subject="eve")
        with pytest.raises(NotAllowed):
            await asyncio.wait_for(go_on(eve), PATIENCE_S)


async def test_kill_minus_9_of_one_loses_and_doubles_nothing(
    fleet: Fleet, pair: tuple[Client, Client], request: pytest.FixtureRequest
) -> None:
    """The last test of the file: one of the servers is no more."""
    one, other = pair
    beat = await other.jobs.add("beat", every("1s"), task="encode", args={"video": 0})
    answered: dict[int, str] = {}
    unanswered: set[int] = set()
    enough = asyncio.Event()

    async def submit(client: Client, number: int) -> None:
        try:
            words: Any = {"idempotency_key": f"video-{number}", "tags": ["film"]}
            answered[number] = (await client.runs.submit("encode", {"video": number}, **words)).run_id
            if len(answered) == 60:
                enough.set()
        except MainspringError:
            unanswered.add(number)

    async def hurry(client: Client, numbers: range) -> None:
        for number in numbers:
            await submit(client, number)

    hurrying = [asyncio.create_task(hurry(one, range(start, 400, 50))) for start in range(50)]
    await asyncio.wait_for(enough.wait(), PATIENCE_S)
    os.kill(fleet.servers[0].pid, signal.SIGKILL)
    await asyncio.gather(*hurrying)
    assert unanswered, "it was killed too late"
    again = [number for number in unanswered if number < 250]  # More than all that were under way.
    unanswered.clear()
    async with fleet.client(1, request.node.name, retry=RETRY) as patient:
        await asyncio.gather(*(submit(patient, number) for number in again))
    assert not unanswered
    for number, run_id in answered.items():
        assert await other.runs.result(run_id, timeout=PATIENCE_S) == f"{number} in HD"
    films = [run.args["video"] async for run in other.runs.list(tag="film")]
    assert len(films) == len(set(films))
    assert set(films) >= set(answered)
    await asyncio.wait_for(fire_again(other, beat.job_id), PATIENCE_S)


async def fire_again(client: Client, job_id: str) -> None:
    """Whichever server planned: one is left that does."""
    fired = (await client.jobs.get(job_id)).fired
    async for _ in client.events.follow(kinds=["run.succeeded"], job=job_id):
        if (await client.jobs.get(job_id)).fired >= fired + 2:
            return
