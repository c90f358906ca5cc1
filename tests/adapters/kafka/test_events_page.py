"""docs/events.md holds the schema of events as the code has it, and what the program emits keeps to it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import jsonschema
import msgspec

from mainspring import Mainspring, Retry, every
from mainspring.core.model import Event
from mainspring.sinks.kafka import EventRecord, record_of
from mainspring.wiring import build_runtime

PAGE = Path(__file__).parents[3] / "docs" / "events.md"


def test_the_page_of_events_has_the_schema_of_the_code() -> None:
    schema = json.dumps(msgspec.json.schema(EventRecord), indent=2)
    assert f"```json\n{schema}\n```" in PAGE.read_text(), "write this schema to docs/events.md:\n" + schema


async def emitted(folder: Path) -> list[Event]:
    """The events of a program that runs jobs, runs that wait for others, failures and cancellations."""
    app = Mainspring(f"sqlite:///{folder / 'a.db'}")

    @app.task(retry=Retry(0))
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError("on purpose")

    @app.job(every("100ms"))
    async def tick() -> None: ...

    runtime = build_runtime(app, app.settings, schedule=True, work=True)
    events: list[Event] = []
    async with app:
        store = await app.open()
        await app.sync_jobs()
        await work.options(after=[await work.submit()]).submit()  # Before the worker starts: the second has to wait.
        await runtime.start()
        await work.submit(fails=True)
        await app.runs.cancel((await work.options(delay="1h").submit()).id)
        wanted = {"dependency.ready", "run.failed", "run.cancelled", "worker.started", "leader.elected", "job.created"}
        async with asyncio.timeout(60):
            while not wanted <= {event.kind for event in events}:
                events = [event for batch in await store.events_since(0, 100_000) for event in batch.events]
                await asyncio.sleep(0.05)
        await runtime.stop(0.0)
    return events


async def test_what_the_program_emits_keeps_to_the_published_schema(tmp_path: Path) -> None:
    published = json.loads(PAGE.read_text().split("```json\n")[1].split("\n```")[0])
    known = set(published["$defs"]["EventRecord"]["properties"])
    for position, event in enumerate(await emitted(tmp_path), 1):
        record = json.loads(msgspec.json.encode(record_of(position, event)))
        jsonschema.validate(record, published)
        assert record.keys() <= known, event.kind
