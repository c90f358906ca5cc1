"""Idempotency keys where it matters: what was asked for was done, and the answer was lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from door import Door, open_door, problem, until
from fleet import PATIENCE_S, Fleet, open_fleet

from mainspring import Client
from mainspring.api.load import replies
from mainspring.client.connection import RETRY
from mainspring.core.instants import MILLISECOND
from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.operations import records

HELD = 4711
TRAP = f"""
CREATE FUNCTION hold_reply() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock({HELD}); RETURN NEW; END $$;
CREATE TRIGGER hold_reply BEFORE UPDATE ON mainspring.replies FOR EACH ROW EXECUTE FUNCTION hold_reply()
"""
CAUGHT = f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = {HELD} AND NOT granted"


@asynccontextmanager
async def no_answer_kept(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A request that would store the answer to a key is held up just before that."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(TRAP)
        await connection.execute(f"SELECT pg_advisory_lock({HELD})")
        yield connection
    finally:
        await connection.close()


async def caught(connection: asyncpg.Connection) -> int:
    """The backend of a request that did its work, and has not yet stored the answer."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if (pid := await connection.fetchval(CAUGHT)) is not None:
                return int(pid)
            await asyncio.sleep(0.01)


Work = Callable[[Client], Any]
MADE: dict[str, Work] = {
    "a run": lambda client: client.runs.submit("once", {}, idempotency_key="k"),
    "a batch": lambda client: client.runs.submit_many("once", [{}] * 3, idempotency_key="k"),
}


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with open_fleet(tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize("what", MADE)
async def test_a_server_killed_between_the_work_and_its_answer_leaves_a_key_that_does_it_once(
    fleet: Fleet, what: str
) -> None:
    async with fleet.client(0) as one, fleet.client(1, retry=RETRY) as other:
        async with no_answer_kept(fleet.store) as connection:
            asking = asyncio.ensure_future(MADE[what](one))
            pid = await caught(connection)
            before = [run.run_id async for run in other.runs.list(task="once")]
            assert before, "the work is done and durable"
            os.kill(fleet.servers[0].pid, signal.SIGKILL)
            with pytest.raises(MainspringError):
                await asking
            await connection.execute("SELECT pg_terminate_backend($1)", pid)
            await connection.execute("DROP TRIGGER hold_reply ON mainspring.replies")
        again = await MADE[what](other)
        ids = [again.run_id] if isinstance(again, records.Run) else again
        assert sorted(ids) == sorted(before)
        assert sorted([run.run_id async for run in other.runs.list(task="once")]) == sorted(before)


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(replies, "HOLD", 300 * MILLISECOND)
    with open_door(tmp_path) as door:
        yield door


def test_a_store_that_did_it_and_did_not_say_so_does_it_once(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    client, key = door.client("admin"), {"Idempotency-Key": "k"}
    store = door.server.context.store
    submit = store.submit
    lost = iter([True])

    async def submit_and_be_cut_off(*args: Any, **words: Any) -> Any:
        answer = await submit(*args, **words)
        if next(lost, False):
            raise StoreUnavailable("the connection was cut after the commit")
        return answer

    monkeypatch.setattr(store, "submit", submit_and_be_cut_off)
    problem(client.post("/v1/runs", json={"task": "once"}, headers=key), 503, "unavailable")
    (run,) = client.get("/v1/runs?task=once").json()["items"]
    answer = until(
        lambda: (
            found if (found := client.post("/v1/runs", json={"task": "once"}, headers=key)).status_code == 201 else None
        )
    )
    assert answer.json()["run_id"] == run["run_id"]
    assert len(client.get("/v1/runs?task=once").json()["items"]) == 1


def test_a_call_that_something_else_cancels_is_answered_as_unavailable(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def struck(*_: Any) -> Any:
        raise asyncio.CancelledError

    monkeypatch.setattr(door.server.context.store, "get_run", struck)
    problem(door.client("admin").get("/v1/runs/any"), 503, "unavailable")


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/runs", {"task": "once"}), ("/v1/jobs", {"name": "j", "task": "once", "manual": True})],
)
def test_the_same_answer_comes_with_the_same_headers(door: Door, path: str, body: dict[str, Any]) -> None:
    client, key = door.client("admin"), {"Idempotency-Key": f"k {path}"}
    first, second = (client.post(path, json=body, headers=key) for _ in range(2))
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert second.headers["location"] == first.headers["location"]
    assert second.headers.get("etag") == first.headers.get("etag")
    assert second.headers["idempotency-replayed"] == "true"
