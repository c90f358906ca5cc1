"""Claims are read many at a time, as one text; and a text has a greatest length."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from mainspring.clock import SystemClock
from mainspring.core.instants import MINUTE
from mainspring.core.model import Attempt, NewRun, Report, Worker
from mainspring.process.ids import IdSource
from mainspring.stores.sqlite.store import SqliteStore

CLOCK = SystemClock()
WORKER = Worker(id="w", tasks=("t",))


def new_runs(ids: list[str], args: str) -> list[NewRun]:
    now = CLOCK.now()
    return [NewRun(id=run_id, task="t", due_at=0, created_at=now, args=args) for run_id in ids]


async def test_runs_whose_arguments_do_not_fit_into_one_text_are_claimed_all_the_same(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "large.db"), CLOCK, inline=True)
    store._db._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 20_000)
    ids, args = IdSource(CLOCK).batch(20), '{"text": "' + "x" * 3_000 + '"}'
    for run in new_runs(ids, args):
        await store.submit([run])
    claims = await store.claim(WORKER, 100, MINUTE, "strict")
    assert [claim.run_id for claim in claims] == ids
    assert {claim.args for claim in claims} == {args}
    await store.close()


async def test_arguments_of_any_characters_come_back_as_they_were(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "odd.db"), CLOCK, inline=True)
    args = '{"text": "quoted \\" and \\\\ and \\n and \\u0000, ü \N{GRINNING FACE}", "n": [1.5e300, null]}'
    (run,) = new_runs(IdSource(CLOCK).batch(1), args)
    await store.submit([run])
    (claim,) = await store.claim(WORKER, 1, MINUTE, "strict")
    assert claim.args == args
    await store.close()


async def test_an_attempt_that_succeeded_is_listed_after_those_that_did_not(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "attempts.db"), CLOCK, inline=True)
    (run,) = new_runs(IdSource(CLOCK).batch(1), "{}")
    await store.submit([run])
    (first,) = await store.claim(WORKER, 1, MINUTE, "strict")
    await store.report([Report(first.run_id, first.token, "failed", "pending", "no luck", 0, error="{}")])
    (second,) = await store.claim(WORKER, 1, MINUTE, "strict")
    report = Report(second.run_id, second.token, "succeeded", "succeeded", result="1", started_at=5, finished_at=9)
    assert await store.report([report]) == ["accepted"]
    failed, succeeded = await store.list_attempts(run.id)
    assert (failed.attempt, failed.outcome, failed.reason) == (1, "failed", "no luck")
    assert succeeded == Attempt(run.id, 2, second.token, "w", "succeeded", 5, 9)
    assert await store.report([report]) == ["repeated"]
    await store.close()


@pytest.mark.parametrize("count", [1, 5, 30])
async def test_runs_past_their_starting_deadline_are_not_claimed_however_many_came_at_once(
    tmp_path: Path, count: int
) -> None:
    store = SqliteStore(str(tmp_path / "late.db"), CLOCK, inline=True)
    runs = new_runs(IdSource(CLOCK).batch(count), "{}")
    await store.submit([msgspec.structs.replace(run, expires_at=1) for run in runs])
    assert await store.claim(WORKER, 100, MINUTE, "strict") == []
    assert await store.count_runs("default") == {"skipped": count}
    await store.close()


async def test_dependants_that_end_with_one_run_end_together(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "fan.db"), CLOCK, inline=True)
    head, *rest = new_runs(IdSource(CLOCK).batch(1_001), "{}")
    await store.submit([head, *(msgspec.structs.replace(run, after=(head.id,)) for run in rest)])
    deletions: set[str] = set()
    store._db._writer.set_trace_callback(lambda text: deletions.add(text) if "DELETE FROM runs" in text else None)
    await store.request_cancel("default", head.id, "not needed")
    assert len(deletions) <= 2, "every other write waits for it"
    assert (await store.count_runs("default"))["skipped"] == 1_000
    await store.close()
