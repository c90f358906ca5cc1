"""Definitions over HTTP: whole apps at once, which permission may loosen what, and that nothing is lost on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from door import Door, fields, problem

from mainspring import Isolation, Retry, after, at, cron, every, manual
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.tasks.isolation import format_isolation, parse_isolation
from mainspring.operations.values.bodies import body_of

SANDBOX = Isolation(
    "sandbox", cpu="90s", memory="1GiB", processes=5, files=9, file_size=7, disk="1MB", output=3, user="x",
    read=["/srv", "/opt"], write=["/tmp"], network=True,
)  # fmt: skip
DAY_S = 86_400_000_000

JOBS = [
    Job("", "daily", "t", cron("0 2 * * *", tz="Europe/Berlin"), args='{"n":[1,{"a":null}]}', priority=2, key="k"),
    Job("", "quartz", "t", cron("0 0 2 L * ?", dialect="quartz"), queue="q", limit=3),
    Job("", "hourly", "t", every("1h", anchor="2026-01-01T00:00:00.5Z"), options=RunOptions(isolation=SANDBOX)),
    Job("", "once", "command", at("2020-01-01T00:00:00Z"), args='{"argv":["a b","c"]}'),
    Job("", "late", "t", after("daily", "hourly", when="any_finished", on_failure="run")),
    Job(
        "", "by-hand", "http", manual(), args='{"url":"https://example.org/"}',
        policy=JobPolicy("all", 1, DAY_S, 7, 1_500_000, "forbid", 250, DAY_S, 300 * 365 * DAY_S, 9, (), "next_day", 0,
                         5, ("eu", "us"), 4, 2),
        options=RunOptions(timeout=1_234_567, soft_timeout=1000, total_timeout=2_000_000,
                           retry=Retry(delays=["1s", "3s"], cap="5s", jitter=0.3, on=[ValueError], never="OSError"),
                           max_losses=0, on_key_failure="stop", tags=("a", "b"), alert="$ mail 'me'"),
    ),
]  # fmt: skip
"""All that a definition can say."""


def sync(door: Door, app: str, *jobs: Job, role: str = "admin") -> Any:
    return door.client(role).post("/v1/jobs:sync", json={"app": app, "jobs": [body_of(job) for job in jobs]})


def test_every_definition_comes_through_as_it_was(private_door: Door) -> None:
    assert sync(private_door, "films", *JOBS).json()["created"] == [job.name for job in JOBS]
    stored = {job.name: job for job in private_door.ask(lambda store: store.list_jobs("default", app="films"))}
    for job in JOBS:
        for field in ("task", "trigger", "args", "queue", "priority", "key", "limit", "policy", "options"):
            assert getattr(stored[job.name], field) == getattr(job, field), (job.name, field)
    assert sync(private_door, "films", *JOBS).json()["unchanged"] == [job.name for job in JOBS]


def test_a_sync_is_all_or_nothing_and_names_all_that_is_wrong(private_door: Door) -> None:
    bad = {"app": "films", "jobs": [{"name": "a", "manual": True, "task": "t"}, {"name": "b", "task": "t"},
                                    {"name": "c", "schedule": "61 * * * *", "task": "t"}]}  # fmt: skip
    answer = private_door.client("admin").post("/v1/jobs:sync", json=bad)
    assert fields(problem(answer, 422, "invalid-input")) == ["jobs[1].schedule", "jobs[2].schedule"]
    assert private_door.ask(lambda store: store.list_jobs("default")) == []
    sync(private_door, "films", JOBS[0])
    problem(sync(private_door, "other", msgspec.structs.replace(JOBS[1], name="daily"), JOBS[1]), 409, "conflict")
    assert len(private_door.ask(lambda store: store.list_jobs("default"))) == 1


def test_a_caller_that_may_not_run_commands_may_not_sync_them(private_door: Door) -> None:
    problem(sync(private_door, "films", JOBS[0], JOBS[3], role="operator"), 403, "forbidden")
    problem(sync(private_door, "films", JOBS[0], role="submitter"), 403, "forbidden")
    assert sync(private_door, "films", JOBS[0], role="operator").status_code == 200


class TestWhoMayLoosen:
    """Isolation and commands in alerts need the permission to run commands."""

    @pytest.mark.parametrize("words", [{"isolation": "none"}, {"isolation": "process"}, {"alert": "$ reboot"}])
    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/runs"])
    def test_an_operator_may_not(self, door: Door, path: str, words: dict[str, str]) -> None:
        body = {"task": "t", **words, **({"name": "x", "manual": True} if path == "/v1/jobs" else {})}
        document = problem(door.client("operator").post(path, json=body), 403, "forbidden")
        assert "run:command" in document["detail"]
        assert door.client("operator", "run:command").post("/v1/runs", json={"task": "t", **words}).status_code == 201

    def test_a_batch_is_no_way_around(self, door: Door) -> None:
        body = {"runs": [{"task": "t"}, {"task": "t", "isolation": "none"}]}
        problem(door.client("operator").post("/v1/runs:batch", json=body), 403, "forbidden")

    def test_an_alert_may_name_a_task_or_a_url(self, door: Door) -> None:
        for whom in ("tell", "https://example.org/hook"):
            assert door.client("submitter").post("/v1/runs", json={"task": "t", "alert": whom}).status_code == 201

    def test_a_change_of_something_else_leaves_both_as_they_are(self, private_door: Door) -> None:
        admin, operator = private_door.client("admin"), private_door.client("operator")
        body = {"name": "safe", "manual": True, "task": "t", "isolation": "limits,memory=1GB", "alert": "$ mail me"}
        admin.post("/v1/jobs", json=body)
        assert operator.patch("/v1/jobs/safe", json={"priority": 1}).status_code == 200
        problem(operator.patch("/v1/jobs/safe", json={"isolation": None}), 403, "forbidden")
        problem(operator.put("/v1/jobs/safe", json={"name": "safe", "manual": True, "task": "t"}), 403, "forbidden")
        problem(operator.patch("/v1/jobs/safe", json={"alert": "$ mail them"}), 403, "forbidden")
        options = private_door.ask(lambda store: store.get_job("default", "safe")).options
        assert options.isolation is not None
        assert (format_isolation(options.isolation), options.alert) == ("limits,memory=1GB", "$ mail me")


def test_a_change_of_retries_merges_into_the_policy(private_door: Door) -> None:
    client = private_door.client("admin")
    retry = {"retries": 2, "delay": "5s", "factor": 2, "on": ["OSError"]}
    client.post("/v1/jobs", json={"name": "a", "manual": True, "task": "t", "retry": retry})

    def stored() -> Retry:
        return private_door.ask(lambda store: store.get_job("default", "a")).options.retry

    client.patch("/v1/jobs/a", json={"retry": {"retries": 9}})
    assert (stored().retries, stored().delays, stored().factor, stored().on) == (9, (5_000_000,), 2.0, ("OSError",))
    client.patch("/v1/jobs/a", json={"retry": {"delays": ["1s", "2s"]}})
    assert (stored().retries, stored().delays, stored().on) == (9, (1_000_000, 2_000_000), ("OSError",))


def test_a_reason_is_kept_among_the_events(private_door: Door) -> None:
    client = private_door.client("admin")
    client.post("/v1/jobs", json={"name": "a", "manual": True, "task": "t"})
    client.post("/v1/jobs/a/resume", json={"reason": "enough rest"})
    client.delete("/v1/jobs/a", params={"reason": "not needed"})

    async def reasons() -> list[str]:
        store = await private_door.app.open()
        await store.number_events(1000)
        return [event.reason for batch in await store.events_since(1, 1000) for event in batch.events]

    assert {"enough rest", "not needed"} <= set(asyncio.run(reasons()))


def test_runs_are_found_by_a_part_of_their_id_in_ones_own_namespace(private_door: Door) -> None:
    client = private_door.client("admin")
    ids = [client.post("/v1/runs", json={"task": "t"}).json()["run_id"] for _ in range(3)]
    assert [run["run_id"] for run in client.get("/v1/runs", params={"id": ids[0][-8:]}).json()["items"]] == [ids[0]]
    assert len(client.get("/v1/runs", params={"id": ids[0][:6], "limit": 2}).json()["items"]) == 2
    assert client.get("/v1/runs", params={"id": "%"}).json()["items"] == []
    stranger = private_door.client("admin", namespace="elsewhere", subject="bob")
    assert stranger.get("/v1/runs", params={"id": ids[0]}).json()["items"] == []


@pytest.mark.parametrize("isolation", [SANDBOX, Isolation("none"), Isolation("limits", cpu="1.5s", user="nobody")])
def test_an_isolation_is_written_as_it_is_read(isolation: Isolation) -> None:
    assert parse_isolation(format_isolation(isolation)) == isolation


def test_whether_to_wait_under_pressure_is_said_by_task_job_or_run(private_door: Door) -> None:
    private_door.app.task(name="hasty", under_pressure="run")(lambda: None)
    client = private_door.client("admin")
    shown = [
        client.post("/v1/runs", json=body).json()["under_pressure"]
        for body in ({"task": "hasty"}, {"task": "hasty", "under_pressure": "wait"}, {"task": "other"})
    ]
    assert shown == ["run", "wait", "wait"]
    job = {"name": "j", "task": "other", "manual": True, "under_pressure": "run", "soft_timeout": "5s", "timeout": "9s",
           "total_timeout": "9s"}  # fmt: skip
    made = client.post("/v1/jobs", json=job).json()
    assert (made["under_pressure"], made["soft_timeout"], made["isolation"]) == ("run", "5s", None)
    assert made["total_timeout"] == "9s"
    assert client.patch("/v1/jobs/j", json={"under_pressure": None}).json()["under_pressure"] == "wait"


def test_a_whole_number_may_be_written_with_a_point(private_door: Door) -> None:
    client = private_door.client("admin")
    body = {"task": "other", "priority": 2.0, "args": {"n": 2.0}, "retry": {"retries": 4.0}}
    run = client.post("/v1/runs", json=body).json()
    assert (run["priority"], run["retries"], run["args"]) == (2, 4, {"n": 2.0})
    assert isinstance(run["args"]["n"], float)
