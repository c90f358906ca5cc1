"""Backfill over HTTP: past instants that never ran are fired, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from door import Door, fields, problem

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
DAYS = [f"{TODAY - timedelta(days=n):%Y-%m-%dT%H:%M:%SZ}" for n in range(40)]
"""Midnights, today's first."""


@pytest.fixture
def client(door: Door) -> httpx.Client:
    return door.client("operator")


def nightly(client: httpx.Client, name: str, **words: Any) -> str:
    answer = client.post("/v1/jobs", json={"name": name, "schedule": "0 0 * * *", "task": "encode",
                                           "args": {"video": "v"}, **words})  # fmt: skip
    assert answer.status_code == 201, answer.text
    return f"/v1/jobs/{name}/backfill"


def test_a_dry_run_lists_the_instants_and_changes_nothing(client: httpx.Client) -> None:
    path = nightly(client, "dry")
    answer = client.post(path, json={"from": DAYS[3], "to": DAYS[1], "dry_run": True}).json()
    assert [item["fire_at"] for item in answer["items"]] == [DAYS[3], DAYS[2], DAYS[1]]
    assert (answer["count"], answer["dry_run"], answer["next"]) == (3, True, None)
    assert client.get("/v1/jobs/dry/firings").json()["items"] == []
    assert client.get("/v1/jobs/dry/runs").json()["items"] == []


def test_past_instants_are_fired_once_however_often_it_is_asked(client: httpx.Client) -> None:
    path = nightly(client, "twice")
    first = client.post(path, json={"from": DAYS[3], "to": DAYS[2]})
    assert first.status_code == 200, first.text
    made = [run_id for item in first.json()["items"] for run_id in item["run_ids"]]
    assert len(made) == 2
    runs = client.get("/v1/jobs/twice/runs").json()["items"]
    assert sorted(run["run_id"] for run in runs) == sorted(made)
    wider = client.post(path, json={"from": DAYS[4], "to": DAYS[1]}).json()
    assert [(item["before"], len(item["run_ids"])) for item in wider["items"]] == [
        (None, 1), ("fired", 0), ("fired", 0), (None, 1),
    ]  # fmt: skip
    assert wider["count"] == 2
    assert {row["kind"] for row in client.get("/v1/jobs/twice/firings").json()["items"]} == {"backfill"}
    assert len(client.get("/v1/jobs/twice/runs").json()["items"]) == 4


def test_a_long_interval_comes_in_bounded_parts(client: httpx.Client) -> None:
    path = nightly(client, "long")
    since, seen = DAYS[30], []
    while since is not None:
        answer = client.post(path, json={"from": since, "to": DAYS[21], "limit": 4}).json()
        assert len(answer["items"]) <= 4
        seen += [item["fire_at"] for item in answer["items"]]
        since = answer["next"]
    assert seen == DAYS[30:20:-1]


def test_what_has_been_missed_is_made_up_for_and_the_trail_names_the_caller(door: Door, client: httpx.Client) -> None:
    path = nightly(client, "audited")
    client.post(path, json={"from": DAYS[1], "to": DAYS[1], "reason": "the disk was full"})
    (change, _) = door.client("admin").get("/v1/audit", params={"limit": 2}).json()["items"]
    assert (change["action"], change["subject"]) == ("job.backfill", "ann")
    assert change["after"] == {
        "from": DAYS[1], "to": DAYS[1], "runs": 1, "reason": "the disk was full",
    }  # fmt: skip


def test_several_runs_of_an_instant_count_one_by_one(client: httpx.Client) -> None:
    path = nightly(client, "many", regions=["eu", "us"], completions=300)
    answer = client.post(path, json={"from": DAYS[5], "to": DAYS[1], "limit": 1000, "dry_run": True}).json()
    assert [len(item["run_ids"]) for item in answer["items"]] == [600]
    assert answer["next"] == DAYS[4]


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, ["from", "to"]),
        ({"from": "yesterday", "to": "today"}, ["from", "to"]),
        ({"from": DAYS[1], "to": DAYS[2]}, ["to"]),
        ({"from": DAYS[1], "to": "2999-01-01T00:00:00Z"}, ["to"]),
        ({"from": DAYS[2], "to": DAYS[1], "limit": 0, "until": 1}, ["limit", "until"]),
        ({"from": DAYS[2], "to": DAYS[1], "limit": 1001}, ["limit"]),
    ],
)
def test_an_interval_that_cannot_be_is_refused(door: Door, body: dict[str, Any], wrong: list[str]) -> None:
    client = door.client("operator")
    if client.get("/v1/jobs/refused").status_code == 404:
        nightly(client, "refused")
    assert fields(problem(client.post("/v1/jobs/refused/backfill", json=body), 422, "invalid-input")) == wrong


def test_an_interval_before_the_job_was_created_may_be_as_old_as_it_likes(client: httpx.Client) -> None:
    path = nightly(client, "old")
    answer = client.post(path, json={"from": "2001-01-01T00:00:00Z", "to": "2001-01-03T00:00:00Z"}).json()
    assert answer["count"] == 3


def test_jobs_without_times_of_their_own_have_nothing_to_backfill(client: httpx.Client) -> None:
    nightly(client, "up")
    for name, words in (("by-hand", {"manual": True}), ("behind", {"after": ["up"]})):
        client.post("/v1/jobs", json={"name": name, "task": "encode", "args": {"video": "v"}, **words})
        body = {"from": DAYS[2], "to": DAYS[1]}
        problem(client.post(f"/v1/jobs/{name}/backfill", json=body), 409, "conflict")


def test_it_is_an_operators_work(door: Door, client: httpx.Client) -> None:
    path, body = nightly(client, "mine"), {"from": DAYS[1], "to": DAYS[1]}
    problem(door.client("submitter").post(path, json=body), 403, "forbidden")
    problem(door.client("operator", namespace="other").post(path, json=body), 404, "not-found")
