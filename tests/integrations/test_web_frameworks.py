"""FastAPI and Flask: the real frameworks serve the examples."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from mainspring.integrations.fastapi import lifespan

Load = Callable[[str], dict[str, Any]]


@asynccontextmanager
async def serving(server: FastAPI) -> AsyncIterator[AsyncClient]:
    """A client of a server, within its lifespan."""
    transport = ASGITransport(app=server)
    async with (
        server.router.lifespan_context(server),
        AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client


async def test_a_fastapi_service_runs_an_app_and_answers_its_errors(load_example: Load) -> None:
    names = load_example("fastapi_service.py")
    async with serving(names["server"]) as client:
        accepted = await client.post("/videos", json={"name": "v1", "minutes": 3})
        run_id = accepted.json()["run_id"]
        assert accepted.status_code == 202
        assert (await client.get(f"/results/{run_id}")).json() == {"result": "v1: 3 minutes"}
        shown = (await client.get(f"/runs/{run_id}")).json()
        assert (shown["state"], shown["task"]) == ("succeeded", "encode")
        refused = await client.post(f"/runs/{run_id}/cancel")
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:mainspring:problem:conflict")
        missing = await client.get("/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV")
        assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert names["app"].opened is None


async def test_a_lifespan_of_ones_own_is_inside_that_of_the_app(load_example: Load) -> None:
    app = load_example("fastapi_service.py")["app"]
    order = []

    @asynccontextmanager
    async def own(server: Any) -> AsyncIterator[dict[str, str]]:
        order.append(app.opened is not None)
        yield {"ready": "yes"}
        order.append(app.opened is not None)

    span = lifespan(app, schedule=False, work=False, inner=own)
    async with span(FastAPI()) as state:
        assert state == {"ready": "yes"}
    assert order == [True, True]
    assert app.opened is None


def test_a_flask_service_submits_and_shows_runs(load_example: Load) -> None:
    names = load_example("flask_service.py")
    client = names["server"].test_client()
    accepted = client.post("/videos", json={"video": "v1"})
    assert accepted.status_code == 202
    run_id = accepted.get_json()["run_id"]
    assert client.get(f"/runs/{run_id}").get_json()["state"] == "pending"
    assert client.post(f"/runs/{run_id}/cancel").get_json() == {"state": "cancelled"}
    missing = client.get("/runs/01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert (missing.status_code, missing.content_type) == (404, "application/problem+json")
    assert names["server"].extensions["mainspring"] is names["app"]
