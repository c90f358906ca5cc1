"""An idle worker leaves a claim with the store: the next submission in its process makes it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.model import Claim, Gate, NewRun, Worker
from mainspring.process.ids import IdSource
from mainspring.store import StandingClaim
from mainspring.stores.sqlite.file import database
from mainspring.stores.sqlite.store import SqliteStore

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
WORKER = Worker(id="w", tasks=("t",))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "one.db"), CLOCK)
    yield store
    await store.close()


def a_run(**changes: Any) -> NewRun:
    facts: dict[str, Any] = {"id": IDS.new(), "task": "t", "due_at": 0, "created_at": CLOCK.now()} | changes
    return NewRun(**facts)


class Taken(list[Claim]):
    """What a worker was given, and hints that there were."""

    def __init__(self, store: SqliteStore) -> None:
        self.hints = 0
        self._store = store
        store.on_change(self._hear)

    def _hear(self) -> None:
        self.hints += 1

    def stand(self, limit: int = 1) -> None:
        self._store.leave_claim(StandingClaim(WORKER, limit, MINUTE, "strict", self._take))

    def _take(self, claims: Sequence[Claim], sent_at: float) -> None:
        assert 0 <= CLOCK.monotonic() - sent_at < 60
        self += claims


@pytest.fixture
def taken(store: SqliteStore) -> Taken:
    return Taken(store)


async def test_a_run_that_is_submitted_is_given_before_the_submission_returns(store: SqliteStore, taken: Taken) -> None:
    taken.stand()
    run = a_run(args='{"x": 1}', priority=3)
    assert await store.submit([run]) == [run.id]
    (claim,) = taken
    assert (claim.run_id, claim.token, claim.attempt, claim.args, claim.priority) == (run.id, 1, 0, '{"x": 1}', 3)
    stored = await store.get_run("default", run.id)
    assert (stored.state, stored.worker, stored.token) == ("running", "w", 1)
    assert await store.claim(WORKER, 10, MINUTE, "strict") == []
    await store.number_events(10)
    (batch,) = await store.events_since(0, 10)
    assert [event.kind for event in batch.events] == ["run.submitted", "run.running"]
    assert taken.hints == 1


async def test_it_is_made_also_where_the_disk_was_slow(store: SqliteStore, taken: Taken) -> None:
    log = store._db._wal_sync
    assert log is not None
    log.took_s = 3_600.0
    taken.stand()
    await store.submit([a_run()])
    assert len(taken) == 1


async def test_it_is_made_when_the_writer_has_finished(
    store: SqliteStore, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MOMENT_S", 60.0)
    taken.stand()
    assert store._db._writing.acquire(timeout=60.0)
    threading.Timer(0.05, store._db._writing.release).start()
    await store.submit([a_run()])
    assert len(taken) == 1


async def test_it_is_good_once(store: SqliteStore, taken: Taken) -> None:
    taken.stand()
    first, second = a_run(), a_run()
    await store.submit([first])
    await store.submit([second])
    assert [claim.run_id for claim in taken] == [first.id]
    assert (await store.get_run("default", second.id)).state == "pending"


async def test_it_can_be_taken_back(store: SqliteStore, taken: Taken) -> None:
    taken.stand()
    store.leave_claim(None)
    await store.submit([a_run()])
    assert not taken


@pytest.mark.parametrize(
    "run",
    [
        a_run(task="unknown"),
        a_run(queue="other"),
        a_run(region="mars"),
        a_run(namespace="another"),
        a_run(due_at=CLOCK.now() + HOUR),
        a_run(expires_at=CLOCK.now() + HOUR),
        a_run(gates=(Gate("one", 1),)),
    ],
    ids=["task", "queue", "region", "namespace", "later", "starting deadline", "gate"],
)
async def test_what_the_worker_could_not_start_at_once_goes_the_usual_way(
    store: SqliteStore, taken: Taken, run: NewRun
) -> None:
    taken.stand()
    await store.submit([run])
    assert not taken
    assert (await store.get_run(run.namespace, run.id)).state == "pending"


async def test_nobody_overtakes_a_run_that_waits(store: SqliteStore, taken: Taken) -> None:
    waiting = [a_run(), a_run()]
    await store.submit(waiting)
    taken.stand()
    late = a_run(priority=1)
    await store.submit([late])
    assert not taken
    assert taken.hints, "the worker is woken to poll"
    claims = await store.claim(WORKER, 10, MINUTE, "strict")
    assert [claim.run_id for claim in claims] == [late.id, *(run.id for run in waiting)]


async def test_a_run_for_later_is_in_nobodys_way(store: SqliteStore, taken: Taken) -> None:
    await store.submit([a_run(due_at=CLOCK.now() + HOUR), a_run(task="unknown")])
    taken.stand()
    run = a_run()
    await store.submit([run])
    assert [claim.run_id for claim in taken] == [run.id]


async def test_no_more_is_given_than_the_worker_has_room_for(store: SqliteStore, taken: Taken) -> None:
    runs = [a_run() for _ in range(3)]
    await store.submit(runs[:1])  # In the inbox.
    await store.submit(runs[1:2])
    taken.stand(limit=2)
    await store.submit(runs[2:])
    assert not taken


async def test_a_run_that_is_known_already_is_not_given_again(store: SqliteStore, taken: Taken) -> None:
    run = a_run()
    taken.stand()
    await store.submit([run])
    taken.stand()
    await store.submit([run])
    assert [claim.run_id for claim in taken] == [run.id]


async def test_a_worker_that_cannot_take_it_does_not_spoil_the_submission(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(claims: Sequence[Claim], sent_at: float) -> None:
        raise RuntimeError("no loop")

    store.leave_claim(StandingClaim(WORKER, 1, MINUTE, "strict", fail))
    run = a_run()
    assert await store.submit([run]) == [run.id]
    assert (await store.get_run("default", run.id)).state == "running", "until its claim runs out"
    assert "could not take them" in caplog.text


async def test_while_another_process_writes_it_goes_the_usual_way(
    store: SqliteStore, taken: Taken, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    taken.stand()
    run = a_run()
    submitting = asyncio.create_task(store.submit([run]))
    await asyncio.sleep(0.05)
    other.execute("ROLLBACK")
    other.close()
    assert await submitting == [run.id]
    assert not taken
