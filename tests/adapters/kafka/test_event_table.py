"""The example of a consumer: its table is right after a kill, and after events that come twice."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from test_kafka_sink import sink_of

from broker_servers import find_server
from mainspring.core.model import Event, EventBatch
from mainspring.sinks.kafka import KafkaSink

pytestmark = pytest.mark.brokers

EXAMPLE = Path(__file__).parents[3] / "examples" / "event_table.py"


@pytest.fixture
async def sink() -> AsyncIterator[KafkaSink]:
    async for sink in sink_of(f"{secrets.token_hex(4)}-"):
        yield sink


@contextmanager
def consumer(sink: KafkaSink, table: Path) -> Iterator[None]:
    """The example as a process, which is killed in the end."""
    servers = find_server("KAFKA").removeprefix("kafka://")
    with subprocess.Popen([sys.executable, str(EXAMPLE), servers, str(table), sink._topics["job_events"]]) as process:
        try:
            yield
        finally:
            process.kill()


def rows(table: Path) -> dict[str, tuple[str, int]]:
    """State and id of the last event, by run."""
    with closing(sqlite3.connect(table)) as database:
        try:
            found = database.execute("SELECT run_id, state, event_id FROM runs")
            return {run_id: (state, event_id) for run_id, state, event_id in found}
        except sqlite3.OperationalError:
            return {}  # The consumer has not made its table yet.


async def until(table: Path, expected: dict[str, tuple[str, int]]) -> None:
    async with asyncio.timeout(60):
        while rows(table) != expected:
            await asyncio.sleep(0.05)


async def test_the_table_is_right_after_a_kill_and_after_events_that_come_twice(
    sink: KafkaSink, tmp_path: Path
) -> None:
    table = tmp_path / "runs.db"
    begun = EventBatch(1, [Event("run.submitted", 1, run_id=f"r{n}", job_id=f"j{n % 3}", job="a") for n in range(30)])
    ended = EventBatch(31, [Event("run.succeeded", 2, run_id=f"r{n}", job_id=f"j{n % 3}", job="a") for n in range(30)])
    await sink.deliver([begun])
    with consumer(sink, table):
        await until(table, {f"r{n}": ("submitted", n + 1) for n in range(30)})
    await sink.deliver([ended])
    await sink.deliver([begun])  # As a program does that died before it noted how far it was.
    after = {f"r{n}": ("succeeded", n + 31) for n in range(30)}
    with consumer(sink, table):
        await until(table, after)
        await sink.deliver([EventBatch(61, [Event("run.failed", 3, run_id="last", job_id="j0")])])
        await until(table, after | {"last": ("failed", 61)})
