"""Concurrent changes: a change of a version that is no longer the newest is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from door import Door, problem

from mainspring.core.model import Job

JOB = {"name": "j", "task": "encode", "args": {"video": "v"}, "every": "1h"}


def change_after_a_look(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, between the read of a job and its change, another caller changes it."""
    store = door.server.context.store
    look, others = store.get_job, iter([True])

    async def look_and_be_overtaken(namespace: str, name: str) -> Job:
        job = await look(namespace, name)
        if next(others, False):
            await store.edit_job(msgspec.structs.replace(job, priority=9), job.version)
        return job

    monkeypatch.setattr(store, "get_job", look_and_be_overtaken)


@pytest.mark.parametrize(
    ("method", "words"),
    [("PUT", {"json": {**JOB, "priority": 2}}), ("PATCH", {"json": {"priority": 2}}), ("DELETE", {})],
)
def test_a_change_of_the_version_that_was_named_or_of_none(
    private_door: Door, monkeypatch: pytest.MonkeyPatch, method: str, words: dict[str, Any]
) -> None:
    client = private_door.client("admin")
    tag = client.post("/v1/jobs", json=JOB).headers["etag"]
    change_after_a_look(private_door, monkeypatch)
    refused = client.request(method, "/v1/jobs/j", headers={"If-Match": tag}, **words)
    problem(refused, 412, "precondition-failed")
    job = client.get("/v1/jobs/j")
    assert job.json()["priority"] == 9
    assert refused.headers["etag"] == job.headers["etag"]
    assert client.request(method, "/v1/jobs/j", headers={"If-Match": job.headers["etag"]}, **words).is_success


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_without_a_version_the_change_is_made_to_what_there_is(
    private_door: Door, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    client = private_door.client("admin")
    client.post("/v1/jobs", json=JOB)
    change_after_a_look(private_door, monkeypatch)
    words: dict[str, Any] = {"json": {"priority": 2}} if method == "PATCH" else {}
    assert client.request(method, "/v1/jobs/j", **words).is_success
    trail = client.get("/v1/audit").json()["items"]
    assert trail[0]["before"]["priority"] == 9, "what the trail has as before is what was there"
