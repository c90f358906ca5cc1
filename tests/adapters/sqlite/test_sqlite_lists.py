"""Lists and counts of finished runs are answered by an index, whatever they ask for; and no look at history, however
long it takes, delays the loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.clock import SystemClock
from mainspring.core.answers import DELAYS
from mainspring.core.ids import TAIL, encode_time
from mainspring.core.instants import DAY, MINUTE
from mainspring.core.model import NewRun, Worker
from mainspring.errors import StoreUnavailable
from mainspring.operations.runs import MOST_COUNTED
from mainspring.process.ids import IdSource
from mainspring.store import RunFilter
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.recovery import SUMMED_UP_AT_ONCE
from mainspring.stores.sqlite.file import database
from mainspring.stores.sqlite.file.connection import connect, prepare
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.history.runs import _count_matching, _list_runs
from mainspring.stores.sqlite.store import SqliteStore

CLOCK = SystemClock()
NOW = CLOCK.now()
ROWS = 60_000
STEPS = 60_000
"""Of SQLite's machine: some 5 ms. To look at each of the rows takes twenty times as many."""

_FILL = f"""
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})
INSERT INTO history (id, finished_at, namespace, queue, region, task, args, options, state, reason, priority, due_at,
                     started_at, idx, token, attempt, losses, cancel_reason, progress_note, job_id, job, created_at)
SELECT '{encode_time(NOW - DAY)}' || printf('%010d', n * 7919 % 1000003) || printf('%06d', n),
       CASE WHEN n % 10 = 9 THEN {NOW + MINUTE} ELSE {NOW} END, 'default',
       'default', CASE WHEN n % 5 = 3 THEN 'north' ELSE 'default' END, 'task-' || (n % 20), '{{"video":"v1"}}',
       CASE WHEN n % 3 = 0 THEN '{{"tags":["popular"]}}' WHEN n = 1 THEN '{{"tags":["rare"],"submitted_by":"ann"}}'
            WHEN n % 3 = 1 THEN '{{"submitted_by":"busy"}}' ELSE '{{}}' END,
       CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END, '', 5,
       CASE WHEN n % 10 = 7 THEN {NOW - MINUTE} ELSE {NOW} END, {NOW}, 0, 1, 1, 0, '', '',
       CASE WHEN n % 2 = 0 THEN 'job-' || (n % 50) END, CASE WHEN n % 2 = 0 THEN 'job-' || (n % 50) END, {NOW}
FROM numbers"""

FILTERS = {
    "all": RunFilter(),
    "since": RunFilter(since=encode_time(NOW)),
    "another namespace": RunFilter("nobody"),
    "a state": RunFilter(states=("failed",)),
    "a state that no run has": RunFilter(states=("cancelled", "skipped")),
    "a task": RunFilter(task="task-3"),
    "a task that is unknown": RunFilter(task="missing"),
    "a task in a state": RunFilter(task="task-0", states=("failed",)),
    "a task never in a state": RunFilter(task="task-3", states=("failed",)),
    "a job": RunFilter(job="job-4"),
    "a job that is unknown": RunFilter(job="missing"),
    "a job never in a state": RunFilter(job="job-4", states=("failed", "skipped")),
    "a queue": RunFilter(queue="default"),
    "a queue that is unknown": RunFilter(queue="missing"),
    "a tag": RunFilter(tag="popular"),
    "a rare tag": RunFilter(tag="rare"),
    "a tag that is unknown": RunFilter(tag="missing"),
    "a tag and a state": RunFilter(tag="popular", states=("failed",)),
    "a tag never in a state": RunFilter(tag="popular", states=("cancelled",)),
    "a worker": RunFilter(worker="missing"),
    "a key": RunFilter(key="missing"),
    "late ones": RunFilter(late="1m"),
    "long ones": RunFilter(took="1h"),
    "late ones that took long": RunFilter(late="1m", took="1m"),
    "late ones that took longer": RunFilter(late="1m", took="1h"),
    "a region": RunFilter(region="north"),
    "a region that is unknown": RunFilter(region="missing"),
    "a region and a task": RunFilter(region="north", task="task-3"),
    "a region where a task never ran": RunFilter(region="north", task="task-4"),
    "a region never in a state": RunFilter(region="north", states=("failed",)),
    "a submitter": RunFilter(submitted_by="busy"),
    "a submitter that is unknown": RunFilter(submitted_by="missing"),
    "a submitter in a state": RunFilter(submitted_by="busy", states=("failed",)),
    "a submitter never in a state": RunFilter(submitted_by="busy", states=("cancelled", "skipped")),
    "a submitter of one run": RunFilter(submitted_by="ann"),
}

COUNTED = {
    "all": RunFilter(limit=MOST_COUNTED),
    "a queue": RunFilter(queue="default", limit=MOST_COUNTED),
    "a state": RunFilter(states=("succeeded",), limit=MOST_COUNTED),
    "a tag": RunFilter(tag="popular", limit=MOST_COUNTED),
    "a submitter": RunFilter(submitted_by="busy", limit=MOST_COUNTED),
}
COUNTED_STEPS = 25 * MOST_COUNTED
"""Of SQLite's machine. To count each class up to the limit takes twice as many here, more with larger ones."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with a month of history."""
    path = str(tmp_path_factory.mktemp("full") / "x.db")
    connection = connect(path)
    prepare(connection, path, synced=False, now=NOW)
    connection.execute(_FILL)
    connection.close()
    store = SqliteStore(path, CLOCK)
    for _ in range(ROWS // SUMMED_UP_AT_ONCE + 1):
        asyncio.run(store.clean(DAY, DAY, DAY, 1_000))
    asyncio.run(store.close())
    return path


class Counting:
    """A transaction whose steps are counted."""

    def __init__(self, path: str) -> None:
        self.connection = connect(path)
        self.steps = 0
        self.connection.set_progress_handler(self._count, 1)  # With more, the steps to a single row are not seen.
        self.tx = Transaction(self.connection, NOW)

    def _count(self) -> None:
        self.steps += 1


@pytest.fixture
def counting(path: str) -> Iterator[Counting]:
    counting = Counting(path)
    yield counting
    counting.connection.close()


@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS)
def test_a_list_takes_few_steps_and_finds_what_a_look_at_every_row_finds(counting: Counting, where: RunFilter) -> None:
    found = _list_runs(counting.tx, where)
    assert counting.steps < STEPS
    assert [run.id for run in found] == _look_at_every_row(counting, where, "id")


def _look_at_every_row(counting: Counting, where: RunFilter, what: str) -> list[Any]:
    """The newest runs that a filter fits, or how many there are."""
    counting.connection.set_progress_handler(None, 0)
    rows = counting.connection.execute(
        f"""SELECT {what} FROM history
            WHERE namespace = ? AND (? = '' OR instr(?, state) > 0) AND ifnull(job, '') LIKE ? AND task LIKE ?
              AND queue LIKE ? AND options LIKE ? AND ifnull(worker, '') LIKE ? AND id >= ? AND options LIKE ?
              AND ifnull(key, '') LIKE ? AND region LIKE ? AND started_at - due_at >= ?
              AND finished_at - started_at >= ?
            ORDER BY id DESC LIMIT 50""",
        (
            *(where.namespace, ",".join(where.states), ",".join(where.states), where.job or "%", where.task or "%"),
            *(where.queue or "%", f'%"{where.tag}"%' if where.tag else "%", where.worker or "%", where.since or ""),
            f'%"submitted_by":"{where.submitted_by}"%' if where.submitted_by else "%",
            *(where.key or "%", where.region or "%"),
            *(DELAYS[each] if each else 0 for each in (where.late, where.took)),
        ),
    )
    return [row[0] for row in rows]


@pytest.mark.parametrize("where", COUNTED.values(), ids=COUNTED)
def test_a_count_ends_at_its_limit(counting: Counting, where: RunFilter) -> None:
    assert _count_matching(counting.tx, where) == MOST_COUNTED
    assert counting.steps < COUNTED_STEPS


@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS)
def test_a_count_by_each_filter_takes_few_steps_and_is_right(counting: Counting, where: RunFilter) -> None:
    where = replace(where, limit=MOST_COUNTED)
    assert _count_matching(counting.tx, where) == min(_look_at_every_row(counting, where, "count(*)")[0], MOST_COUNTED)
    assert counting.steps < COUNTED_STEPS


def test_a_count_takes_few_steps(counting: Counting) -> None:
    counted = dict(counting.tx.execute(load_queries("sqlite", "runs")["count_states"], ("default", 10)).fetchall())
    assert counted == {"succeeded": ROWS * 99 // 100, "failed": ROWS // 100}
    assert counting.steps < STEPS


def test_the_oldest_run_is_found_by_what_is_shown_of_its_id(counting: Counting) -> None:
    (oldest,) = counting.connection.execute("SELECT id FROM history ORDER BY seq LIMIT 1").fetchone()
    values = {"namespace": "default", "prefix": oldest[-TAIL:], "limit": 2}
    counting.steps = 0
    assert counting.tx.execute(load_queries("sqlite", "runs")["find_tail"], values).fetchall() == [(oldest,)]
    assert counting.steps < STEPS
    values["prefix"] = oldest
    assert counting.tx.execute(load_queries("sqlite", "runs")["find_prefix"], values).fetchall() == [(oldest,)]
    assert counting.steps < STEPS


def test_a_list_of_very_many_classes_takes_few_steps(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.stores.sqlite.history.runs.MANY_CLASSES", 10)
    assert len(_list_runs(counting.tx, RunFilter())) == 50
    assert counting.steps < STEPS


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "x.db"), CLOCK)
    yield store
    await store.close()


def endless(tx: Transaction) -> None:
    tx.execute("WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n")


async def test_a_long_look_at_history_delays_no_loop(store: SqliteStore) -> None:
    looking = asyncio.create_task(store._db.look_back(endless))
    await asyncio.sleep(0)
    began = time.monotonic()
    run = NewRun(id=IdSource(CLOCK).new(), task="t", due_at=0, created_at=CLOCK.now())
    await store.submit([run])
    assert await store.due_jobs(NOW + DAY, 10) == []
    assert await store.next_due(Worker(id="w", tasks=("t",))) is not None
    assert len(await store.claim(Worker(id="w", tasks=("t",)), 1, MINUTE, "strict")) == 1
    assert (await store.get_run("default", run.id)).state == "running"
    assert time.monotonic() - began < database.LOOK_BACK_S
    assert not looking.done()
    with pytest.raises(StoreUnavailable, match="took too long"):
        await looking


async def test_after_a_look_that_was_given_up_the_next_is_answered(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOOK_BACK_S", 0.05)
    with pytest.raises(StoreUnavailable, match="took too long"):
        await store._db.look_back(endless)
    assert await store.list_runs(RunFilter()) == []


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with many runs that wait, and some older ones of another namespace, queue or state."""
    path = str(tmp_path_factory.mktemp("crowd") / "x.db")
    connection = connect(path)
    prepare(connection, path, synced=False, now=NOW)
    connection.execute(f"""
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})
INSERT INTO runs (id, namespace, queue, task, args, options, state, priority, due_at, claimed_until, worker, created_at,
                  job, region)
SELECT '{encode_time(NOW)}' || printf('%016d', n), CASE WHEN n < 100 THEN 'small' ELSE 'default' END,
       CASE WHEN n % 100 = 7 AND n < 1000 THEN 'rare' ELSE 'default' END, 'task-' || (n % 20), '{{}}',
       CASE WHEN n % 3 = 0 THEN '{{"tags":["popular"]}}' WHEN n = 200 THEN '{{"tags":["rare","odd"]}}'
            WHEN n = 1000 THEN '{{"submitted_by":"ann"}}' WHEN n % 3 = 1 THEN '{{"submitted_by":"busy"}}'
            ELSE '{{}}' END,
       CASE WHEN n = 150 THEN 'running' WHEN n IN (50, 160) THEN 'blocked' ELSE 'pending' END, 5, {NOW},
       CASE WHEN n = 150 THEN {NOW} END, CASE WHEN n = 150 THEN 'worker-1' END, {NOW},
       CASE WHEN n = 150 THEN 'odd' WHEN n % 2 = 0 THEN 'job-' || (n % 4) END,
       CASE WHEN n BETWEEN 300 AND 340 THEN 'north' ELSE 'default' END
FROM numbers""")
    connection.execute("INSERT INTO run_tags SELECT namespace, value, runs.id FROM runs, json_each(options, '$.tags')")
    connection.close()
    return path


UNFINISHED = {
    "all": RunFilter(),
    "a small namespace": RunFilter("small"),
    "a task in a small namespace": RunFilter("small", task="task-3"),
    "a task that is unknown in a small namespace": RunFilter("small", task="missing"),
    "no namespace": RunFilter("nobody"),
    "a rare queue": RunFilter(queue="rare"),
    "a queue that is unknown": RunFilter(queue="missing"),
    "running": RunFilter(states=("running",)),
    "running, that is unknown": RunFilter("small", states=("running",)),
    "blocked": RunFilter(states=("blocked",)),
    "blocked or running": RunFilter(states=("blocked", "running", "failed")),
    "a worker": RunFilter(worker="worker-1"),
    "a worker that is unknown": RunFilter(worker="missing"),
    "a worker and a state that excludes it": RunFilter(worker="worker-1", states=("pending",)),
    "a job": RunFilter(job="job-2"),
    "a job of one run": RunFilter(job="odd"),
    "a job that is unknown": RunFilter(job="missing"),
    "a job of another namespace": RunFilter("small", job="odd"),
    "a tag": RunFilter(tag="popular"),
    "a tag of one run": RunFilter(tag="rare"),
    "a tag that is unknown": RunFilter(tag="missing"),
    "a tag of a job": RunFilter(tag="rare", job="job-0"),
    "a tag that is unknown of a job": RunFilter(tag="missing", job="job-0"),
    "a tag of a job that is unknown": RunFilter(tag="popular", job="missing"),
    "a task": RunFilter(task="task-3"),
    "a task that is unknown": RunFilter(task="missing"),
    "a task of a tag": RunFilter(task="task-0", tag="odd"),
    "a task of nobody of a tag": RunFilter(task="missing", tag="popular"),
    "a region": RunFilter(region="north"),
    "a region of nobody": RunFilter(region="missing"),
    "a task of a region": RunFilter(task="task-3", region="north"),
    "a task of a region of nobody": RunFilter(task="task-3", region="missing"),
    "a submitter": RunFilter(submitted_by="busy"),
    "a submitter of one run": RunFilter(submitted_by="ann"),
    "a submitter that is unknown": RunFilter(submitted_by="missing"),
    "a submitter of a running run": RunFilter(submitted_by="busy", states=("running",)),
    "a submitter that is unknown, of a task": RunFilter(submitted_by="missing", task="task-3"),
    "a task that is unknown, of a submitter": RunFilter(submitted_by="busy", task="missing"),
}


def test_a_count_of_many_unfinished_runs_stops_at_a_bound(crowd: str) -> None:
    counting = Counting(crowd)
    counted = dict(counting.tx.execute(load_queries("sqlite", "runs")["count_states"], ("default", 1_000)).fetchall())
    counting.connection.close()
    assert counted == {"pending": 1_000, "running": 1, "blocked": 1}
    assert counting.steps < STEPS


@pytest.mark.parametrize("where", UNFINISHED.values(), ids=UNFINISHED)
def test_a_list_of_few_unfinished_runs_takes_few_steps_among_many(crowd: str, where: RunFilter) -> None:
    counting = Counting(crowd)
    found = _list_runs(counting.tx, where)
    assert counting.steps < STEPS
    rows = counting.connection.execute(
        """SELECT id FROM runs WHERE namespace = ? AND (? = '' OR instr(?, state) > 0) AND task LIKE ? AND queue LIKE ?
           AND ifnull(worker, '') LIKE ? AND ifnull(job, '') LIKE ? AND options LIKE ? AND region LIKE ?
           AND options LIKE ? ORDER BY id DESC LIMIT 50""",
        (
            *(where.namespace, ",".join(where.states), ",".join(where.states), where.task or "%"),
            *(where.queue or "%", where.worker or "%", where.job or "%", f'%"{where.tag}"%' if where.tag else "%"),
            *(where.region or "%", f'%"submitted_by":"{where.submitted_by}"%' if where.submitted_by else "%"),
        ),
    ).fetchall()
    counting.connection.close()
    assert [run.id for run in found] == [row[0] for row in rows]
