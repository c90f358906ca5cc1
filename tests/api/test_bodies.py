"""Bodies: bounded in size, time and depth; every fault named at once; never a 500."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from door import Door, fields, open_door, problem, read_all, until

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server with little patience and little room."""
    folder = tmp_path_factory.mktemp("narrow")
    with open_door(folder, body_limit=1_000, body_timeout="300ms", requests=1, payload_limit=500) as door:
        yield door


def test_a_body_that_says_it_is_too_large_is_not_read(narrow: Door) -> None:
    answer = narrow.client("admin").post("/v1/jobs", content=b"x" * 1_001, headers=JSON)
    assert "1000" in problem(answer, 413, "too-large")["detail"]


def test_a_body_that_does_not_say_is_cut_off_once_it_is_too_large(narrow: Door) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(10_000):
            sent += 1
            yield b"x" * 1_000
            time.sleep(0.001)

    try:
        answer = narrow.client("admin").post("/v1/jobs", content=endless(), headers=JSON)
        problem(answer, 413, "too-large")
    except httpx.WriteError:
        pass  # The server closed while we were still sending: that is cut off, too.
    assert sent < 10_000


def test_arguments_beyond_the_limit_of_payloads_are_too_large(narrow: Door) -> None:
    body = {"task": "elsewhere", "args": {"text": "x" * 600}}
    document = problem(narrow.client("admin").post("/v1/runs", json=body), 413, "too-large")
    assert fields(document) == ["args"]


def test_a_body_that_drips_is_given_up(narrow: Door) -> None:
    token = narrow.token("admin")
    head = f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    with narrow.connect() as connection:
        connection.sendall(head.encode() + b"Content-Length: 100\r\n\r\n{")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"urn:mainspring:problem:slow-body" in answer


def test_beyond_its_capacity_the_server_refuses_at_once_and_says_when_to_come_again(narrow: Door) -> None:
    client = narrow.client("viewer")
    with narrow.server.context.capacity.enter("working", ("default", "somebody")):
        answer = client.get("/v1/jobs")
    problem(answer, 503, "overloaded")
    assert int(answer.headers["retry-after"]) >= 1
    assert client.get("/v1/jobs").status_code == 200


def test_all_wrong_fields_are_named_at_once(door: Door) -> None:
    body = {
        "schedule": "61 * * * *",
        "timezone": "Nowhere/Land",
        "command": "unclosed 'quote",
        "priority": 99,
        "retry": {"factor": 0, "oops": 1},
        "timeout": "soon",
        "calendars": [""],
        "misfire": "perhaps",
        "unknown": True,
        "start_at": "tomorrow",
    }
    document = problem(door.client("admin").post("/v1/jobs", json=body), 422, "invalid-input")
    assert fields(document) == sorted(
        ["calendars[0]", "command", "misfire", "name", "priority", "retry.factor", "retry.oops", "schedule", "start_at",
         "timeout", "timezone", "unknown"]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "field", "fault"),
    [
        ({"task": ""}, "task", "is empty"),
        ({"task": "t" * 201}, "task", "has more than 200 characters"),
        ({"task": 7}, "task", "is a whole number, not a text"),
        ({"task": "t", "priority": 0}, "priority", "is below 1"),
        ({"task": "t", "priority": "high"}, "priority", "is a text, not a whole number"),
        ({"task": "t", "tags": "etl"}, "tags", "is a text, not an array"),
    ],
)
def test_faults_are_in_words_and_not_in_types_of_python(
    door: Door, body: dict[str, object], field: str, fault: str
) -> None:
    (found,) = problem(door.client("admin").post("/v1/runs", json=body), 422, "invalid-input")["errors"]
    assert (found["field"], found["fault"]) == (field, fault)


def test_the_remedy_of_an_unknown_word_is_the_known_ones(door: Door) -> None:
    client = door.client("admin")
    retried = client.post("/v1/runs", json={"task": "elsewhere", "retry": {"policy": "doubling"}})
    (fault,) = problem(retried, 422, "invalid-input")["errors"]
    assert fault["remedy"] == "choose one of fixed-5m, doubling-1m, doubling-2m, doubling-30s-to-15m, quadrupling-10s"
    (fault,) = problem(client.get("/v1/runs?state=done"), 422, "invalid-input")["errors"]
    assert fault["remedy"].startswith("choose one of blocked, pending, running")


def test_the_remedy_of_several_faults_is_not_that_of_one(door: Door) -> None:
    client = door.client("admin")
    one = problem(client.post("/v1/runs", json={"task": "x", "priority": 99}), 422, "invalid-input")
    assert one["remedy"] == one["errors"][0]["remedy"]
    two = problem(client.post("/v1/runs", json={"task": "x", "priority": 99, "timeout": "soon"}), 422, "invalid-input")
    assert len(two["errors"]) == 2
    assert two["remedy"] == "each of errors says what would be right for its field"


def test_faults_in_a_batch_are_named_by_their_place(door: Door) -> None:
    body = {"runs": [{"task": "a"}, {"task": "b", "priority": 11}, {"args": {}}, {"task": "d", "delay": "soon"}]}
    document = problem(door.client("admin").post("/v1/runs:batch", json=body), 422, "invalid-input")
    assert fields(document) == ["runs[1].priority"]
    body = {"runs": [{"task": "a"}, {"args": {}}, {"task": "d", "delay": "soon"}, {"task": "encode", "args": {}}]}
    document = problem(door.client("admin").post("/v1/runs:batch", json=body), 422, "invalid-input")
    assert fields(document) == ["runs[1].task", "runs[2].delay", "runs[3].args.video"]


def test_a_mistyped_field_is_answered_with_the_nearest(door: Door) -> None:
    body = {"name": "x", "shedule": "* * * * *", "task": "encode"}
    document = problem(door.client("admin").post("/v1/jobs", json=body), 422, "invalid-input")
    assert {each["field"]: each["remedy"] for each in document["errors"]}["shedule"] == "did you mean schedule?"


def test_arguments_are_checked_against_the_signature_of_a_task_that_is_known(door: Door) -> None:
    body = {"task": "encode", "args": {"video": 5, "sice": "4K"}}
    document = problem(door.client("admin").post("/v1/runs", json=body), 422, "invalid-input")
    assert fields(document) == ["args.sice", "args.video"]


def test_a_task_that_is_not_known_here_is_accepted_since_another_program_may_know_it(door: Door) -> None:
    answer = door.client("submitter").post("/v1/runs", json={"task": "elsewhere", "args": {"n": [1, None, "ü"]}})
    assert answer.status_code == 201
    assert answer.json()["args"] == {"n": [1, None, "ü"]}


def test_every_answer_has_a_request_id_and_security_headers_and_none_allows_other_origins(door: Door) -> None:
    client = door.client("viewer")
    for path in ("/v1/jobs", "/v1/nothing", "/health/live"):
        answer = client.get(path, headers={"Origin": "https://elsewhere.example"})
        assert answer.headers["x-request-id"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "server" not in answer.headers


def test_a_request_id_is_kept_if_it_is_one_and_replaced_if_it_is_not(door: Door) -> None:
    client = door.client("viewer")
    assert client.get("/v1/jobs", headers={"X-Request-Id": "abc-1.2_3"}).headers["x-request-id"] == "abc-1.2_3"
    assert client.get("/v1/jobs", headers={"X-Request-Id": "no\tid"}).headers["x-request-id"] != "no\tid"


def test_the_access_log_is_json_without_secrets(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    import json
    import logging

    caplog.set_level(logging.INFO, logger="mainspring.access")  # Another test may have left the logger quiet.
    log = logging.getLogger("mainspring.access")
    log.addHandler(caplog.handler)
    try:
        token = door.token("viewer", subject="bob")
        with httpx.Client(base_url=door.url, headers={"Authorization": f"Bearer {token}"}) as client:
            client.get("/v1/jobs?tag=hush", headers={"X-Request-Id": "logged"})
        line = until(lambda: [each.getMessage() for each in caplog.records if '"logged"' in each.getMessage()])[0]
    finally:
        log.removeHandler(caplog.handler)
    reported = json.loads(line)
    assert (reported["method"], reported["path"], reported["status"], reported["subject"]) == (
        "GET",
        "/v1/jobs",
        200,
        "bob",
    )
    assert token not in line
    assert "hush" not in line


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", b"400"),
        (b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000, b"431"),
        (b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400"),
        (
            b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"400",
        ),
    ],
)
def test_what_is_hardly_http_is_refused_and_the_connection_closed(door: Door, sent: bytes, status: bytes) -> None:
    answer = door.raw(sent, wait_s=5)
    assert answer.split(b" ")[1] == status
    assert b"urn:mainspring:problem:" in answer


def test_a_connection_that_never_says_what_it_wants_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.api.wire.protocol.HEADERS_S", 0.2)
    with open_door(tmp_path) as door:
        assert door.raw(b"GET /v1/jobs HTTP/1.1\r\nHos", wait_s=10).startswith(b"HTTP/1.1 408")
        assert door.raw(b"", wait_s=10) == b""


def test_all_wrong_arguments_are_named_at_once(narrow: Door) -> None:
    answer = narrow.client("admin").post("/v1/runs", json={"task": "encode", "args": {"vide": 1, "size": 3, "x": 4}})
    assert fields(problem(answer, 422, "invalid-input")) == ["args.size", "args.vide", "args.video", "args.x"]


def test_of_several_names_the_wrong_one_is_said(narrow: Door) -> None:
    client = narrow.client("admin")
    job = {"name": "next", "task": "encode", "args": {"video": "v"}}
    assert client.post("/v1/jobs", json={**job, "name": "there", "manual": True}).status_code == 201
    for words, name in (({"after": ["there", "nowhere"]}, "nowhere"), ({"every": "1h", "calendars": ["none"]}, "none")):
        (fault,) = problem(client.post("/v1/jobs", json=job | words), 422, "invalid-input")["errors"]
        assert repr(name) in fault["fault"]
