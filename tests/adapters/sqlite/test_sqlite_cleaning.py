"""The cleaner's transactions are short: what takes long is done in portions that fit the machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from mainspring.clock import SystemClock
from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY, HOUR
from mainspring.stores.sqlite.ends.recovery import AIM_S, LEAST, SUMMED_UP_AT_ONCE, Portion
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.store import SqliteStore

T = TypeVar("T")
ROWS = 8_000


class Paced(SystemClock):
    """A machine on which each look at the clock finds that this much time has passed."""

    step_s = 0.0
    passed_s = 0.0

    def monotonic(self) -> float:
        self.passed_s += self.step_s
        return self.passed_s


@pytest.fixture
def clock() -> Paced:
    return Paced()


@pytest.fixture
async def store(tmp_path: Path, clock: Paced) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "x.db"), clock)
    await write(store, lambda tx: tx.execute(_fill(clock.now())))
    yield store
    await store.close()


def _fill(now: int) -> str:
    return f"""
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})
INSERT INTO history (id, finished_at, namespace, queue, region, task, args, options, state, reason, priority, due_at,
                     idx, token, attempt, losses, cancel_reason, progress_note, created_at)
SELECT '{encode_time(now)}' || printf('%016d', n), {now - HOUR}, 'default', 'default', 'default', 'task', '{{}}',
       '{{"tags":["a"]}}', 'succeeded', '', 5, {now}, 0, 1, 1, 0, '', '', {now}
FROM numbers"""


async def write(store: SqliteStore, work: Callable[[Transaction], T]) -> T:
    return await store._db.write(work)


async def summed_up(store: SqliteStore) -> int:
    return await write(store, lambda tx: int(tx.execute("SELECT seq FROM summed_up").fetchone()[0]))


def portions_of(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the transactions of the cleaner take on from now on."""
    sizes: list[int] = []
    measure = Portion.measure

    def noted(portion: Portion, rows: int, took_s: float) -> None:
        sizes.append(rows)
        measure(portion, rows, took_s)

    monkeypatch.setattr(Portion, "measure", noted)
    return sizes


async def test_slow_portions_shrink_to_the_least_and_all_is_summed_up(
    store: SqliteStore, clock: Paced, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.step_s = 0.3
    sizes = portions_of(store, monkeypatch)
    for _ in range(2):
        await store.clean(DAY, DAY, DAY, 1_000)
    worked = [size for size in sizes if size]
    assert worked[0] == 4 * LEAST
    assert set(worked[1:]) == {LEAST}
    assert sum(worked) == await summed_up(store) == ROWS


async def test_quick_portions_grow_to_the_most(
    store: SqliteStore, clock: Paced, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = portions_of(store, monkeypatch)
    assert await store.clean(DAY, DAY, DAY, 1_000) == 1_000  # There is more to sum up.
    assert await summed_up(store) == SUMMED_UP_AT_ONCE
    assert [size for size in sizes if size][:4] == [200, 400, 800, 1_600]
    assert await store.clean(DAY, DAY, DAY, 1_000) == 1  # The rest: reason to come again soon, not at once.
    assert sizes[-1] == ROWS - SUMMED_UP_AT_ONCE


async def test_runs_are_forgotten_in_portions_up_to_the_limit(
    store: SqliteStore, clock: Paced, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.step_s = 0.3
    sizes = portions_of(store, monkeypatch)
    assert await store.clean(0, DAY, DAY, 1_000) == 1_000
    assert sizes[: 1 + (1_000 - 4 * LEAST) // LEAST] == [4 * LEAST, *[LEAST] * ((1_000 - 4 * LEAST) // LEAST)]
    left = await write(store, lambda tx: tx.execute("SELECT count(*) FROM history").fetchone()[0])
    assert left == ROWS - 1_000


def test_a_portion_is_what_would_have_been_in_time() -> None:
    portion = Portion(5_000)
    portion.rows = 1_000
    portion.measure(1_000, 4 * AIM_S)
    assert portion.rows == 250
    portion.measure(250, 0.8 * AIM_S)
    assert portion.rows == 312
    portion.measure(10, 0.0)  # There was no more: too few to learn from.
    assert portion.rows == 312
    portion.measure(312, 100.0)
    assert portion.rows == LEAST
