"""What makes requests quick must not make them different."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from door import Door, fields, open_door, problem

from mainspring.api.application import ENDPOINTS
from mainspring.api.load.limits import SLICE
from mainspring.api.router import Router

ROUTER = Router(ENDPOINTS)


def test_the_router_leads_to_the_endpoint_of_a_path_and_nowhere_else() -> None:
    for endpoint in ENDPOINTS:
        path = re.sub(r"\{(\w+)\}", r"some-\1", endpoint.path)
        named = {name: f"some-{name}" for name in re.findall(r"\{(\w+)\}", endpoint.path)}
        for spelling in (path, path + "/", "/" + path, path.replace("/", "//")):
            assert ROUTER.find(endpoint.method, spelling) == (endpoint, named), spelling
        for other in (path.upper() + "X", path + "/x/y", path + ".", "/." + path, path + "/..", "x" + path):
            assert ROUTER.find(endpoint.method, other) != (endpoint, named), other
        assert ROUTER.find("TRACE", path) is None
        assert ROUTER.find("OPTIONS", path) is None
        if named:
            found = ROUTER.find(endpoint.method, re.sub(r"\{\w+\}", "", endpoint.path))
            assert found is None or found.endpoint.path != endpoint.path


@pytest.mark.parametrize(
    "body",
    [
        {"task": "elsewhere"},
        {"task": "elsewhere", "priority": 2, "queue": "mail", "region": "eu", "timeout": "10m", "retry": 3},
        {"task": "encode", "priority": None},
        {"task": "elsewhere", "retry": {"retries": 2, "delay": "1s"}},
        {"task": "elsewhere", "tags": ["x"]},
    ],
)
def test_a_submission_like_one_before_is_answered_and_stored_alike(door: Door, body: dict[str, Any]) -> None:
    client = door.client("submitter")
    answers = [client.post("/v1/runs", json={**body, "args": {"video": text}}) for text in ("a", 'ü"\\', "a")]
    assert [answer.status_code for answer in answers] == [201] * 3
    first, other, again = (answer.json() for answer in answers)
    changing = {"run_id", "due_at", "created_at", "updated_at", "args"}
    for answer in (other, again):
        assert {name: answer[name] for name in answer if name not in changing} == {
            name: first[name] for name in first if name not in changing
        }
        stored = client.get(f"/v1/runs/{answer['run_id']}").json()
        reported = {name: value for name, value in answer.items() if name != "warnings"}
        assert {name: stored[name] for name in reported} == reported
        assert list(answer) == list(first)
    assert other["args"]["video"] == 'ü"\\'
    assert answers[1].headers["location"] == f"/v1/runs/{other['run_id']}"


def test_a_submission_like_one_before_is_checked_like_the_first(door: Door) -> None:
    client = door.client("submitter")
    assert client.post("/v1/runs", json={"task": "encode", "args": {"video": "v"}}).status_code == 201
    wrong = client.post("/v1/runs", json={"task": "encode", "args": {"film": 1}})
    assert fields(problem(wrong, 422, "invalid-input")) == ["args.film", "args.video"]
    problem(client.post("/v1/runs", json={"task": "encode", "args": [1]}), 422, "invalid-input")
    problem(door.client("viewer").post("/v1/runs", json={"task": "encode", "args": {"video": "v"}}), 403, "forbidden")
    other = door.client("submitter", namespace='n"ä').post("/v1/runs", json={"task": "encode", "args": {"video": "v"}})
    assert other.json()["namespace"] == 'n"ä'


def test_runs_of_one_batch_that_differ_in_more_than_arguments_keep_their_order(door: Door) -> None:
    client = door.client("submitter")
    kinds: list[dict[str, Any]] = [
        {"task": "encode", "args": {"video": "0"}},
        {"task": "elsewhere", "args": {"video": "1"}},
        {"task": "encode", "args": {"video": "2"}},
        {"task": "encode", "args": {"video": "3"}, "priority": 1},
        {"task": "elsewhere", "args": {"video": "4"}},
        {"task": "elsewhere"},
    ]
    ids = client.post("/v1/runs:batch", json={"runs": kinds}).json()["run_ids"]
    runs = [client.get(f"/v1/runs/{run_id}").json() for run_id in ids]
    assert [(run["task"], run["priority"]) for run in runs] == [
        (kind["task"], kind.get("priority", 5)) for kind in kinds
    ]
    assert [run["args"].get("video") for run in runs] == ["0", "1", "2", "3", "4", None]
    bad = [*kinds, {"task": "encode", "args": {}}, {"task": "encode", "args": {"video": "v"}}, {}]
    found = fields(problem(client.post("/v1/runs:batch", json={"runs": bad}), 422, "invalid-input"))
    assert found == ["runs[6].args.video", "runs[8].task"]


def test_a_crowd_is_not_taken_for_more_than_it_is(tmp_path: Path) -> None:
    with open_door(tmp_path, submit_rate=100) as door, ThreadPoolExecutor(2 * SLICE) as pool:
        clients = [door.client("submitter") for _ in range(2 * SLICE)]
        for _ in range(2):
            answers = pool.map(lambda client: client.post("/v1/runs", json={"task": "x"}), clients)
            assert {answer.status_code for answer in answers} == {201}
