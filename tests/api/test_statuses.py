"""Status queries: from a real Redis where it knows, from the store where it does not; never for another namespace."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from door import Door, open_door, problem, until
from redis import Redis

from mainspring.services.runtime import Runtime
from mainspring.testing.servers.redis import RedisServer
from mainspring.wiring import build_runtime


class Scene:
    """A server, a node that schedules and works beside it, and their Redis."""

    def __init__(self, door: Door, redis: RedisServer, loop: asyncio.AbstractEventLoop, runtime: Runtime) -> None:
        self.door, self.redis = door, redis
        self.admin = door.client("admin")
        self.loop, self.runtime = loop, runtime

    def submit(self, **words: Any) -> str:
        answer = self.admin.post("/v1/runs", json={"task": "encode", "args": {"video": "v"}, **words})
        assert answer.status_code == 201, answer.text
        run_id: str = answer.json()["run_id"]
        return run_id

    def status(self, run_id: str, query: str = "", client: httpx.Client | None = None) -> tuple[str, str]:
        answer = (client or self.admin).get(f"/v1/runs/{run_id}/status{query}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["run_id"] == run_id
        return answer.json()["state"], answer.headers["mainspring-source"]

    def until_told(self, run_id: str, wanted: tuple[str, str]) -> None:
        until(lambda: self.status(run_id) == wanted)

    def flush(self) -> None:
        with Redis(port=self.redis.port) as client:
            client.flushall()


@contextmanager
def node_beside(door: Door) -> Iterator[tuple[asyncio.AbstractEventLoop, Runtime]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    runtime = build_runtime(door.app, door.app.settings, schedule=True, work=True)
    asyncio.run_coroutine_threadsafe(runtime.start(), loop).result(30)
    try:
        yield loop, runtime
    finally:
        asyncio.run_coroutine_threadsafe(runtime.stop(1.0), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    redis = RedisServer(tmp_path).start()
    try:
        with open_door(tmp_path, cache=f"{redis.url}?timeout=2s") as door, node_beside(door) as (loop, runtime):
            yield Scene(door, redis, loop, runtime)
    finally:
        redis.kill()


def test_what_has_ended_is_answered_by_the_cache_and_on_demand_by_the_store(scene: Scene) -> None:
    run_id = scene.submit()
    scene.until_told(run_id, ("succeeded", "cache"))
    assert scene.status(run_id, "?fresh=1") == ("succeeded", "store")
    until(lambda: scene.status(run_id, "?fresh=0") == ("succeeded", "cache"))
    with Redis(port=scene.redis.port) as client:
        assert 3_000 < client.ttl(f"job_status:{run_id}") <= 3_600
    reported = scene.admin.get(f"/v1/runs/{run_id}/status").json()
    whole = scene.admin.get(f"/v1/runs/{run_id}").json()
    same = ("run_id", "namespace", "state", "reason", "attempt", "worker", "job", "task")
    assert {name: reported[name] for name in same} == {name: whole[name] for name in same}


def test_the_status_of_a_waiting_run_is_never_old(scene: Scene) -> None:
    run_id = scene.submit(delay="1h")
    until(lambda: scene.status(run_id)[1] == "cache")
    with Redis(port=scene.redis.port) as client:
        assert client.pttl(f"job_status:{run_id}") <= 1_000
    assert scene.admin.post(f"/v1/runs/{run_id}/cancel", json={}).status_code == 200
    scene.until_told(run_id, ("cancelled", "cache"))


def test_another_tenant_learns_nothing(scene: Scene) -> None:
    run_id = scene.submit()
    scene.until_told(run_id, ("succeeded", "cache"))
    stranger = scene.door.client("admin", namespace="elsewhere", subject="eve")
    problem(stranger.get(f"/v1/runs/{run_id}/status"), 404, "not-found")
    worker = scene.admin.get("/v1/workers").json()["items"][0]["worker"]
    until(lambda: scene.admin.get(f"/v1/workers/{worker}/status").headers["mainspring-source"] == "cache")
    problem(stranger.get(f"/v1/workers/{worker}/status"), 404, "not-found")
    problem(scene.door.client().get(f"/v1/runs/{run_id}/status"), 401, "unauthenticated")
    scene.until_told(run_id, ("succeeded", "cache"))


def test_what_there_is_not_is_not_there(scene: Scene) -> None:
    problem(scene.admin.get("/v1/runs/nothing/status"), 404, "not-found")
    problem(scene.admin.get("/v1/workers/nobody/status"), 404, "not-found")
    problem(scene.admin.get("/v1/runs/nothing/status?fresh=perhaps"), 422, "invalid-input")


def test_the_status_of_a_worker_shows_that_it_works_and_has_stopped(scene: Scene) -> None:
    hand = scene.door.client("worker", subject="hand")
    answer = hand.post("/v1/workers", json={"name": "box", "tasks": ["elsewhere"]})
    worker = answer.json()["worker_id"]

    def reported() -> tuple[str, str]:
        answer = scene.admin.get(f"/v1/workers/{worker}/status")
        return answer.json()["state"], answer.headers["mainspring-source"]

    until(lambda: reported() == ("active", "cache"))
    with Redis(port=scene.redis.port) as client:
        assert 200 < client.ttl(f"worker_status:{worker}") <= 300
    assert scene.admin.post(f"/v1/workers/{worker}/drain", json={}).status_code == 200
    until(lambda: reported() == ("draining", "cache"))


def test_a_redis_that_was_emptied_is_warmed_from_the_store(scene: Scene) -> None:
    run_id = scene.submit()
    scene.until_told(run_id, ("succeeded", "cache"))
    scene.flush()
    assert scene.status(run_id)[0] == "succeeded"
    scene.until_told(run_id, ("succeeded", "cache"))


def test_while_redis_is_away_the_store_answers_and_the_cache_comes_back_by_itself(scene: Scene) -> None:
    run_id = scene.submit()
    scene.until_told(run_id, ("succeeded", "cache"))
    scene.redis.kill()
    for _ in range(20):
        assert scene.status(run_id) == ("succeeded", "store")
    other = scene.submit()
    until(lambda: scene.status(other) == ("succeeded", "store"))
    scene.redis.start()
    scene.until_told(run_id, ("succeeded", "cache"))
    scene.until_told(other, ("succeeded", "cache"))


def test_a_redis_that_stands_still_is_not_waited_for_again_and_again(scene: Scene) -> None:
    run_id = scene.submit()
    scene.until_told(run_id, ("succeeded", "cache"))
    scene.redis.pause()
    try:
        answers = [scene.status(run_id) for _ in range(50)]
    finally:
        scene.redis.resume()
    assert set(answers) == {("succeeded", "store")}
    scene.until_told(run_id, ("succeeded", "cache"))
    metrics = scene.admin.get("/metrics").text
    assert 'mainspring_cache_total{change="lost"}' in metrics
    assert 'mainspring_statuses_total{source="cache"}' in metrics


def test_without_a_cache_the_store_answers(door: Door) -> None:
    admin = door.client("admin")
    run_id = admin.post("/v1/runs", json={"task": "encode", "args": {"video": "v"}}).json()["run_id"]
    answer = admin.get(f"/v1/runs/{run_id}/status")
    assert (answer.json()["state"], answer.headers["mainspring-source"]) == ("pending", "store")


def test_polling_never_sees_a_run_go_back(scene: Scene) -> None:
    """While events come, Redis is emptied, and many ask at once."""
    order = {"pending": 0, "running": 1, "succeeded": 2}
    deadline = time.monotonic() + 60
    for _ in range(5):
        run_id, seen = scene.submit(), [0]
        while seen[-1] < 2:
            assert time.monotonic() < deadline
            seen.append(order[scene.status(run_id)[0]])
            scene.flush()
        for _ in range(20):
            seen.append(order[scene.status(run_id)[0]])
        assert seen == sorted(seen)
