"""How long each step of a journey takes, beside a budget of 95 ms in all: `python -m bench.api.journeys [--store URL]`

A client submits over HTTP, a worker takes the run and completes it over HTTP; the server is a process of its own. What
the store alone takes to accept a run is measured by the SDK, on the same store.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx

from bench.api.ours import app_on
from bench.api.serving import HOST, a_store, served
from bench.harness.figures import percentile
from mainspring import Mainspring
from mainspring.api.auth.tokens import issue, load_keys
from mainspring.core.instants import HOUR

TASK = "elsewhere"
STEPS = {
    "API: POST /v1/runs": 50.0,
    "persist and enqueue: the store alone": 20.0,
    "take: PUT /v1/workers/ID/assign": 5.0,
    "completion: PUT /v1/runs/ID/complete": 20.0,
}
"""Each step with its budget in milliseconds. The first contains the second: a journey is the other three."""


def token_for(app: Mainspring) -> str:
    """A token of a client that submits and works."""
    keys = load_keys(app.settings)
    assert keys is not None
    roles = {"default": ["submitter", "worker"]}
    return issue(keys, app.settings, subject="bench", roles=roles, lifetime=HOUR, now=app.clock.now())[0]


def timed(call: Callable[[], httpx.Response], samples: list[float]) -> Any:
    """The answer of a request, and its time among the samples."""
    began = time.perf_counter()
    answer = call()
    samples.append((time.perf_counter() - began) * 1e3)
    answer.raise_for_status()
    return answer.json()


def travel(client: httpx.Client, count: int) -> dict[str, list[float]]:
    """Play journeys one after another; the times of each step."""
    post, _, take, complete = STEPS
    found: dict[str, list[float]] = {post: [], take: [], complete: []}
    worker = client.post("/v1/workers", json={"name": "bench", "tasks": [TASK]}).json()["worker_id"]
    for number in range(count):
        run = timed(
            lambda number=number: client.post("/v1/runs", json={"task": TASK, "args": {"n": number}}), found[post]
        )
        (claim,) = timed(lambda: client.put(f"/v1/workers/{worker}/assign", json={"limit": 1}), found[take])["runs"]
        assert claim["run_id"] == run["run_id"]
        body = {"token": claim["token"], "result": {}}
        url = f"/v1/runs/{run['run_id']}/complete"
        timed(partial(client.put, url, json=body), found[complete])
    return found


async def persist(store: str, count: int) -> list[float]:
    """The times of acceptance by the store."""
    app, found = app_on(store, 0), list[float]()
    async with app:
        for number in range(count):
            began = time.perf_counter()
            await app.submit("nobody", {"n": number})
            found.append((time.perf_counter() - began) * 1e3)
    return found


def main() -> None:
    """Print p50 and p99 of each step, and of the whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="a PostgreSQL server; without one, a SQLite file")
    parser.add_argument("--journeys", type=int, default=500)
    asked = parser.parse_args()
    with a_store(asked.store) as store, served("bench.api.ours", store) as port:
        token = token_for(app_on(store, port))
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"http://{HOST}:{port}", headers=headers, timeout=30) as client:
            travel(client, 20)  # Connections, prepared statements and caches are warm in a service that runs.
            found = travel(client, asked.journeys)
        found[list(STEPS)[1]] = asyncio.run(persist(store, asked.journeys))
    post, _, take, complete = STEPS
    whole = [sum(times) for times in zip(found[post], found[take], found[complete], strict=True)]
    print("| step | budget | p50 | p99 |\n|---|---|---|---|")
    for name, budget, samples in [
        *((name, budget, found[name]) for name, budget in STEPS.items()),
        ("whole", 95.0, whole),
    ]:
        p50, p99 = percentile(samples, 0.5), percentile(samples, 0.99)
        print(f"| {name} | {budget:g} ms | {p50:.1f} ms | {p99:.1f} ms |")


if __name__ == "__main__":
    main()
