"""A run that is submitted alone is accepted in the inbox; only the time that it takes differs."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring.clock import SystemClock
from mainspring.core.instants import MINUTE
from mainspring.core.model import NewRun, Report, Worker
from mainspring.errors import MainspringError
from mainspring.process.ids import IdSource
from mainspring.store import RunFilter
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.stores.sqlite.submissions.inbox import LIMIT

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
WORKER = Worker(id="w", tasks=("t",))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "one.db"), CLOCK)
    yield store
    await store.close()


def a_run(**changes: Any) -> NewRun:
    return NewRun(id=IDS.new(), task="t", due_at=0, created_at=CLOCK.now(), **changes)


def in_inbox(folder: Path) -> int:
    """As another program sees the file."""
    connection = sqlite3.connect(folder / "one.db")
    (count,) = connection.execute("SELECT count(*) FROM inbox").fetchone()
    connection.close()
    return int(count)


async def test_a_lone_run_waits_in_the_inbox_until_somebody_looks(store: SqliteStore, tmp_path: Path) -> None:
    run = a_run()
    await store.submit([run])
    assert in_inbox(tmp_path) == 1
    assert (await store.get_run("default", run.id)).state == "pending"
    assert in_inbox(tmp_path) == 0


async def test_another_process_finds_it_too(store: SqliteStore, tmp_path: Path) -> None:
    listed, claimed = a_run(), a_run()
    other = SqliteStore(str(tmp_path / "one.db"), CLOCK)
    await store.submit([listed])
    assert [run.id for run in await other.list_runs(RunFilter())] == [listed.id]
    await store.submit([claimed])
    claims = await other.claim(WORKER, 10, MINUTE, "strict")
    assert [claim.run_id for claim in claims] == [listed.id, claimed.id]
    await other.close()


async def test_the_order_of_acceptance_is_kept_whichever_way_runs_come(store: SqliteStore) -> None:
    runs = [a_run() for _ in range(6)]
    for group in (runs[:1], runs[1:2], runs[2:4], runs[4:5], runs[5:]):
        await store.submit(group)
    claims = await store.claim(WORKER, 10, MINUTE, "strict")
    assert [claim.run_id for claim in claims] == [run.id for run in runs]


async def test_the_best_of_what_was_accepted_goes_first(store: SqliteStore) -> None:
    runs = [a_run(priority=priority) for priority in (7, 2, 5)]
    for run in runs:
        await store.submit([run])
    claims = await store.claim(WORKER, 10, MINUTE, "strict")
    assert [claim.priority for claim in claims] == [2, 5, 7]
    assert {(claim.token, claim.attempt) for claim in claims} == {(1, 0)}


async def test_no_more_is_claimed_than_asked_for_and_the_best_of_all(store: SqliteStore) -> None:
    runs = [a_run(priority=priority) for priority in (7, 2, 5)]
    for run in runs:
        await store.submit([run])
    assert [claim.priority for claim in await store.claim(WORKER, 2, MINUTE, "strict")] == [2, 5]
    await store.submit([a_run(priority=9)])
    assert [claim.priority for claim in await store.claim(WORKER, 10, MINUTE, "strict")] == [7, 9]


@pytest.mark.parametrize("other", [{"task": "unknown"}, {"queue": "mail"}, {"region": "eu"}, {"namespace": "n"}])
async def test_what_is_not_for_this_worker_stays_for_others(store: SqliteStore, other: dict[str, str]) -> None:
    mine, theirs = a_run(), msgspec.structs.replace(a_run(), **other)
    await store.submit([theirs])
    await store.submit([mine])
    assert [claim.run_id for claim in await store.claim(WORKER, 10, MINUTE, "strict")] == [mine.id]
    assert (await store.get_run(theirs.namespace, theirs.id)).state == "pending"


async def test_what_is_not_due_yet_waits(store: SqliteStore) -> None:
    later = msgspec.structs.replace(a_run(), due_at=CLOCK.now() + MINUTE)
    await store.submit([later])
    assert await store.claim(WORKER, 10, MINUTE, "strict") == []
    assert await store.next_due(WORKER) == later.due_at


async def test_a_submission_repeated_because_its_answer_was_lost_changes_nothing(store: SqliteStore) -> None:
    run = a_run()
    for _ in range(3):
        assert await store.submit([run]) == [run.id]
    (claim,) = await store.claim(WORKER, 10, MINUTE, "strict")
    await store.submit([run])
    assert await store.claim(WORKER, 10, MINUTE, "strict") == []
    await store.report([Report(claim.run_id, claim.token, "succeeded", "succeeded", started_at=1, finished_at=2)])
    await store.submit([run])
    assert (await store.get_run("default", run.id)).state == "succeeded"
    assert await store.claim(WORKER, 10, MINUTE, "strict") == []
    await store.number_events(100)
    reported = [event for batch in await store.events_since(0, 100) for event in batch.events]
    assert [event.kind for event in reported].count("run.submitted") == 1


async def test_the_inbox_does_not_grow_where_nobody_looks(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "one.db"), CLOCK, inline=True)  # Inline, no submission meets another.
    for _ in range(LIMIT + 20):
        await store.submit([a_run()])
    assert in_inbox(tmp_path) < LIMIT
    assert (await store.count_runs("default")) == {"pending": LIMIT + 20}
    await store.close()


async def test_what_the_store_would_refuse_is_refused_at_submission(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(MainspringError):
        await store.submit([a_run(priority=11)])
    assert in_inbox(tmp_path) == 0
    await store.submit([a_run()])
    assert len(await store.claim(WORKER, 10, MINUTE, "strict")) == 1


KILLED = """
import asyncio, os, signal, sys
from mainspring.clock import SystemClock
from mainspring.core.model import NewRun
from mainspring.stores.sqlite.store import SqliteStore

async def main():
    clock = SystemClock()
    store = SqliteStore(sys.argv[1], clock)
    await store.submit([NewRun(id="a" * 26, task="t", due_at=0, created_at=clock.now())])
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_what_was_accepted_survives_its_process(tmp_path: Path) -> None:
    path = str(tmp_path / "one.db")
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", KILLED, path], timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL
    assert in_inbox(tmp_path) == 1
    store = SqliteStore(path, CLOCK)
    (claim,) = await store.claim(WORKER, 10, MINUTE, "strict")
    assert claim.run_id == "a" * 26
    await store.close()


async def test_callers_that_meet_are_taken_in_together(store: SqliteStore) -> None:
    """Each insert opens the table of runs with all of its indexes, so there is one for many runs."""
    executed: list[str] = []
    store._db._writer.set_trace_callback(executed.append)
    runs = [a_run() for _ in range(2 * LIMIT)]
    for start in range(0, len(runs), 64):
        await asyncio.gather(*(store.submit([run]) for run in runs[start : start + 64]))
    assert await store.count_runs("default") == {"pending": len(runs)}
    assert sum("INSERT INTO runs" in query for query in executed) <= 4
    store._db._writer.set_trace_callback(None)


async def test_the_inbox_does_not_grow_where_callers_meet(store: SqliteStore, tmp_path: Path) -> None:
    for _ in range(8):
        await asyncio.gather(*(store.submit([a_run()]) for _ in range(100)))
        assert in_inbox(tmp_path) < LIMIT + 100
    assert await store.count_runs("default") == {"pending": 800}


async def test_one_that_is_refused_leaves_those_that_it_meets_alone(store: SqliteStore) -> None:
    runs = [a_run(priority=11 if number == 50 else 5) for number in range(100)]
    answers = await asyncio.gather(*(store.submit([run]) for run in runs), return_exceptions=True)
    assert [number for number, answer in enumerate(answers) if isinstance(answer, MainspringError)] == [50]
    assert await store.count_runs("default") == {"pending": 99}


def tags_of(folder: Path) -> set[tuple[str, str]]:
    connection = sqlite3.connect(folder / "one.db")
    tags = set(connection.execute("SELECT id, tag FROM run_tags"))
    connection.close()
    return tags


TAGGED = '{"tags":["a","b"]}'


async def test_runs_are_found_by_their_tags_from_acceptance_to_their_end(store: SqliteStore, tmp_path: Path) -> None:
    """Whichever way they come, and whichever way they go."""
    claimed_at_once, alone, first, second = (a_run(options=TAGGED) for _ in range(4))
    many = [a_run(options=TAGGED) for _ in range(30)]
    waiting = [a_run(options=TAGGED, after=(second.id,)), a_run(options=TAGGED, idempotency_key="k")]
    await store.submit([claimed_at_once])
    claims = await store.claim(WORKER, 10, MINUTE, "strict")
    for runs in ([alone], [first, second], [*many, a_run()], *([run] for run in waiting), [a_run()]):
        await store.submit(runs)
    runs = [claimed_at_once, alone, first, second, *many, *waiting]
    assert {run.id for run in await store.list_runs(RunFilter(tag="b", limit=100))} == {run.id for run in runs}
    assert tags_of(tmp_path) == {(run.id, tag) for run in runs for tag in "ab"}
    await store.request_cancel("default", second.id, "")  # The run that waits for it ends, too.
    claims += await store.claim(WORKER, 100, MINUTE, "strict")
    assert tags_of(tmp_path) == {(run.id, tag) for run in runs if run not in (second, waiting[0]) for tag in "ab"}
    await store.report([Report(claim.run_id, claim.token, "succeeded", "succeeded") for claim in claims])
    assert tags_of(tmp_path) == set()


async def test_no_trigger_runs_for_each_run(store: SqliteStore) -> None:
    """It would cost a submission a fifth, whether it has tags or not."""
    rows = store._db._writer.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'runs'")
    assert rows.fetchall() == []
