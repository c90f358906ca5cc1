"""The journeys of an operations guide, literally and over HTTP: a job at midnight, a crash and its retry, dependencies.

Server, scheduler, worker and store are real. Only the clock is set: to just before midnight, then two minutes on.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from mainspring import Mainspring
from mainspring.api.server import Server
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND, Instant, from_datetime

EVE = from_datetime(datetime(2024, 12, 19, 23, 30, tzinfo=UTC))
NEARLY = from_datetime(datetime(2024, 12, 19, 23, 59, 58, tzinfo=UTC))
REPORT = """
import pathlib, sys
crashed = pathlib.Path(__file__).with_name("crashed")
if "--crash" in sys.argv and not crashed.exists():
    crashed.touch()
    sys.exit("Worker crashed")
print("the report")
"""


class SetClock(SystemClock):
    """The clock of this machine, set to another time."""

    def __init__(self, start: Instant) -> None:
        self.ahead = start - super().now()

    def now(self) -> Instant:
        return super().now() + self.ahead

    def set(self, instant: Instant) -> None:
        """As if it were this instant now."""
        self.ahead += instant - self.now()


@asynccontextmanager
async def served(folder: Path, clock: SetClock) -> AsyncIterator[httpx.AsyncClient]:
    """`mainspring up` on a set clock: API, scheduler and worker."""
    app = Mainspring(f"sqlite:///{folder}/journeys.db", clock=clock, port=0, isolation="none")

    @app.task
    async def load() -> str:
        return "loaded"

    async with app, app.running():
        server = Server(app)
        await server.start()
        try:
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
                yield client
        finally:
            await server.stop()


async def until(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Look until there is an answer."""
    async with asyncio.timeout(60):
        while not (found := await look()):
            await asyncio.sleep(0.05)
    assert found, what
    return found


async def job(client: httpx.AsyncClient, name: str, status: str) -> dict[str, Any]:
    """The job, once it has this status."""

    async def look() -> dict[str, Any] | None:
        found: dict[str, Any] = (await client.get(f"/v1/jobs/{name}")).json()
        return found if found["status"] == status else None

    answer: dict[str, Any] = await until(look, f"{name} is {status}")
    return answer


async def create(client: httpx.AsyncClient, **body: object) -> dict[str, Any]:
    answer = await client.post("/v1/jobs", json=body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def run_of(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = (await client.get("/v1/runs", params={"job": name})).json()["items"]
    return found[0]


async def test_the_journeys_of_the_guide(tmp_path: Path) -> None:
    (tmp_path / "generate_report.py").write_text(REPORT)
    python, clock = sys.executable, SetClock(EVE)
    command = f"{python} {tmp_path}/generate_report.py"
    async with served(tmp_path, clock) as client:
        await scheduled_at_midnight(client, clock, command)
        await crashes_and_is_retried(client, clock, f"{command} --crash")
        await waits_for_others(client)


async def scheduled_at_midnight(client: httpx.AsyncClient, clock: SetClock, command: str) -> None:
    """Journey 1: submitted for midnight, fired at midnight, executed, completed; next due a day later."""
    made = await create(client, name="daily-report", schedule="0 0 * * *", command=command)
    assert (made["next_run"], made["status"]) == ("2024-12-20T00:00:00Z", "scheduled")
    clock.set(NEARLY)
    done = await job(client, "daily-report", "completed")
    assert (done["next_run"], done["retry_count"]) == ("2024-12-21T00:00:00Z", 0)
    run = await run_of(client, "daily-report")
    assert (run["fire_at"], run["state"], run["attempt"]) == ("2024-12-20T00:00:00Z", "succeeded", 1)
    written = (await client.get(f"/v1/runs/{run['run_id']}/logs")).json()["items"]
    assert [line["text"] for line in written] == ["the report"]


async def crashes_and_is_retried(client: httpx.AsyncClient, clock: SetClock, command: str) -> None:
    """Journey 2: the execution fails, is retried 2^1 minutes later, and succeeds."""
    await create(client, name="crashing", manual=True, command=command, retry={"policy": "doubling-2m"})
    assert (await client.post("/v1/jobs/crashing/trigger")).status_code == 201
    failed = await job(client, "crashing", "retrying")
    assert failed["retry_count"] == 1
    (attempt,) = (await client.get(f"/v1/runs/{(await run_of(client, 'crashing'))['run_id']}/attempts")).json()["items"]
    waits = read(await run_of(client, "crashing"), "due_at") - read(attempt, "finished_at")
    assert 120 * SECOND * 0.8 <= waits <= 120 * SECOND * 1.25  # Retries are spread, so that they do not come together.
    clock.set(read(await run_of(client, "crashing"), "due_at"))
    done = await job(client, "crashing", "completed")
    assert done["retry_count"] == 0
    run = await run_of(client, "crashing")
    assert (run["state"], run["attempt"]) == ("succeeded", 2)


async def waits_for_others(client: httpx.AsyncClient) -> None:
    """A job with dependencies waits for both, and then runs."""
    for name in ("B", "C"):
        await create(client, name=name, manual=True, task="load")
    await create(client, name="A", dependencies=["B", "C"], task="load")
    for name in ("B", "C"):
        assert (await client.get("/v1/runs", params={"job": "A"})).json()["items"] == []
        assert (await client.post(f"/v1/jobs/{name}/trigger")).status_code == 201
        await job(client, name, "completed")
    await job(client, "A", "completed")
    upstream = [read(await run_of(client, name), "finished_at") for name in ("B", "C")]
    assert read(await run_of(client, "A"), "started_at") >= max(upstream)


def read(record: dict[str, Any], name: str) -> Instant:
    return from_datetime(datetime.fromisoformat(record[name]))
