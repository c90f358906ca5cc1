"""Two versions of the program on one database: the newer one widens the schema, the older one goes on beside it, until
a later version needs what the older one does not know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pytest

from mainspring.clock import SystemClock
from mainspring.core.ids import encode_time
from mainspring.core.instants import SECOND
from mainspring.core.model import Job, NewRun, Report, Worker
from mainspring.core.planning import plans as planning
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.errors import StoreMismatch
from mainspring.process.ids import IdSource
from mainspring.stores.postgres.server.connection import look_at
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.sql import Migration, load_migrations

CLOCK = SystemClock()
KNOWN = load_migrations("postgres")
NEXT = KNOWN[-1].version + 1
WORKER = Worker(id="worker", tasks=("noop",), concurrency=100)
PREPARED = 6
"""A statement that was executed so often has a plan that is kept."""
WIDER = """
ALTER TABLE mainspring.runs ADD COLUMN colour text NOT NULL DEFAULT 'none';
ALTER TABLE mainspring.history ADD COLUMN colour text NOT NULL DEFAULT 'none';
ALTER TABLE mainspring.jobs ADD COLUMN colour text;
ALTER TABLE mainspring.firings ADD COLUMN colour text;
ALTER TABLE mainspring.outbox ADD COLUMN colour text;
CREATE INDEX runs_by_colour ON mainspring.runs (colour);
CREATE TABLE mainspring.colours (name text PRIMARY KEY);
"""

_ids = IdSource(CLOCK)


@asynccontextmanager
async def program(
    url: str, monkeypatch: pytest.MonkeyPatch, known: Sequence[Migration] = KNOWN
) -> AsyncIterator[PostgresStore]:
    """A program that knows these migrations."""
    with monkeypatch.context() as patch:
        patch.setattr("mainspring.stores.postgres.server.connection.load_migrations", lambda _: known)
        store = await PostgresStore.open(url, CLOCK)
    yield store
    await store.close()


def widened(oldest: int = KNOWN[-1].version) -> tuple[Migration, ...]:
    """What the next version knows."""
    return (*KNOWN, Migration(NEXT, "wider", oldest, WIDER))


async def pass_through(one: PostgresStore, other: PostgresStore, name: str) -> None:
    """A job and submissions from one to the other and back: each does every part of a run's life."""
    now = one.now()
    job = await one.create_job(Job(encode_time(now) + _ids.batch(1)[0][10:], name, "noop", EveryTrigger(SECOND)))
    first = planning.plan(job, job.next_fire_at or 0, {})
    (fired,) = await other.fire([planning.written_at(first, now)], None)
    assert fired.applied
    assert fired.job is not None
    (again,) = await one.fire([first], None)
    assert not again.applied
    await one.pause_jobs("default", [name], paused=True, reason="seen enough")
    runs = [NewRun(run_id, "noop", now, now) for run_id in _ids.batch(30)]
    await one.submit(runs)
    await other.submit(runs[:1])
    claims = await other.claim(WORKER, 100, 10 * SECOND, "strict")
    assert {claim.run_id for claim in claims} == {run.id for run in runs}
    await one.renew(WORKER, [(claim.run_id, claim.token) for claim in claims], 10 * SECOND)
    reports = [
        Report(claim.run_id, claim.token, "succeeded", "succeeded", started_at=now, finished_at=now) for claim in claims
    ]
    assert await one.report(reports) == ["accepted"] * 30
    assert await other.report(reports) == ["repeated"] * 30
    assert {run.state for run in await one.finished([run.id for run in runs])} == {"succeeded"}
    await one.number_events(100)
    assert await other.events_since(await other.next_position() - 1, 10)


async def test_an_older_process_goes_on_beside_the_new_version(
    new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program(new_database, monkeypatch) as old:
        for number in range(PREPARED):
            await pass_through(old, old, f"before-{number}")
        async with program(new_database, monkeypatch, widened()) as new:
            for number in range(2):
                await pass_through(old, new, f"old-to-new-{number}")
                await pass_through(new, old, f"new-to-old-{number}")
    connection = await asyncpg.connect(new_database)
    assert await connection.fetchval("SELECT max(version) FROM mainspring.migrations") == NEXT
    assert {row[0] for row in await connection.fetch("SELECT colour FROM mainspring.history")} == {"none"}
    await connection.close()


async def test_an_old_program_may_also_start_on_the_wider_schema(
    new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        program(new_database, monkeypatch, widened()) as new,
        program(new_database, monkeypatch) as old,
    ):
        await pass_through(old, new, "one")
        await pass_through(new, old, "other")
    status = (await look_at(new_database)).schema
    assert (status.version, status.latest, status.refusal) == (NEXT, NEXT - 1, "")


async def test_once_the_schema_needs_the_new_version_an_old_program_is_refused(
    new_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with program(new_database, monkeypatch, widened(oldest=NEXT)) as new:
        with pytest.raises(StoreMismatch, match=f"at least version {NEXT}"):
            async with program(new_database, monkeypatch):
                pass
        await pass_through(new, new, "job")
