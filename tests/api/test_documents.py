"""Health, metrics, the OpenAPI document and the page made of it."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import msgspec
import pytest
from door import Door, make_app, open_door, problem

from mainspring.api.application import ENDPOINTS
from mainspring.api.problems import TITLES
from mainspring.api.server import Server
from mainspring.core.answers import Backlog
from mainspring.stores.sqlite.claims.pressure import Pressure

ROOT = Path(__file__).parent.parent.parent


def test_the_document_lists_every_endpoint_with_examples_that_are_right(door: Door) -> None:
    document = door.client("viewer").get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    listed = {(method.upper(), path) for path, found in document["paths"].items() for method in found}
    assert listed == {(each.method, each.path) for each in ENDPOINTS}
    ids = [operation["operationId"] for found in document["paths"].values() for operation in found.values()]
    assert len(ids) == len(set(ids))
    for endpoint in ENDPOINTS:
        if endpoint.example is not None:
            assert endpoint.body is not None
            msgspec.convert(endpoint.example, endpoint.body)


def test_the_page_for_people_needs_nothing_from_elsewhere(door: Door) -> None:
    answer = door.client("viewer").get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "/v1/runs:batch" in answer.text
    assert not re.search(r"(src|href)=|@import|url\(|<script", answer.text)


def test_the_page_for_people_can_be_read(door: Door) -> None:
    page = door.client().get("/docs").text
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert len(headings) == len(set(headings)), "each heading once"
    assert "`" not in page
    create = page.partition("<code>/v1/jobs</code> Create a job.")[2].partition("</details>")[0]
    assert "<code>name</code> <b class=must>required</b><td>body<td>text" in create
    assert "<code>priority</code><td>body<td>whole number<td>1 (highest) to 10 (lowest)" in create
    assert "curl -H &quot;Authorization: Bearer $TOKEN&quot; -H" in create
    assert page.count("<pre>curl ") == len(ENDPOINTS)


def test_a_browser_finds_its_way_from_the_root(door: Door) -> None:
    answer = door.client().get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    for link in re.findall(r"href=(\S+?)>", answer.text):
        assert door.client("viewer").get(link).status_code == 200, link


def test_it_is_alive_and_ready_and_says_what_was_looked_at(door: Door) -> None:
    client = door.client()
    assert client.get("/health/live").json() == {"status": "alive"}
    checks = {"store": "ok", "schema": "ok", "breaker.store": "ok", "breaker.dependencies": "ok"}
    assert client.get("/health/ready").json() == {
        "status": "ready", "reasons": [], "checks": checks, "degradation": "normal", "pressure": 0.0,
    }  # fmt: skip


def test_it_is_not_ready_without_its_store(tmp_path: Path) -> None:
    import asyncio

    with open_door(tmp_path) as door:
        asyncio.run(door.app.close())
        answer = door.client().get("/health/ready")
        assert (answer.status_code, answer.json()["checks"]) == (
            503,
            {
                "store": "cannot be reached (StoreUnavailable)",
                "schema": "unknown",
                "breaker.store": "ok",
                "breaker.dependencies": "ok",
            },
        )
        assert door.client().get("/health/live").status_code == 200
        document = problem(door.client("viewer").get("/v1/jobs"), 503, "unavailable")
        assert str(tmp_path) not in str(document)


def test_metrics_count_what_happens_under_bounded_labels(private_door: Door) -> None:
    client = private_door.client("admin")
    for n in range(3):
        client.post("/v1/runs", json={"task": f"t{n}"})
        client.get(f"/v1/runs/no-{n}")
        client.get(f"/nowhere/{n}")
    text = client.get("/metrics").text
    figures = dict(re.findall(r"^(\S+) (\S+)$", text, re.MULTILINE))
    assert figures["mainspring_submissions_total"] == "3.0"
    assert figures['mainspring_runs{namespace="default",state="pending"}'] == "3.0"
    assert figures['mainspring_http_requests_total{method="GET",route="/v1/runs/{run_id}",status="404"}'] == "3.0"
    assert figures['mainspring_http_requests_total{method="GET",route="unrouted",status="404"}'] == "3.0"
    assert "no-1" not in text
    documented = set(re.findall(r"^\| `(mainspring_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    served = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    assert {name for name in served if not name.endswith("_created")} == documented
    assert {name for name, kind in served.items() if kind == "counter"} == {
        name for name in served if name.endswith("_total")
    }, "what only grows is a counter, and nothing else is"


def test_the_depth_of_a_queue_is_counted_far_beyond_what_alerts_ask_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def backlog(_: Pressure, limit: int) -> list[Backlog]:
        return [Backlog("default", "default", "default", 5, min(12_000_000, limit), 0)]

    monkeypatch.setattr(Pressure, "backlog", backlog)
    depth = r'^mainspring_queue_depth{namespace="default",priority="5",queue="default",region="default"} (\S+)$'
    with open_door(tmp_path) as door:
        assert re.findall(depth, door.client("admin").get("/metrics").text, re.MULTILINE) == ["1.2e+07"]


def test_what_comes_twice_is_counted_by_kind(private_door: Door) -> None:
    admin, worker = private_door.client("admin"), private_door.client("worker")
    for _ in range(3):
        admin.post("/v1/runs", json={"task": "elsewhere"}, headers={"Idempotency-Key": "once"})
    worker_id = worker.post("/v1/workers", json={"tasks": ["elsewhere"]}).json()["worker_id"]
    (claim,) = worker.put(f"/v1/workers/{worker_id}/assign", json={}).json()["runs"]
    for token in (claim["token"], claim["token"], claim["token"] + 1):
        worker.put(f"/v1/runs/{claim['run_id']}/complete", json={"token": token})
    text = admin.get("/metrics").text
    found = dict(re.findall(r'^mainspring_duplicates_total{kind="(\w+)"} (\S+)$', text, re.MULTILINE))
    assert found == {"submission": "2.0", "repeated_result": "1.0", "stale_result": "1.0"}


def test_metrics_count_the_ends_of_runs(private_door: Door) -> None:
    admin, worker = private_door.client("admin"), private_door.client("worker")
    for priority in (3, 3, 9):
        admin.post("/v1/runs", json={"task": "elsewhere", "priority": priority})
    worker_id = worker.post("/v1/workers", json={"tasks": ["elsewhere"]}).json()["worker_id"]
    (claim,) = worker.put(f"/v1/workers/{worker_id}/assign", json={"limit": 1}).json()["runs"]
    done = f"/v1/runs/{claim['run_id']}/complete"
    for token in (claim["token"], claim["token"] + 1):
        worker.put(done, json={"token": token})
    figures = dict(re.findall(r"^(\S+) (\S+)$", admin.get("/metrics").text, re.MULTILINE))
    expected = {
        "mainspring_submissions_total": 3,
        "mainspring_claims_total": 1,
        'mainspring_runs_finished_total{state="succeeded"}': 1,
        'mainspring_attempts_total{outcome="succeeded"}': 1,
        'mainspring_reports_total{verdict="accepted"}': 1,
        'mainspring_reports_total{verdict="stale"}': 1,
        "mainspring_run_delay_seconds_count": 1,
        "mainspring_run_seconds_count": 1,
        'mainspring_queue_depth{namespace="default",priority="3",queue="default",region="default"}': 1,
        'mainspring_queue_depth{namespace="default",priority="9",queue="default",region="default"}': 1,
        'mainspring_workers{namespace="default",state="alive"}': 1,
        'mainspring_workers{namespace="default",state="dead"}': 0,
        'mainspring_worker_places{namespace="default"}': 1,
        'mainspring_worker_utilisation{namespace="default"}': 0,
        'mainspring_workers_dead_share{namespace="default"}': 0,
        "mainspring_degradation_level": 0,
        'mainspring_breaker_open{breaker="store"}': 0,
    }
    assert {name: float(figures[name]) for name in expected} == expected
    assert (
        float(
            figures[
                'mainspring_queue_oldest_seconds{namespace="default",priority="9",queue="default",region="default"}'
            ]
        )
        > 0
    )


def test_a_worker_serves_its_health_on_a_port_of_its_own(tmp_path: Path) -> None:
    import asyncio

    app = make_app(tmp_path, health_port=0)
    server = Server(app, health_only=True)
    asyncio.run(server.start())
    try:
        assert server.url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{server.url}/health/ready").json()["status"] == "ready"
        assert "mainspring_run_seconds_bucket" in httpx.get(f"{server.url}/metrics").text
        assert httpx.get(f"{server.url}/v1/jobs").status_code == 404
    finally:
        asyncio.run(server.stop())
        asyncio.run(app.close())


def test_a_worker_may_serve_health_to_other_machines_and_nothing_else(tmp_path: Path) -> None:
    import asyncio

    app = make_app(tmp_path, health_port=0, health_host="0.0.0.0")
    server = Server(app, health_only=True)
    asyncio.run(server.start())
    try:
        elsewhere = {"Host": "worker-7.cluster.local:8322"}
        for path in ("/health/live", "/health/ready", "/metrics"):
            assert httpx.get(f"{server.url}{path}", headers=elsewhere).status_code == 200, path
        for path in ("/v1/jobs", "/v1/runs", "/docs", "/openapi.json"):
            assert httpx.get(f"{server.url}{path}", headers=elsewhere).status_code in (403, 404), path
    finally:
        asyncio.run(server.stop())
        asyncio.run(app.close())


def test_every_type_of_problem_is_documented() -> None:
    documented = (ROOT / "docs" / "api.md").read_text()
    for kind, (status, _) in TITLES.items():
        assert f"| `{kind}` | {status} |" in documented, kind
