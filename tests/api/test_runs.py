"""Runs over HTTP: submitted, watched, controlled; idempotency keys and rate limits."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from door import Door, fields, open_door, problem, until

from mainspring.core.model import LogLine

BODY = {"task": "encode", "args": {"video": "v1"}}


@pytest.fixture
def client(private_door: Door) -> httpx.Client:
    return private_door.client("admin")


def submit(client: httpx.Client, **words: Any) -> dict[str, Any]:
    answer = client.post("/v1/runs", json={**BODY, **words})
    assert answer.status_code == 201, answer.text
    run: dict[str, Any] = answer.json()
    return run


def test_a_run_is_submitted_and_found(client: httpx.Client) -> None:
    answer = client.post("/v1/runs", json={**BODY, "priority": 2, "tags": ["x"], "timeout": "1m", "delay": "1h"})
    run = answer.json()
    assert answer.headers["location"] == f"/v1/runs/{run['run_id']}"
    found = client.get(answer.headers["location"]).json()
    why, causes, spent = found.pop("why"), found.pop("causes"), found.pop("spent")
    assert (found, spent) == (run, [])
    assert [line.startswith(cause["text"]) for line, cause in zip(why, causes, strict=True)] == [True] * len(why)
    assert (run["state"], run["priority"], run["tags"]) == ("pending", 2, ["x"])
    assert "not due" in " ".join(why) or "due" in " ".join(why)
    problem(client.get("/v1/runs/01m7h0vadjb0daq5qy6sgrcq8d"), 404, "not-found")


def test_runs_wait_for_others_and_for_their_key(client: httpx.Client) -> None:
    first = submit(client, key="k")
    second = submit(client, key="k")
    third = submit(client, after=[first["run_id"]], on_failure="run")
    assert (first["state"], second["state"], third["state"]) == ("pending", "blocked", "blocked")
    problem(client.post("/v1/runs", json={**BODY, "after": ["01m7h0vadjb0daq5qy6sgrcq8d"]}), 422, "invalid-input")


def test_a_batch_is_accepted_whole_or_not_at_all(client: httpx.Client) -> None:
    runs = [{"task": "a" if n % 2 else "b", "args": {"n": n}, "priority": 1 + n % 3} for n in range(1_000)]
    answer = client.post("/v1/runs:batch", json={"runs": runs})
    assert answer.status_code == 201
    ids = answer.json()["run_ids"]
    assert len(set(ids)) == answer.json()["count"] == 1_000
    tenth = client.get(f"/v1/runs/{ids[10]}").json()
    assert (tenth["task"], tenth["args"], tenth["priority"]) == ("b", {"n": 10}, 2)
    problem(
        client.post("/v1/runs:batch", json={"runs": [*runs[:5], {"task": "c", "after": ["nothing"]}]}),
        422,
        "invalid-input",
    )
    problem(client.post("/v1/runs:batch", json={"runs": [*runs[:5], {"task": ""}]}), 422, "invalid-input")
    problem(client.post("/v1/runs:batch", json={"runs": []}), 422, "invalid-input")
    assert len(client.get("/v1/runs", params={"limit": 1_000}).json()["items"]) == 1_000


def test_ten_thousand_runs_are_a_batch_and_one_more_is_too_many(client: httpx.Client) -> None:
    runs = [{"task": "x", "args": {"n": n}} for n in range(10_000)]
    assert client.post("/v1/runs:batch", json={"runs": runs}).json()["count"] == 10_000
    problem(client.post("/v1/runs:batch", json={"runs": [*runs, runs[0]]}), 422, "invalid-input")


def test_runs_are_listed_newest_first_in_pages_and_filtered(client: httpx.Client) -> None:
    ids = [submit(client, tags=["even"] if n % 2 == 0 else [])["run_id"] for n in range(5)]
    other = client.post("/v1/runs", json={"task": "other"}).json()
    client.post(f"/v1/runs/{ids[1]}/cancel")

    def found(**query: Any) -> list[str]:
        return [run["run_id"] for run in client.get("/v1/runs", params=query).json()["items"]]

    assert found() == [other["run_id"], *reversed(ids)]
    assert found(state="cancelled") == [ids[1]]
    assert found(state="cancelled,pending", task="encode") == list(reversed(ids))
    assert found(tag="even") == [ids[4], ids[2], ids[0]]
    assert found(task="other") == [other["run_id"]]
    eu = submit(client, region="eu")["run_id"]
    assert (found(region="eu"), found(region="nowhere")) == ([eu], [])
    assert client.get("/v1/runs:count", params={"region": "eu", "state": "pending"}).json()["count"] == 1
    client.post(f"/v1/runs/{eu}/cancel")
    assert found(region="eu", state="cancelled") == [eu]
    assert found(since="2100-01-01T00:00:00Z") == []
    assert found(until="2001-01-01T00:00:00Z") == []
    assert found(since="2001-01-01T00:00:00Z", until="2100-01-01T00:00:00Z") == found()
    page = client.get("/v1/runs", params={"limit": 4}).json()
    rest = client.get("/v1/runs", params={"limit": 4, "cursor": page["next"]}).json()
    assert [run["run_id"] for run in page["items"] + rest["items"]] == found()
    assert rest["next"] is None


def test_runs_are_listed_counted_and_acted_on_by_who_submitted_them(private_door: Door) -> None:
    ann, bob = (private_door.client("operator", subject=subject) for subject in ("ann", "bob"))
    hers = [ann.post("/v1/runs", json=BODY).json()["run_id"] for _ in range(3)]
    batch = ann.post("/v1/runs:batch", json={"runs": [BODY, BODY]}).json()
    his = bob.post("/v1/runs", json=BODY).json()["run_id"]
    by_ann = {"submitted_by": "ann"}
    listed = [run["run_id"] for run in bob.get("/v1/runs", params=by_ann).json()["items"]]
    assert sorted(listed) == sorted([*hers, *batch["run_ids"]])
    assert bob.get("/v1/runs:count", params=by_ann).json()["count"] == 5
    assert bob.get("/v1/runs", params={"submitted_by": "eve"}).json()["items"] == []
    assert bob.post("/v1/runs:act", json={"action": "cancel", **by_ann}).json()["done"] == 5
    assert bob.get("/v1/runs", params={**by_ann, "state": "cancelled"}).json()["items"] != []
    assert bob.get(f"/v1/runs/{his}").json()["state"] == "pending"
    again = bob.post(f"/v1/runs/{hers[0]}/retry").json()["run_id"]
    assert {run["run_id"] for run in bob.get("/v1/runs", params={"submitted_by": "bob"}).json()["items"]} == {
        his,
        again,
    }


def test_output_is_read_backwards(private_door: Door, client: httpx.Client) -> None:
    run_id = client.post("/v1/runs", json=BODY).json()["run_id"]
    lines = [LogLine(run_id, 1, number, "stdout", f"line {number}") for number in range(1, 11)]
    private_door.ask(lambda store: store.record(lines, []))
    numbers = [line["number"] for line in client.get(f"/v1/runs/{run_id}/logs").json()["items"]]

    def texts(**query: int) -> list[str]:
        return [line["text"] for line in client.get(f"/v1/runs/{run_id}/logs", params=query).json()["items"]]

    assert texts(before=numbers[8], limit=3) == ["line 6", "line 7", "line 8"]
    assert texts(before=numbers[5], limit=3) == ["line 3", "line 4", "line 5"]
    assert texts(before=numbers[2], after=numbers[0]) == ["line 2"]
    assert texts(before=numbers[0]) == []
    assert texts(before=numbers[4], tail=2) == ["line 3", "line 4"]
    problem(client.get(f"/v1/runs/{run_id}/logs", params={"before": 0}), 422, "invalid-input")


def test_a_run_is_cancelled_once(client: httpx.Client) -> None:
    run = submit(client)
    answer = client.post(f"/v1/runs/{run['run_id']}/cancel", json={"reason": "no need"})
    assert answer.json() == {"run_id": run["run_id"], "state": "cancelled"}
    assert client.get(f"/v1/runs/{run['run_id']}").json()["reason"] == "no need"
    problem(client.post(f"/v1/runs/{run['run_id']}/cancel"), 409, "conflict")


def test_what_did_not_succeed_can_be_retried_as_a_new_run(client: httpx.Client) -> None:
    run = submit(client, priority=3)
    problem(client.post(f"/v1/runs/{run['run_id']}/retry"), 409, "conflict")
    client.post(f"/v1/runs/{run['run_id']}/cancel")
    again = client.post(f"/v1/runs/{run['run_id']}/retry")
    assert again.status_code == 201
    assert (again.json()["retry_of"], again.json()["priority"], again.json()["state"]) == (run["run_id"], 3, "pending")


def test_waiting_ends_with_the_run_or_with_the_time(client: httpx.Client) -> None:
    run = submit(client)
    url = f"/v1/runs/{run['run_id']}"
    assert client.get(f"{url}/wait", params={"timeout": "50ms"}).json()["state"] == "pending"
    threading.Timer(0.2, lambda: client.post(f"{url}/cancel")).start()
    assert client.get(f"{url}/wait", params={"timeout": "15s"}).json()["state"] == "cancelled"
    problem(client.get(f"{url}/wait", params={"timeout": "soon"}), 422, "invalid-input")


def test_the_same_key_and_body_get_the_same_answer_and_another_body_a_conflict(client: httpx.Client) -> None:
    key = {"Idempotency-Key": "order-1"}
    first = client.post("/v1/runs", json=BODY, headers=key)
    again = client.post("/v1/runs", json=BODY, headers=key)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert len(client.get("/v1/runs").json()["items"]) == 1
    problem(client.post("/v1/runs", json={**BODY, "priority": 1}, headers=key), 409, "idempotency-conflict")
    problem(client.post("/v1/runs:batch", json={"runs": [BODY]}, headers=key), 409, "idempotency-conflict")
    assert client.post("/v1/runs", json=BODY).json()["run_id"] != first.json()["run_id"]


def test_a_key_is_its_subjects_own(private_door: Door) -> None:
    key = {"Idempotency-Key": "order-1"}
    ann = private_door.client("submitter").post("/v1/runs", json=BODY, headers=key).json()
    bob = private_door.client("submitter", subject="bob").post("/v1/runs", json={"task": "x"}, headers=key)
    assert bob.status_code == 201
    assert bob.json()["run_id"] != ann["run_id"]


def test_of_many_requests_with_one_key_at_once_one_takes_effect(private_door: Door) -> None:
    statuses: list[int] = []
    ids: set[str] = set()

    def post() -> None:
        with httpx.Client(base_url=private_door.url, headers=headers, timeout=20) as own:
            answer = own.post("/v1/runs", json=BODY)
            statuses.append(answer.status_code)
            if answer.status_code == 201:
                ids.add(answer.json()["run_id"])

    headers = {"Idempotency-Key": "k", "Authorization": f"Bearer {private_door.token('admin')}"}
    threads = [threading.Thread(target=post) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {201, 409}
    assert len(ids) == 1
    assert len(private_door.client("admin").get("/v1/runs").json()["items"]) == 1


def test_a_refused_request_does_not_use_up_its_key(client: httpx.Client) -> None:
    key = {"Idempotency-Key": "k"}
    problem(client.post("/v1/runs", json={"task": "encode", "args": {}}, headers=key), 422, "invalid-input")
    assert client.post("/v1/runs", json=BODY, headers=key).status_code == 201


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_that_cannot_be_one_is_refused(client: httpx.Client, key: str) -> None:
    problem(client.post("/v1/runs", json=BODY, headers={"Idempotency-Key": key}), 400, "bad-request")


def test_every_post_takes_a_key(client: httpx.Client) -> None:
    job = {"name": "a", "manual": True, **BODY}
    for path, body in (("/v1/jobs", job), ("/v1/runs:batch", {"runs": [BODY, BODY]}), ("/v1/jobs/a/trigger", {})):
        key = {"Idempotency-Key": f"key of {path}"}
        first, again = (client.post(path, json=body, headers=key) for _ in range(2))
        assert (first.status_code, first.content) == (201, again.content)
    assert len(client.get("/v1/runs").json()["items"]) == 3


def test_a_server_that_died_over_a_key_is_followed_without_doing_it_twice(tmp_path: Path) -> None:
    """The answer is lost after the effect: the next server makes the same ids, and so nothing twice."""
    with open_door(tmp_path) as door:
        client = door.client("admin")
        for path, body in (("/v1/runs", BODY), ("/v1/jobs", {"name": "a", "manual": True, **BODY})):
            key = {"Idempotency-Key": path}
            first = client.post(path, json=body, headers=key)
            _lose_answer(door)
            again = client.post(path, json=body, headers=key)
            assert "idempotency-replayed" not in again.headers
            for name in ("run_id", "job_id"):
                assert again.json().get(name) == first.json().get(name)
        assert len(client.get("/v1/runs").json()["items"]) == 1


def _lose_answer(door: Door) -> None:
    """As if the server had been killed after the effect and before the answer was kept, long ago."""
    import sqlite3

    path = door.app.settings.store.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE replies SET status = NULL, body = NULL, held_until = 0")


@pytest.fixture
def slow_door(tmp_path: Path) -> Iterator[Door]:
    """A server that allows ten submissions a minute."""
    with open_door(tmp_path, submit_rate=10) as door:
        yield door


def test_beyond_the_rate_submissions_are_refused_with_when_to_come_again(slow_door: Door) -> None:
    client = slow_door.client("admin")
    answers = [client.post("/v1/runs", json=BODY) for _ in range(12)]
    assert [answer.status_code for answer in answers[:10]] == [201] * 10
    assert answers[0].headers["ratelimit-limit"] == "10"
    refused = answers[-1]
    problem(refused, 429, "rate-limited")
    assert 1 <= int(refused.headers["retry-after"]) <= 12
    assert slow_door.client("admin", subject="bob").post("/v1/runs", json=BODY).status_code == 201
    assert client.get("/v1/runs").status_code == 200


def test_jobs_and_queries_have_rates_of_their_own(tmp_path: Path) -> None:
    with open_door(tmp_path, submit_rate=2, job_rate=3, query_rate=5) as door:
        client = door.client("admin")
        jobs = [client.post("/v1/jobs", json={"name": f"j{n}", "manual": True, "task": "x"}) for n in range(4)]
        assert [answer.status_code for answer in jobs] == [201, 201, 201, 429]
        assert (
            "3 jobs and calendars may be created, declared or edited in a minute"
            in problem(jobs[-1], 429, "rate-limited")["detail"]
        )
        bodies = [{"name": f"k{n}", "manual": True, "task": "x"} for n in range(4)]
        synced = client.post("/v1/jobs:sync", json={"app": "a", "jobs": bodies})
        assert "4 jobs and calendars at once are more than the 3" in problem(synced, 429, "rate-limited")["detail"]
        problem(client.patch("/v1/jobs/j1", json={"priority": 3}), 429, "rate-limited")
        problem(client.put("/v1/calendars/week", json={"rules": []}), 429, "rate-limited")
        hand = door.client("worker")
        hands = [hand.post("/v1/workers", json={"tasks": ["x"]}).status_code for _ in range(4)]
        assert hands == [201, 201, 201, 429]
        assert [client.post("/v1/runs", json=BODY).status_code for _ in range(3)] == [201, 201, 429]
        looks = [client.get("/v1/runs") for _ in range(6)]
        assert [answer.status_code for answer in looks] == [200] * 5 + [429]
        assert 1 <= int(looks[-1].headers["retry-after"]) <= 12
        assert door.client("admin", subject="bob").get("/v1/runs").status_code == 200
        assert client.get("/health/ready").status_code == 200
        text = client.get("/metrics").text
    for operation, refused in (("submit", 1), ("define", 4), ("register", 1), ("query", 1)):
        assert f'mainspring_rate_limited_total{{operation="{operation}"}} {refused}.0' in text


def test_a_trigger_counts_the_runs_that_it_makes(slow_door: Door) -> None:
    client = slow_door.client("admin")
    for name, completions in (("small", 4), ("large", 11)):
        body = {"name": name, "manual": True, "task": "x", "completions": completions}
        assert client.post("/v1/jobs", json=body).status_code == 201
    statuses = [client.post("/v1/jobs/small/trigger").status_code for _ in range(3)]
    assert statuses == [201, 201, 429]
    problem(client.post("/v1/jobs/large/trigger"), 429, "rate-limited")


def test_a_batch_counts_its_members(slow_door: Door) -> None:
    client = slow_door.client("admin")
    assert client.post("/v1/runs:batch", json={"runs": [BODY] * 8}).status_code == 201
    problem(client.post("/v1/runs:batch", json={"runs": [BODY] * 3}), 429, "rate-limited")
    assert client.post("/v1/runs:batch", json={"runs": [BODY] * 2}).status_code == 201
    answer = client.post("/v1/runs:batch", json={"runs": [BODY] * 11})
    assert "more than the 10" in problem(answer, 429, "rate-limited")["detail"]


def test_the_rate_is_one_for_all_servers_and_cannot_be_evaded_by_more_tokens(tmp_path: Path) -> None:
    with open_door(tmp_path, submit_rate=10) as one, open_door(tmp_path, submit_rate=10) as other:
        statuses = [
            door.client("submitter").post("/v1/runs", json=BODY, headers={"X-Forwarded-For": f"10.0.0.{n}"}).status_code
            for n in range(8)
            for door in (one, other)
        ]
        assert 8 <= statuses.count(201) <= 11
        assert statuses[-1] == 429


def test_two_servers_share_keys_jobs_and_revocations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.api.auth.gatekeeper.FRESH", 50_000)
    with open_door(tmp_path) as one, open_door(tmp_path) as other:
        key = {"Idempotency-Key": "k"}
        first = one.client("admin").post("/v1/runs", json=BODY, headers=key)
        again = other.client("admin").post("/v1/runs", json=BODY, headers=key)
        assert again.content == first.content
        eve = one.token("viewer", subject="eve")
        other.client("admin").post("/v1/tokens:revoke", json={"subject": "eve"})
        with httpx.Client(base_url=one.url, headers={"Authorization": f"Bearer {eve}"}) as client:
            until(lambda: client.get("/v1/jobs").status_code == 401)


def events(stream: httpx.Response, count: int) -> list[tuple[int, dict[str, Any]]]:
    """The next events of a stream, with their ids."""
    found, place = [], 0
    for line in stream.iter_lines():
        if line.startswith("id: "):
            place = int(line.removeprefix("id: "))
        if line.startswith("data: "):
            found.append((place, json.loads(line.removeprefix("data: "))))
        if len(found) == count:
            break
    return found


def number(door: Door) -> None:
    """As the relay does."""
    door.ask(lambda store: store.number_events(1_000))


def test_events_are_followed_and_resumed_from_the_last_that_was_seen(private_door: Door) -> None:
    client = private_door.client("admin")
    rival = private_door.client("admin", namespace="rival", subject="eve")
    rival.post("/v1/runs", json=BODY)
    runs = [submit(client) for _ in range(3)]
    client.post(f"/v1/runs/{runs[0]['run_id']}/cancel")
    number(private_door)
    with client.stream("GET", "/v1/events", params={"after": -1}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        seen = events(stream, 4)
    assert [event["run_id"] for _, event in seen] == [*(run["run_id"] for run in runs), runs[0]["run_id"]]
    assert {event["namespace"] for _, event in seen} == {"default"}
    with client.stream("GET", "/v1/events", headers={"Last-Event-ID": str(seen[1][0])}) as stream:
        assert events(stream, 2) == seen[2:]
    with client.stream("GET", "/v1/events", params={"after": -1, "kind": "run.cancelled"}) as stream:
        assert [event["kind"] for _, event in events(stream, 1)] == ["run.cancelled"]


def test_events_come_as_they_happen(private_door: Door) -> None:
    client = private_door.client("admin")

    def act() -> None:
        submit(client)
        number(private_door)

    with client.stream("GET", "/v1/events") as stream:
        timer = threading.Timer(0.2, act)
        timer.start()
        ((_, event),) = events(stream, 1)
        timer.join()
    assert event["kind"].startswith("run.")


def test_a_stream_gives_its_place_back_when_its_reader_leaves(tmp_path: Path) -> None:
    with open_door(tmp_path, watchers=1) as door:
        client, other = door.client("admin"), door.client("admin")
        with client.stream("GET", "/v1/events") as stream:
            chunks: Any = stream.iter_raw()  # Kept: a reader that is forgotten closes its connection.
            next(chunks)
            with other.stream("GET", "/v1/events") as second:
                assert second.status_code == 503
            assert other.get("/v1/jobs").status_code == 200
            chunks.close()
        submit(other)
        until(lambda: door.server.context.capacity.busy["waiting"] == 0)


def test_a_server_that_stops_ends_the_waits(tmp_path: Path) -> None:
    import asyncio

    with open_door(tmp_path) as door:
        client = door.client("admin")
        run_id = submit(client)["run_id"]
        seen: list[httpx.Response] = []

        def wait() -> None:
            with httpx.Client(base_url=door.url, headers=client.headers, timeout=60) as own:
                seen.append(own.get(f"/v1/runs/{run_id}/wait", params={"timeout": "50s"}))

        waiting = threading.Thread(target=wait)
        waiting.start()
        with client.stream("GET", "/v1/events") as stream:
            chunks = stream.iter_raw()
            next(chunks)
            until(lambda: door.server.context.capacity.busy["waiting"] == 2)
            asyncio.run(door.server.stop())
            assert b"".join(chunks) == b""
        waiting.join(10)
        assert seen[0].json()["state"] == "pending"
        assert door.server.stopped


COMMANDS: list[tuple[dict[str, Any], list[str]]] = [
    ({"argv": "echo a | cat", "shell": True}, []),
    ({"argv": "echo 'a b'"}, []),
    ({"argv": ["echo"], "env": {"PW": {"$secret": "PW"}}, "success": [0, 3], "stdin": {"a": 1}, "result": "line"}, []),
    (
        {"argv": ["echo"], "cwdd": "x", "success": "zero", "final": [999]},
        ["args.cwdd", "args.final[0]", "args.success"],
    ),
    ({"argv": ["echo"], "shell": True}, ["args"]),
    ({"argv": ["echo"], "env": {"PW": {"$secret": "../x"}}}, ["args"]),
    ({}, ["args.argv"]),
    ({"argv": []}, ["args.argv"]),
]
CALLS: list[tuple[dict[str, Any], list[str]]] = [
    ({"url": "https://example.org/${run_id}", "json": {"a": 1}, "sign": {"$secret": "KEY"}}, []),
    ({"method": "FETCH", "redirects": 99}, ["args.method", "args.redirects", "args.url"]),
    ({"url": "file:///etc/passwd"}, ["args"]),
]


@pytest.mark.parametrize(
    ("task", "args", "wrong"),
    [("command", *row) for row in COMMANDS] + [("http", *row) for row in CALLS],
)
def test_what_a_command_or_a_call_is_given_is_checked_when_it_is_submitted(
    door: Door, task: str, args: dict[str, Any], wrong: list[str]
) -> None:
    client = door.client("admin")
    specs: dict[str, dict[str, Any]] = {"command": {"argv": ["id"]}, "http": {"url": "https://example.org"}}
    good = specs[task]
    one = client.post("/v1/runs", json={"task": task, "args": args})
    many = client.post("/v1/runs:batch", json={"runs": [{"task": task, "args": each} for each in (good, args)]})
    job = client.post("/v1/jobs", json={"name": f"j{len(args)}", "task": task, "args": args, "manual": True})
    if wrong:
        assert fields(problem(one, 422, "invalid-input")) == wrong
        assert fields(problem(many, 422, "invalid-input")) == [f"runs[1].{field}" for field in wrong]
        assert fields(problem(job, 422, "invalid-input")) == wrong
    else:
        assert (one.status_code, many.status_code, one.json()["args"]) == (201, 201, args)
        assert job.status_code in (201, 409)


def test_a_batch_whose_runs_wait_for_each_other_is_a_graph(client: httpx.Client) -> None:
    parts = [{"task": "cut", "args": {"part": n}, "tags": ["film"]} for n in range(3)]
    joined = {"task": "publish", "after": ["#0", "#1", "#2"], "on_failure": "run"}
    answer = client.post("/v1/runs:batch", json={"runs": [*parts, joined, {"task": "mail", "dependencies": ["#3"]}]})
    assert answer.status_code == 201
    ids, tag = answer.json()["run_ids"], answer.json()["tag"]
    assert tag == f"group:{ids[0]}"
    runs = [client.get(f"/v1/runs/{each}").json() for each in ids]
    assert [run["state"] for run in runs] == ["pending", "pending", "pending", "blocked", "blocked"]
    assert [run["tags"] for run in runs] == [["film", tag]] * 3 + [[tag]] * 2
    found = client.get("/v1/runs", params={"tag": tag}).json()["items"]
    assert {run["run_id"] for run in found} == set(ids)
    assert str(ids[0]) in str(runs[3]["causes"])
    done = client.post("/v1/runs:act", json={"action": "cancel", "tag": tag}).json()
    assert done["done"] == 5


@pytest.mark.parametrize(
    ("runs", "field"),
    [
        ([{"task": "a", "after": ["#0"]}], "runs[0].after"),
        ([{"task": "a"}, {"task": "b", "after": ["#2"]}, {"task": "c"}], "runs[1].after"),
        ([{"task": "a"}, {"task": "b", "after": ["#x"]}], "runs[1].after"),
        ([{"task": "a"}, {"task": "b", "dependencies": ["#-1"]}], "runs[1].dependencies"),
        ([{"task": "a", "unique": "k"}, {"task": "b", "after": ["#0"]}], "runs[0].unique"),
    ],
)
def test_a_graph_with_an_unknown_place_is_refused(
    client: httpx.Client, runs: list[dict[str, object]], field: str
) -> None:
    document = problem(client.post("/v1/runs:batch", json={"runs": runs}), 422, "invalid-input")
    assert document["errors"][0]["field"] == field


def test_a_submission_with_a_unique_key_joins_the_run_that_waits(client: httpx.Client) -> None:
    first = submit(client, unique="film-1")
    assert submit(client, unique="film-1")["run_id"] == first["run_id"]
    problem(client.post("/v1/runs", json={**BODY, "args": {"video": "v2"}, "unique": "film-1"}), 409, "conflict")
    assert submit(client, unique="film-2")["run_id"] != first["run_id"]


def test_a_task_that_no_program_knows_is_accepted_with_a_warning(private_door: Door) -> None:
    client = private_door.client("admin")
    assert private_door.client("worker").post("/v1/workers", json={"tasks": ["trim"]}).status_code == 201
    remedies = {"encoed": "did you mean encode?", "trimm": "did you mean trim?", "else": "start a worker that does"}
    for task, remedy in remedies.items():
        warned = f"no live worker knows task {task}, and it waits until one does: {remedy}"
        answer = client.post("/v1/runs", json={"task": task})
        assert (answer.status_code, answer.json()["warnings"]) == (201, [warned])
        batch = client.post("/v1/runs:batch", json={"runs": [{"task": task}, {"task": "trim"}]})
        assert batch.json()["warnings"] == [warned]
        job = client.post("/v1/jobs", json={"name": task, "manual": True, "task": task})
        assert job.json()["warnings"] == [warned]
    for known in ({"task": "trim"}, {"task": "encode", "args": {"video": "v1"}}, {"command": "true"}):
        assert "warnings" not in client.post("/v1/runs", json=known).json()
