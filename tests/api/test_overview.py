"""How a namespace stands, what changes in it, and lists as pages show them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from door import Door, fields, open_door, problem

from mainspring.api.load.sharing import Fresh
from mainspring.client.client import Client
from mainspring.core.model import Report, Worker
from mainspring.core.states import FAILED, SUCCEEDED
from mainspring.operations.views import overview
from mainspring.store import Store
from mainspring.stores.sqlite.store import SqliteStore

WORK = {"task": "encode", "args": {"video": "v1"}}
SECOND = 1_000_000
VIEWERS = 20


@pytest.fixture
def client(private_door: Door) -> httpx.Client:
    return private_door.client("admin")


def make(client: httpx.Client, name: str, **words: Any) -> None:
    answer = client.post("/v1/jobs", json={"name": name, **WORK, **words})
    assert answer.status_code == 201, answer.text


async def fail_all(store: Store) -> None:
    """Claim what is due, and report that it failed for good."""
    worker = Worker(id="w", queues=("default",), tasks=("encode",), concurrency=10)
    for claim in await store.claim(worker, 10, 60 * SECOND, "strict"):
        await store.report([Report(claim.run_id, claim.token, "failed", FAILED, reason="ValueError: no")])


async def end_all_well(store: Store) -> None:
    """Claim what is due, and report that it succeeded."""
    worker = Worker(id="w", queues=("default",), tasks=("encode",), concurrency=10)
    for claim in await store.claim(worker, 10, 60 * SECOND, "strict"):
        await store.report([Report(claim.run_id, claim.token, "succeeded", SUCCEEDED)])


def test_the_overview_names_what_needs_attention_strongest_first(private_door: Door, client: httpx.Client) -> None:
    make(client, "failing", manual=True)
    make(client, "held", schedule="0 3 * * *", timezone="Europe/Berlin")
    make(client, "well", schedule="30 2 * * *")
    assert client.post("/v1/jobs/failing/trigger", json={}).is_success
    private_door.ask(fail_all)
    assert client.post("/v1/jobs/held/pause", json={"reason": "repair"}).is_success
    assert client.post("/v1/runs", json={**WORK, "queue": "lonely"}).is_success
    seen = client.get("/v1/overview").json()
    assert seen["leader"] is None
    assert seen["counts"] == {"due": 1, "blocked": 0, "later": 0, "succeeded": 0, "failed": 1, "missed": 0}
    assert seen["oldest_due"] is not None
    assert [(each["kind"], each["name"]) for each in seen["attention"]] == [
        ("no-leader", "scheduler"),
        ("no-worker", "workers"),
        ("job-failed", "failing"),
        ("job-paused", "held"),
    ]
    failed = seen["attention"][2]
    assert (failed["text"], failed["job"]) == ("It failed once: ValueError: no", "failing")
    assert failed["run_id"] in failed["remedy"]
    assert [(job["name"], job["schedule_text"]) for job in seen["next"]] == [("well", "every day at 02:30 (UTC)")]
    assert "args" not in seen["next"][0]
    assert (seen["degradation"], seen["workers"]["active"]) == ("normal", 0)


def test_a_job_that_fails_often_needs_attention_although_it_ran_well_last(
    private_door: Door, client: httpx.Client
) -> None:
    make(client, "flaky", manual=True)
    make(client, "once", manual=True)
    for name, end in (("once", fail_all), *[("flaky", fail_all)] * 3, ("flaky", end_all_well), ("once", end_all_well)):
        assert client.post(f"/v1/jobs/{name}/trigger", json={}).is_success
        private_door.ask(end)
    assert client.post("/v1/queues/gpu/pause", json={"reason": "repair"}).is_success
    seen = client.get("/v1/overview").json()["attention"]
    assert [(each["kind"], each["name"], each["text"]) for each in seen if each["job"] is not None] == [
        ("job-failing", "flaky", "It failed 3 of its last 4 times: ValueError: no")
    ]
    assert "queue-paused" in [each["kind"] for each in seen]


@pytest.mark.parametrize("looked_at", [2, 3, 4], ids=["fewer", "as many", "more"])
def test_failures_are_counted_whatever_number_of_them_is_looked_at(
    private_door: Door, client: httpx.Client, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    monkeypatch.setattr(overview, "MOST_LOOKED_AT", looked_at)
    for _ in range(3):
        assert client.post("/v1/runs", json=WORK).is_success
    private_door.ask(fail_all)
    assert client.get("/v1/overview").json()["counts"]["failed"] == 3


def test_a_queue_with_due_runs_and_no_worker_needs_attention(private_door: Door, client: httpx.Client) -> None:
    worker = private_door.client("worker").post("/v1/workers", json={"name": "w", "tasks": ["encode"]})
    assert worker.is_success, worker.text
    assert client.post("/v1/runs", json={**WORK, "queue": "lonely"}).is_success
    kinds = {each["kind"]: each for each in client.get("/v1/overview").json()["attention"]}
    assert kinds["queue-unserved"]["queue"] == "lonely"
    assert "no-worker" not in kinds


def test_due_runs_of_a_task_that_no_worker_knows_need_attention(private_door: Door, client: httpx.Client) -> None:
    worker = private_door.client("worker").post("/v1/workers", json={"name": "w", "tasks": ["encode"]})
    assert worker.is_success, worker.text
    for task in ("encode", "decode", "decode"):
        assert client.post("/v1/runs", json={**WORK, "task": task}).is_success
    later = {**WORK, "task": "render", "run_at": "2100-01-01T00:00:00Z"}
    assert client.post("/v1/runs", json=later).is_success
    found = [each for each in client.get("/v1/overview").json()["attention"] if each["kind"] == "task-unknown"]
    assert [(each["name"], each["queue"], each["text"]) for each in found] == [
        ("decode", "default", "2 due runs wait in queue default, and no worker of it knows task decode.")
    ]


def test_the_overview_names_breakers_that_are_open(private_door: Door, client: httpx.Client) -> None:
    assert client.get("/v1/overview").json()["breakers"] == {}
    guard = private_door.server.context.guard
    guard.dependencies = guard.dependencies._replace(state="open")
    assert list(client.get("/v1/overview").json()["breakers"]) == ["dependencies"]


def test_a_viewer_may_see_the_overview_of_its_own_namespace_alone(private_door: Door, client: httpx.Client) -> None:
    make(client, "a", schedule="30 2 * * *")
    other = private_door.client("viewer", namespace="other")
    assert other.get("/v1/overview").json()["next"] == []
    refused = other.get("/v1/overview", headers={"Mainspring-Namespace": "default"})
    problem(refused, 403, "forbidden")


async def test_all_that_ask_within_a_second_share_one_answer_and_a_failure_is_not_kept() -> None:
    calls: Counter[str] = Counter()

    async def compute() -> int:
        calls["compute"] += 1
        await asyncio.sleep(0)
        if calls["compute"] == 1:
            raise ValueError("the first fails")
        return calls["compute"]

    shared: Fresh[int] = Fresh()
    first = await asyncio.gather(*(shared.get("a", compute) for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in first} == {ValueError}
    assert await asyncio.gather(*(shared.get("a", compute) for _ in range(20))) == [2] * 20
    assert await shared.get("b", compute) == 3


def test_viewers_hear_which_jobs_and_runs_changed(private_door: Door) -> None:
    asyncio.run(watch_two_namespaces(private_door))


async def publish(door: Door) -> None:
    """Do what the relay of a node does: no node runs here."""
    await asyncio.to_thread(door.ask, lambda store: store.number_events(100))


async def watch_two_namespaces(door: Door) -> None:
    """Two viewers of one namespace, one of another: each hears of its own."""
    admin = Client(door.url, door.token("admin"))
    other = Client(door.url, door.token("admin", namespace="other"))
    viewers, stranger = [admin.live(), admin.live()], other.live()
    async with asyncio.timeout(20):
        for stream in (*viewers, stranger):
            first = await anext(stream)
            assert (first.jobs, first.runs, first.more) == ([], [], True)
        run = await admin.runs.submit("encode", {"video": "v1"})
        await publish(door)
        for stream in viewers:
            assert run.run_id in (await anext(stream)).runs
        theirs = await other.runs.submit("encode", {"video": "v1"})
        await publish(door)
        assert (await anext(stranger)).runs == [theirs.run_id]
    for stream in (*viewers, stranger):
        await stream.aclose()
    await admin.close()
    await other.close()


def test_twenty_viewers_cost_the_store_hardly_more_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    for where, name in ((SqliteStore, "next_position"), (overview.Overview, "show")):
        monkeypatch.setattr(where, name, counted(asked, getattr(where, name)))
    began = time.monotonic()
    with open_door(tmp_path) as door:
        asyncio.run(watch_by(VIEWERS, door))
    assert 1 <= asked["next_position"] < VIEWERS / 2, "each stream has a reader of its own"
    assert 1 <= asked["show"] <= 2 + time.monotonic() - began, "each viewer has an overview of its own"


def counted(asked: Counter[str], method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose calls are counted."""

    def call(*args: Any, **words: Any) -> Any:
        asked[method.__name__] += 1
        return method(*args, **words)

    return call


async def watch_by(count: int, door: Door) -> None:
    """Follow what changes, and ask for the overview, by many viewers at once."""
    admin = Client(door.url, door.token("admin"))
    viewers = [admin.live() for _ in range(count)]
    async with asyncio.timeout(20):
        await asyncio.gather(*(anext(stream) for stream in viewers))
        run = await admin.runs.submit("encode", {"video": "v1"})
        await publish(door)
        assert all(run.run_id in news.runs for news in await asyncio.gather(*(anext(stream) for stream in viewers)))
        await asyncio.gather(*(admin.overview() for _ in range(count)))
    for stream in viewers:
        await stream.aclose()
    await admin.close()


def test_jobs_as_rows_have_words_and_recent_outcomes_but_no_arguments(private_door: Door, client: httpx.Client) -> None:
    make(client, "nightly-report", schedule="30 2 * * *", timezone="Europe/Berlin")
    make(client, "hourly-report", every="1h")
    make(client, "other", every="1m")
    for _ in range(2):
        assert client.post("/v1/jobs/nightly-report/trigger", json={}).is_success
        private_door.ask(fail_all)
    found = client.get("/v1/jobs", params={"q": "REPORT", "fields": "row", "recent": 30}).json()["items"]
    assert [(job["name"], job["recent"]) for job in found] == [
        ("hourly-report", []),
        ("nightly-report", ["failed", "failed"]),
    ]
    assert found[1]["schedule_text"] == "every day at 02:30 (Europe/Berlin)"
    assert "args" not in found[0]
    whole = client.get("/v1/jobs", params={"name": "other"}).json()["items"][0]
    assert whole["args"] == {"video": "v1"}


def test_jobs_are_sorted_by_when_they_fire_page_by_page(client: httpx.Client) -> None:
    for name, every in (("a", "3h"), ("b", "1h"), ("c", "2h")):
        make(client, name, every=every)
    make(client, "by-hand", manual=True)
    names, cursor = [], None
    for _ in range(5):
        page = client.get(
            "/v1/jobs", params={"sort": "next", "limit": 1, **({"cursor": cursor} if cursor else {})}
        ).json()
        names += [job["name"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert names == ["b", "c", "a"]
    forged = client.get("/v1/jobs", params={"sort": "next", "cursor": "YWJj"})
    assert fields(forged.json()) == ["cursor"]


def test_runs_are_counted_and_listed_without_payloads(client: httpx.Client) -> None:
    for _ in range(3):
        assert client.post("/v1/runs", json=WORK).is_success
    assert client.get("/v1/runs:count", params={"state": "pending"}).json() == {"count": 3, "at_least": False}
    assert client.get("/v1/runs:count", params={"task": "other"}).json()["count"] == 0
    (row, *_) = client.get("/v1/runs", params={"fields": "row"}).json()["items"]
    assert not {"args", "result", "error"} & set(row)
    (row, *_) = client.get("/v1/runs").json()["items"]
    assert row["args"] == {"video": "v1"}
    log = client.get(f"/v1/runs/{row['run_id']}/logs", params={"format": "text"})
    assert (log.headers["content-type"], log.text) == ("text/plain; charset=utf-8", "")
    assert json.loads(client.get(f"/v1/runs/{row['run_id']}/logs").text)["items"] == []


def test_causes_stand_beside_why_in_the_same_order(client: httpx.Client) -> None:
    run_id = client.post("/v1/runs", json={**WORK, "queue": "lonely"}).json()["run_id"]
    run = client.get(f"/v1/runs/{run_id}").json()
    assert [cause["kind"] for cause in run["causes"]] == ["no-worker"]
    assert [f"{cause['text']} {cause['remedy']}" for cause in run["causes"]] == run["why"]
    make(client, "held", every="1h")
    assert client.post("/v1/jobs/held/pause", json={"reason": "repair"}).is_success
    job = client.get("/v1/jobs/held").json()
    assert [cause["kind"] for cause in job["causes"]] == ["paused", "no-worker"]
    assert job["causes"][0]["since"] == job["paused_at"]


def test_a_draft_is_previewed_without_being_stored(private_door: Door, client: httpx.Client) -> None:
    viewer = private_door.client("viewer")
    draft = {"schedule": "30 2 * * *", "timezone": "Europe/Berlin", "command": "rm -r films"}
    seen = viewer.post("/v1/jobs:preview", params={"count": 400}, json=draft)
    assert seen.status_code == 200, seen.text
    assert seen.json()["text"] == "every day at 02:30 (Europe/Berlin)"
    assert len(seen.json()["items"]) == 400
    assert len([each for each in seen.json()["items"] if each["note"]]) == 2
    few = viewer.post("/v1/jobs:preview", params={"count": 3}, json=draft).json()
    assert len(few["items"]) == 3
    noted = [each for each in (*few["items"], *few["changes"]) if each["note"]]
    assert sorted(re.findall("forward|back", " ".join(each["note"] for each in noted))) == ["back", "forward"]
    limited = {**draft, "max_firings": 5}
    assert viewer.post("/v1/jobs:preview", params={"count": 3}, json=limited).json()["changes"] == []
    faulty = viewer.post("/v1/jobs:preview", json={"schedule": "61 2 * * *", "priority": "high"})
    assert sorted(fields(faulty.json())) == ["priority", "schedule"]
    unknown = viewer.post("/v1/jobs:preview", json={"every": "1h", "calendars": ["none"]})
    assert fields(unknown.json()) == ["calendars"]
    assert client.get("/v1/jobs").json()["items"] == []
