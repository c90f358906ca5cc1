"""Jobs over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from door import Door, fields, problem

from mainspring.stores.sqlite.file.transaction import Transaction

DAILY = {"name": "daily-report", "schedule": "0 0 * * *", "command": "python generate_report.py"}
WORK = {"task": "encode", "args": {"video": "v1"}}


@pytest.fixture
def client(private_door: Door) -> httpx.Client:
    return private_door.client("admin")


def make(client: httpx.Client, name: str, **words: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json={"name": name, **WORK, **words})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def test_a_scheduled_command_is_created_with_its_id_and_next_run(client: httpx.Client) -> None:
    answer = client.post("/v1/jobs", json=DAILY)
    assert answer.status_code == 201
    job = answer.json()
    midnight = datetime.now(UTC).date() + timedelta(days=1)
    assert job["next_run"] == job["next_fire_at"] == f"{midnight}T00:00:00Z"
    assert job["args"] == {"argv": ["python", "generate_report.py"]}
    assert answer.headers["location"] == f"/v1/jobs/{job['job_id']}"
    assert answer.headers["etag"] == '"1"'
    for name in (job["job_id"], "daily-report"):
        assert client.get(f"/v1/jobs/{name}").json()["job_id"] == job["job_id"]


def test_a_name_is_taken_once(client: httpx.Client) -> None:
    make(client, "a", manual=True)
    problem(client.post("/v1/jobs", json={"name": "a", "manual": True, **WORK}), 409, "conflict")


@pytest.mark.parametrize(
    ("words", "kind", "has"),
    [
        ({"schedule": "30 9 * * *", "timezone": "Europe/Berlin"}, "cron", {"tz": "Europe/Berlin"}),
        ({"cron": "0 9 ? * MON", "tz": "UTC", "dialect": "quartz"}, None, None),
        ({"cron": "0 0 9 ? * MON", "tz": "UTC", "dialect": "quartz"}, "cron", {"dialect": "quartz"}),
        ({"every": "90s"}, "every", {"every": "1m30s"}),
        ({"every": 1}, "every", {"every": "1s"}),
        ({"run_at": "2100-01-01T09:00:00+01:00"}, "at", {"at": "2100-01-01T08:00:00Z"}),
        ({"at": "2100-07-01T09:00", "timezone": "Europe/Berlin"}, "at", {"at": "2100-07-01T07:00:00Z"}),
        ({"manual": True}, "manual", {}),
    ],
)
def test_every_trigger_can_be_written(
    client: httpx.Client, words: dict[str, Any], kind: str | None, has: dict[str, Any] | None
) -> None:
    answer = client.post("/v1/jobs", json={"name": "a", **WORK, **words})
    if kind is None or has is None:
        problem(answer, 422, "invalid-input")
        return
    trigger = answer.json()["trigger"]
    assert trigger["kind"] == kind
    assert trigger | has == trigger


def test_a_job_may_fire_after_others(client: httpx.Client) -> None:
    make(client, "b", manual=True)
    make(client, "c", manual=True)
    job = make(client, "a", after=["b", "c"], on_failure="run")
    assert job["trigger"] == {"kind": "after", "after": ["b", "c"], "when": "all_succeeded", "on_failure": "run"}
    problem(client.post("/v1/jobs", json={"name": "d", "after": ["nobody"], **WORK}), 422, "invalid-input")
    problem(client.delete("/v1/jobs/b"), 409, "conflict")


def test_all_policies_can_be_written_and_are_read_back(client: httpx.Client) -> None:
    client.put("/v1/calendars/free", json={"rules": [{"kind": "weekdays", "days": ["sun"]}]})
    words = {
        "priority": 2,
        "queue": "films",
        "timeout": "10m",
        "key": "k",
        "limit": 3,
        "tags": ["x", "y"],
        "retry": {"retries": 5, "delay": "1s", "factor": 3, "cap": "1m", "jitter": 0, "never": ["ValueError"]},
        "max_losses": 1,
        "on_key_failure": "stop",
        "misfire": "all",
        "grace": "1s",
        "catch_up_window": "2h",
        "catch_up_limit": 7,
        "start_deadline": "5m",
        "overlap": "forbid",
        "jitter": "2s",
        "start_at": "2090-01-01T00:00:00Z",
        "end_at": "2100-01-01T00:00:00Z",
        "max_firings": 9,
        "calendars": ["free"],
        "on_excluded": "next_day",
        "keep_succeeded": 4,
        "keep_failed": 5,
        "regions": ["eu", "us"],
        "completions": 2,
        "parallelism": 1,
        "dependencies": ["b"],
        "on_dependency_failure": "run",
    }
    job = make(client, "a", every="1h", **words)
    assert job["policy"] == {
        "misfire": "all", "grace": "1s", "catch_up_window": "2h", "catch_up_limit": 7, "start_deadline": "5m",
        "overlap": "forbid", "jitter": "2s", "start_at": "2090-01-01T00:00:00Z", "end_at": "2100-01-01T00:00:00Z",
        "max_firings": 9, "calendars": ["free"], "on_excluded": "next_day", "keep_succeeded": 4, "keep_failed": 5,
        "regions": ["eu", "us"], "completions": 2, "parallelism": 1,
        "dependencies": ["b"], "on_dependency_failure": "run",
    }  # fmt: skip
    reported = {name: job[name] for name in ("priority", "queue", "timeout", "key", "limit", "tags", "retries")}
    assert reported == {
        "priority": 2,
        "queue": "films",
        "timeout": "10m",
        "key": "k",
        "limit": 3,
        "tags": ["x", "y"],
        "retries": 5,
    }
    # A change of one word keeps all others as they are.
    changed = client.patch("/v1/jobs/a", json={"priority": 3}).json()
    same = {
        name: value
        for name, value in job.items()
        if name in changed and name not in ("priority", "version", "updated_at", "next_run", "next_fire_at")
    }
    assert same == {name: changed[name] for name in same}
    assert (changed["priority"], changed["version"]) == (3, 2)


def test_what_has_passed_is_refused_for_a_new_job_but_not_for_one_that_had_its_time(private_door: Door) -> None:
    client = private_door.client("admin")
    document = problem(
        client.post("/v1/jobs", json={"name": "a", "run_at": "2001-01-01T00:00:00Z", **WORK}), 422, "invalid-input"
    )
    assert fields(document) == ["run_at"]
    document = problem(
        client.post("/v1/jobs", json={"name": "a", "at": "2001-01-01T00:00:00Z", **WORK}), 422, "invalid-input"
    )
    assert fields(document) == ["at"]


def test_jobs_are_listed_by_name_in_pages_and_filtered(client: httpx.Client) -> None:
    for n in range(7):
        make(client, f"job-{n}", manual=True, tags=["even"] if n % 2 == 0 else [])
    client.post("/v1/jobs/job-3/pause")
    seen, cursor = [], None
    while True:
        page = client.get("/v1/jobs", params={"limit": 3, **({"cursor": cursor} if cursor else {})}).json()
        seen += [job["name"] for job in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == [f"job-{n}" for n in range(7)]

    def names(**query: Any) -> list[str]:
        return [job["name"] for job in client.get("/v1/jobs", params=query).json()["items"]]

    assert names(tag="even") == ["job-0", "job-2", "job-4", "job-6"]
    assert names(state="paused") == ["job-3"]
    assert names(app="api", task="encode", limit=1) == ["job-0"]
    assert names(app="other") == []
    problem(client.get("/v1/jobs", params={"cursor": "!!"}), 422, "invalid-input")
    assert fields(problem(client.get("/v1/jobs?limit=0&bogus=1&state=x"), 422, "invalid-input")) == [
        "bogus",
        "limit",
        "state",
    ]


def test_an_edit_of_an_older_version_is_refused_if_the_caller_says_which_it_means(client: httpx.Client) -> None:
    make(client, "a", manual=True)
    first = client.get("/v1/jobs/a").headers["etag"]
    assert client.patch("/v1/jobs/a", json={"priority": 1}, headers={"If-Match": first}).headers["etag"] == '"2"'
    refused = client.patch("/v1/jobs/a", json={"priority": 9}, headers={"If-Match": first})
    problem(refused, 412, "precondition-failed")
    assert refused.headers["etag"] == '"2"'
    problem(
        client.put("/v1/jobs/a", json={"name": "a", "manual": True, **WORK}, headers={"If-Match": first}),
        412,
        "precondition-failed",
    )
    problem(client.delete("/v1/jobs/a", headers={"If-Match": first}), 412, "precondition-failed")
    assert client.get("/v1/jobs/a").json()["priority"] == 1
    assert client.delete("/v1/jobs/a", headers={"If-Match": '"2"'}).status_code == 204
    problem(client.get("/v1/jobs/a"), 404, "not-found")


def test_replacing_forgets_what_is_left_out_and_changing_does_not(client: httpx.Client) -> None:
    make(client, "a", every="1h", priority=2, timeout="1m", tags=["x"])
    changed = client.patch("/v1/jobs/a", json={"timeout": None, "tags": ["y"]}).json()
    assert (changed["priority"], changed["timeout"], changed["tags"]) == (2, None, ["y"])
    replaced = client.put("/v1/jobs/a", json={"name": "a", "every": "1h", **WORK}).json()
    assert (replaced["priority"], replaced["tags"]) == (5, [])
    problem(client.put("/v1/jobs/a", json={"name": "b", "every": "1h", **WORK}), 422, "invalid-input")


def test_a_change_may_be_of_another_kind_of_trigger_or_work(client: httpx.Client) -> None:
    make(client, "a", schedule="0 0 * * *", timezone="Europe/Berlin")
    assert client.patch("/v1/jobs/a", json={"every": "5m"}).json()["trigger"] == {
        "kind": "every", "every": "5m", "anchor": None,
    }  # fmt: skip
    assert (
        client.patch("/v1/jobs/a", json={"cron": "5 0 * * *", "tz": "Asia/Tokyo"}).json()["trigger"]["tz"]
        == "Asia/Tokyo"
    )
    assert client.patch("/v1/jobs/a", json={"cron": "6 0 * * *"}).json()["trigger"]["tz"] == "Asia/Tokyo"
    changed = client.patch("/v1/jobs/a", json={"command": "echo hello"}).json()
    assert (changed["task"], changed["args"]) == ("command", {"argv": ["echo", "hello"]})
    assert client.patch("/v1/jobs/a", json={"task": "elsewhere"}).json()["args"] == {}
    document = problem(client.patch("/v1/jobs/a", json={"every": "5m", "run_at": "x", "oops": 1}), 422, "invalid-input")
    assert "oops" in fields(document)


def test_a_job_is_paused_resumed_and_triggered(client: httpx.Client) -> None:
    make(client, "a", every="1h")
    paused = client.post("/v1/jobs/a/pause", json={"reason": "maintenance"}).json()
    assert (paused["state"], paused["paused_why"]) == ("paused", "maintenance")
    assert "paused" in " ".join(client.get("/v1/jobs/a").json()["why"])
    assert client.post("/v1/jobs/a/resume").json()["state"] == "active"
    firing = client.post("/v1/jobs/a/trigger")
    assert (firing.status_code, firing.json()["kind"]) == (201, "manual")
    run = client.get(f"/v1/runs/{firing.json()['run_id']}").json()
    assert (run["job"], run["task"], run["state"]) == ("a", "encode", "pending")
    assert [each["run_id"] for each in client.get("/v1/jobs/a/runs").json()["items"]] == [run["run_id"]]
    assert [each["run_id"] for each in client.get("/v1/jobs/a/firings").json()["items"]] == [run["run_id"]]


def test_the_ledger_is_paged_by_whole_instants(client: httpx.Client) -> None:
    make(client, "a", manual=True, completions=2)
    for _ in range(4):
        client.post("/v1/jobs/a/trigger")
    seen, cursor = [], ""
    for _ in range(10):
        page = client.get("/v1/jobs/a/firings", params={"limit": 3, **({"cursor": cursor} if cursor else {})}).json()
        assert len(page["items"]) <= 3
        seen += [(each["fire_at"], each["index"]) for each in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 8


def test_the_next_fire_times_can_be_previewed(client: httpx.Client) -> None:
    make(client, "a", schedule="0 2 * * *", timezone="Europe/Berlin")
    items = client.get("/v1/jobs/a/next", params={"count": 400}).json()["items"]
    assert len(items) == 400
    assert any("clocks" in each["note"] for each in items)
    assert items[0]["zone"] == "Europe/Berlin"
    tokyo = client.get("/v1/jobs/a/next", params={"count": 1, "timezone": "Asia/Tokyo"}).json()["items"]
    assert tokyo[0]["local"].endswith("+09:00")
    assert fields(problem(client.get("/v1/jobs/a/next?timezone=Nowhere"), 422, "invalid-input")) == ["timezone"]


def test_calendars_are_saved_and_used(client: httpx.Client) -> None:
    rules = [
        {"kind": "weekdays", "days": ["sat", "sun"]},
        {"kind": "not", "rules": [{"kind": "daily_window", "start": "09:00", "end": "17:00"}]},
    ]
    assert client.put("/v1/calendars/office", json={"rules": rules, "timezone": "Europe/Berlin"}).status_code == 201
    assert client.put("/v1/calendars/office", json={"rules": rules, "timezone": "Europe/Berlin"}).status_code == 200
    assert client.get("/v1/calendars/office").json() == {"name": "office", "rules": rules, "timezone": "Europe/Berlin"}
    assert [each["name"] for each in client.get("/v1/calendars").json()["items"]] == ["office"]
    problem(client.get("/v1/calendars/none"), 404, "not-found")
    bad = {"rules": [{"kind": "weekdays", "days": ["funday"]}], "timezone": "UTC"}
    assert fields(problem(client.put("/v1/calendars/bad", json=bad), 422, "invalid-input")) == ["rules[0].days[0]"]
    problem(client.put("/v1/calendars/bad", json={"rules": [{"kind": "nothing"}]}), 422, "invalid-input")
    document = problem(
        client.post("/v1/jobs", json={"name": "a", "every": "1h", "calendars": ["none"], **WORK}), 422, "invalid-input"
    )
    assert fields(document)[0].startswith("calendars")


def test_each_change_is_in_the_audit_trail_with_its_caller_and_what_was_before(private_door: Door) -> None:
    ann, bob = private_door.client("admin"), private_door.client("operator", subject="bob")
    job = make(ann, "a", every="1h")
    bob.patch("/v1/jobs/a", json={"priority": 1}, headers={"X-Request-Id": "r-1"})
    bob.post("/v1/jobs/a/pause")
    ann.delete("/v1/jobs/a")
    trail = ann.get("/v1/audit").json()["items"]
    assert [(each["subject"], each["action"]) for each in trail] == [
        ("ann", "job.delete"), ("bob", "job.pause"), ("bob", "job.update"), ("ann", "job.create"),
    ]  # fmt: skip
    update = trail[2]
    assert (update["before"]["priority"], update["after"]["priority"], update["request_id"]) == (5, 1, "r-1")
    assert update["target"] == f"job:{job['job_id']}"
    assert len(ann.get("/v1/audit", params={"subject": "bob"}).json()["items"]) == 2
    page = ann.get("/v1/audit", params={"limit": 3}).json()
    rest = ann.get("/v1/audit", params={"limit": 3, "cursor": page["next"]}).json()
    assert (len(page["items"]), len(rest["items"]), rest["next"]) == (3, 1, None)
    problem(bob.get("/v1/audit"), 403, "forbidden")


def test_each_submission_is_in_the_audit_trail_and_each_run_names_its_submitter(private_door: Door) -> None:
    ann, bob = private_door.client("admin"), private_door.client("operator", subject="bob")
    body = {"task": "encode", "args": {"video": "v"}}
    runs = [
        bob.post("/v1/runs", json=each, headers={"X-Request-Id": f"r-{number}"}).json()
        for number, each in enumerate((body, body, {**body, "key": "k"}, {**body, "tags": ["t"]}))
    ]
    own = ann.post("/v1/runs", json=body).json()
    batch = bob.post("/v1/runs:batch", json={"runs": [body] * 3}).json()["run_ids"]
    trail = ann.get("/v1/audit").json()["items"]
    assert [(each["subject"], each["action"], each["target"]) for each in trail] == [
        ("bob", "run.submit_batch", "runs:3"), ("ann", "run.submit", f"run:{own['run_id']}"),
        *(("bob", "run.submit", f"run:{run['run_id']}") for run in reversed(runs)),
    ]  # fmt: skip
    assert trail[0]["after"] == {"count": 3, "first": batch[0], "last": batch[-1]}
    assert (trail[-1]["request_id"], trail[-1]["before"]) == ("r-0", None)
    assert trail[-1]["after"] == {"task": "encode", "queue": "default", "priority": 5}
    (known,) = ann.get("/v1/audit", params={"target": f"run:{own['run_id']}"}).json()["items"]
    assert known["subject"] == "ann"
    said = {each: ann.get(f"/v1/runs/{each}").json()["submitted_by"] for each in batch}
    assert set(said.values()) == {"bob"}
    assert [run["submitted_by"] for run in (*runs, own)] == ["bob"] * 4 + ["ann"]


def test_a_run_that_is_retried_is_submitted_by_the_caller_that_retries_it(private_door: Door) -> None:
    ann, bob = private_door.client("admin"), private_door.client("operator", subject="bob")
    run = ann.post("/v1/runs", json={"task": "encode", "args": {"video": "v"}, "tags": ["t"]}).json()
    ann.post(f"/v1/runs/{run['run_id']}/cancel")
    again = bob.post(f"/v1/runs/{run['run_id']}/retry").json()
    assert (again["submitted_by"], again["retry_of"], again["tags"]) == ("bob", run["run_id"], ["t"])


def test_a_text_that_needs_a_shell_is_no_command(client: httpx.Client) -> None:
    answer = client.post("/v1/jobs", json={**DAILY, "command": "echo a | wc -l"})
    assert fields(answer.json()) == ["command"]
    assert "sh -c 'echo a | wc -l'" in answer.text
    answer = client.post("/v1/runs", json={"task": "command", "args": {"argv": "echo a | wc -l"}})
    assert fields(answer.json()) == ["args"]
    assert client.post("/v1/runs", json={"command": ["grep", "a|b"]}).status_code == 201


def test_waits_have_names(client: httpx.Client) -> None:
    assert make(client, "named", manual=True, retry={"retries": 7, "policy": "fixed-5m"})["retries"] == 7
    changed = client.patch("/v1/jobs/named", json={"retry": {"policy": "doubling-30s-to-15m"}}).json()
    assert changed["retries"] == 7, "the number stays"
    both = client.patch("/v1/jobs/named", json={"retry": {"policy": "fixed-5m", "delay": "1s"}})
    assert fields(both.json()) == ["retry.delay"]
    unknown = client.patch("/v1/jobs/named", json={"retry": {"policy": "often"}})
    assert fields(unknown.json()) == ["retry.policy"]


def test_the_newest_firings_of_a_page_of_jobs_are_one_statement(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"job-{number}" for number in range(6)]
    for name in names:
        make(client, name, manual=True)
    for name in names[:4]:
        assert client.post(f"/v1/jobs/{name}/trigger", json={}).is_success
    statements = []
    execute = Transaction.execute

    def noted(tx: Transaction, query: str, *values: Any) -> Any:
        statements.append(query)
        return execute(tx, query, *values)

    monkeypatch.setattr(Transaction, "execute", noted)
    jobs = client.get("/v1/jobs", params={"last": "true"}).json()["items"]
    assert [job["last"] is not None for job in jobs] == [True] * 4 + [False] * 2
    assert len([query for query in statements if "FROM firings" in query or "firings AS" in query]) == 1
