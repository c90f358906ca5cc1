"""Admission under load: callers without a token hold no slot, and no subject or namespace keeps the others out."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from door import Door, open_door, problem, until

from mainspring.api.load.capacity import Capacity
from mainspring.api.problems import Problem
from mainspring.api.resources.system import health as health_room
from mainspring.api.resources.system.health import Vitals
from mainspring.api.wire import protocol
from mainspring.errors import StoreUnavailable

CROWD = 150
HEALTH = (b"/health/live", b"/health/ready", b"/health/liveness", b"/health/readiness")


def ask(door: Door, head: bytes) -> socket.socket:
    connection = door.connect()
    connection.sendall(head)
    return connection


def first_line(connection: socket.socket) -> bytes:
    connection.settimeout(5)
    return connection.recv(65_536).partition(b"\r\n")[0]


@pytest.mark.parametrize("path", [*HEALTH, b"/v1/jobs"])
def test_strangers_that_declare_a_body_and_send_none_deny_no_service(private_door: Door, path: bytes) -> None:
    head = b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
    with ExitStack() as held:
        crowd = [held.enter_context(ask(private_door, head)) for _ in range(CROWD)]
        client = private_door.client("viewer")
        assert client.get("/v1/jobs").status_code == 200
        assert client.get("/health/ready").status_code == 200
        answers = {first_line(each) for each in crowd}
    assert answers <= {b"HTTP/1.1 400 Bad Request", b"HTTP/1.1 401 Unauthorized"}
    assert set(private_door.server.context.capacity.busy.values()) == {0}


def test_a_body_of_unknown_length_is_not_waited_for_where_none_is_taken(private_door: Door) -> None:
    head = b"GET /health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with ask(private_door, head) as connection:
        assert first_line(connection) == b"HTTP/1.1 400 Bad Request"
    with ask(private_door, head + b"0\r\n\r\n") as connection:
        assert first_line(connection) == b"HTTP/1.1 200 OK"


def test_strangers_with_slow_bodies_hold_nothing(private_door: Door) -> None:
    head = b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    with ExitStack() as held:
        crowd = [held.enter_context(ask(private_door, head)) for _ in range(CROWD)]
        assert {first_line(each) for each in crowd} == {b"HTTP/1.1 401 Unauthorized"}
        assert private_door.client("submitter").post("/v1/runs", json={"task": "x"}).status_code == 201


def test_a_connection_whose_body_never_comes_is_closed(private_door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "UNREAD_BODY_S", 0.05)
    with ask(private_door, b"GET /health/live HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n") as connection:
        assert b"this request takes no body" in private_reading(connection)


def private_reading(connection: socket.socket) -> bytes:
    connection.settimeout(10)
    answer = b""
    while chunk := connection.recv(65_536):  # Ends with the connection; a connection that stays is a timeout.
        answer += chunk
    return answer


def test_a_body_that_is_late_but_comes_leaves_the_connection_usable(private_door: Door) -> None:
    live = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
    with ask(private_door, live + b"Content-Length: 5\r\n\r\n") as connection:
        assert first_line(connection) == b"HTTP/1.1 400 Bad Request"
        connection.sendall(b"hello" + live + b"\r\n")
        assert first_line(connection) == b"HTTP/1.1 200 OK"


def test_slow_bodies_of_one_caller_keep_no_other_out(tmp_path: Path) -> None:
    with open_door(tmp_path, requests=10) as door, ExitStack() as held:
        token = door.token("submitter", subject="slow")
        head = f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 50\r\n\r\n{{"
        crowd = [held.enter_context(ask(door, head.encode())) for _ in range(20)]
        reading = door.server.context.capacity
        until(lambda: reading.busy["reading"] + reading.refused["reading"] == 20)
        assert reading.busy["reading"] == 9
        assert reading.busy["working"] == 0
        assert door.client("submitter", subject="other").post("/v1/runs", json={"task": "x"}).status_code == 201
        assert len(crowd) == 20


def test_health_and_metrics_answer_when_all_places_are_taken(tmp_path: Path) -> None:
    with open_door(tmp_path, requests=1) as door:
        client = door.client("viewer")
        with door.server.context.capacity.enter("working", ("default", "somebody")):
            assert client.get("/v1/jobs").status_code == 503
            assert client.get("/health/live").status_code == 200
            assert client.get("/health/ready").status_code == 200
            assert client.get("/metrics").status_code == 200


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[Door]:
    with open_door(tmp_path, watchers=40) as door:
        yield door


def test_streams_of_one_viewer_leave_places_to_other_tenants_and_subjects(tenants: Door) -> None:
    greedy = tenants.token("viewer", subject="greedy", namespace="noisy")
    head = f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {greedy}\r\n\r\n".encode()
    with ExitStack() as held:
        lines = [first_line(held.enter_context(ask(tenants, head))) for _ in range(60)]
        assert lines.count(b"HTTP/1.1 200 OK") == 20
        assert lines.count(b"HTTP/1.1 503 Service Unavailable") == 40
        for namespace, subject in (("quiet", "hand"), ("noisy", "hand")):
            hand = tenants.client("worker", subject=subject, namespace=namespace)
            worker = hand.post("/v1/workers", json={"tasks": ["x"]}).json()["worker_id"]
            assert hand.put(f"/v1/workers/{worker}/assign", json={"wait": "10ms"}).status_code == 200
        text = tenants.client("viewer").get("/metrics").text
        assert 'mainspring_http_turned_away_total{kind="waiting"} 40.0' in text


def test_a_namespace_with_many_subjects_leaves_places_to_the_others() -> None:
    capacity = Capacity(requests=1, watchers=100)
    taken = 0
    for number in range(200):
        with suppress(Problem):
            capacity.take("waiting", ("noisy", f"subject {number}"))
            taken += 1
    assert taken == 80
    with pytest.raises(Problem, match="already for namespace noisy"):
        capacity.take("waiting", ("noisy", "one more"))
    for _ in range(5):
        capacity.take("waiting", ("quiet", "ann"))


def test_one_caller_of_a_server_without_tokens_may_use_all_of_it() -> None:
    capacity = Capacity(requests=1, watchers=10)
    places = [capacity.take("waiting", None) for _ in range(10)]
    with pytest.raises(Problem, match="10 long polls"):
        capacity.take("waiting", None)
    capacity.leave(places[0])
    capacity.take("waiting", ("default", "ann"))


def test_what_is_given_back_is_forgotten() -> None:
    capacity = Capacity(requests=5, watchers=5)
    for number in range(100):
        with capacity.enter("working", ("default", f"subject {number}")):
            pass
    assert not capacity._subjects
    assert not capacity._namespaces


@pytest.fixture
def access_lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    logger, kept = logging.getLogger("mainspring.access"), []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(json.loads(record.getMessage()))

    handler = Keeping()
    logger.addHandler(handler)
    yield lambda: kept
    logger.removeHandler(handler)


def test_the_access_log_names_the_forbidden_caller(
    private_door: Door, access_lines: Callable[[], list[dict[str, Any]]]
) -> None:
    answer = private_door.client("viewer", subject="eve").post("/v1/runs", json={"task": "x"})
    problem(answer, 403, "forbidden")
    line = until(lambda: [each for each in access_lines() if each["status"] == 403])[0]
    assert line["subject"] == "eve"


@pytest.mark.parametrize("path", ["/health/live", "/v1/jobs", "/v1/jobs/", "/v1/events", "/metrics", "/openapi.json"])
def test_head_is_answered_wherever_get_is(private_door: Door, path: str) -> None:
    client = private_door.client("admin")
    answer = client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert client.head("/v1/jobs/none").status_code == 404
    assert private_door.client().head("/v1/jobs").status_code == 401
    assert "HEAD" in client.request("POST", "/v1/events").headers["allow"]
    assert client.get("/v1/jobs").status_code == 200  # The connection has nothing left over.


class Away:
    """A store that can be taken away: its calls fail, or hang."""

    def __init__(self, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
        self._context = door.server.context
        self._patch = monkeypatch

    def fail(self) -> None:
        async def failing(*_: object, **__: object) -> object:
            raise StoreUnavailable("gone")

        self._replace(failing)

    def hang(self) -> None:
        async def hanging(*_: object, **__: object) -> object:
            await asyncio.sleep(3_600)
            return None

        self._replace(hanging)

    def _replace(self, call: object) -> None:
        for name in ("count_runs", "backlog", "revocations", "list_workers", "schema"):
            for store in (self._context.unguarded, self._context.store):
                self._patch.setattr(store, name, call, raising=False)


def figure(text: str, name: str) -> float:
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


@pytest.mark.parametrize("how", ["fail", "hang"])
def test_metrics_answer_while_the_store_is_away(private_door: Door, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(health_room, "STORE_FIGURES_WAIT_S", 0.1)
    monkeypatch.setattr(sys.modules["mainspring.api.auth.gatekeeper"], "REFRESH_S", 0.1)
    monkeypatch.setattr(sys.modules["mainspring.api.auth.gatekeeper"], "FRESH", 0)
    monkeypatch.setattr(sys.modules["mainspring.api.auth.gatekeeper"], "STALE", 0)
    client = private_door.client("viewer")
    fresh = client.get("/metrics").text
    assert figure(fresh, "mainspring_store_figures_age_seconds") == 0.0
    assert figure(fresh, "mainspring_store_up") == 1.0
    getattr(Away(private_door, monkeypatch), how)()
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert figure(answer.text, "mainspring_store_figures_age_seconds") > 0.0
    assert figure(answer.text, "mainspring_store_up") == 0.0
    assert 'mainspring_runs{namespace="default",state="pending"}' in answer.text
    assert "mainspring_breaker_open" in answer.text
    problem(client.get("/v1/jobs"), 503, "unavailable")
    other = private_door.client("viewer", namespace="other").get("/metrics").text
    assert figure(other, "mainspring_store_figures_age_seconds") == float("inf")


def test_readiness_names_what_is_not_ready(private_door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    assert private_door.client().get("/health/readiness").json()["reasons"] == []
    Away(private_door, monkeypatch).fail()
    answer = private_door.client().get("/health/readiness")
    assert answer.status_code == 503
    assert "store: cannot be reached (StoreUnavailable)" in answer.json()["reasons"]


async def test_concurrent_requests_of_health_ask_the_store_once() -> None:
    calls: list[int] = []

    class Slow:
        async def schema(self) -> tuple[int, int]:
            calls.append(1)
            await asyncio.sleep(0)
            return 1, 1

    call: Any = SimpleNamespace(context=SimpleNamespace(unguarded=Slow()))
    vitals = Vitals()
    checks = await asyncio.gather(*(vitals.check_store(call) for _ in range(10)))
    assert checks == [{"store": "ok", "schema": "ok"}] * 10
    assert len(calls) == 1
    await vitals.check_store(call)
    assert len(calls) == 2
