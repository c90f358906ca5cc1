"""Whatever fits the schema, and whatever nearly does, is answered as the schema says: by schemathesis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from door import Door, open_door
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

from mainspring.api.application import ENDPOINTS
from mainspring.api.openapi import describe_api


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server with something in it, so that not all is 404."""
    with open_door(tmp_path_factory.mktemp("schema")) as door:
        client = door.client("admin")
        client.post("/v1/jobs", json={"name": "nothing", "manual": True, "task": "encode", "args": {"video": "v"}})
        yield door


DOCUMENT = msgspec.to_builtins(describe_api(ENDPOINTS))
# Any documented 4xx refuses what the schema forbids, 413 included: which cases are made differs by version of Python.
REFUSED = {"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}}
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT, config=schemathesis.Config.from_dict(REFUSED))
# A stream does not end: how it begins is checked by itself.
STREAMS = ["/v1/events", "/v1/live"]
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in DOCUMENT["paths"].items()
    if path not in STREAMS
    for method in methods
]

# What the formats of the schema mean: `format` is where JSON Schema leaves off.
schemathesis.openapi.format("name", st.from_regex(r"[a-z]{1,20}", fullmatch=True))
schemathesis.openapi.format("duration-text", st.from_regex(r"[1-9][0-9]?(ms|s|m|h)", fullmatch=True))
schemathesis.openapi.format("cursor", st.sampled_from(["Nw", "MTI"]))

TOGETHER = {
    "POST /v1/jobs", "PUT /v1/jobs/{job_id}", "PATCH /v1/jobs/{job_id}", "POST /v1/jobs:sync", "POST /v1/runs",
    "POST /api/jobs/schedule",
    "POST /v1/runs:batch", "PUT /v1/calendars/{name}", "POST /v1/jobs/{job_id}/backfill", "GET /v1/jobs/{job_id}/next",
    "GET /v1/runs", "GET /v1/runs:count", "GET /v1/service-levels", "POST /v1/jobs:preview", "POST /v1/runs:act",
    "GET /v1/tallies", "GET /v1/errors", "GET /v1/load",
    "GET /v1/load/at", "GET /v1/jobs/{job_id}/ledger", "GET /v1/ledger", "GET /v1/terms", "GET /v1/timeline",
    "GET /v1/workers/{worker_id}/spans", "GET /v1/events:page", "GET /v1/calendars/{name}/days",
    "POST /v1/calendars/{name}/preview", "POST /v1/jobs:simulate", "POST /v1/load:spread",
    "GET /v1/audit", "DELETE /v1/calendars/{name}",
}  # fmt: skip
"""Where what fits the schema may yet be refused with 422: it cannot say what is a cron expression, a zone, a date or
the name of something that exists, nor that an end is after its beginning, nor which characters can be printed."""


def is_unprintable(case: Any, answer: Any) -> bool:
    """Whether parameters of the query are refused, and nothing else, because they cannot be printed."""
    fields = [each["field"] for each in answer.json().get("errors", [])]
    return bool(fields) and not any(str(case.query.get(field, "")).isprintable() for field in fields)


def check(case: Any, server: Door) -> None:
    token = server.token("admin", "worker")
    answer = case.call(headers={"Authorization": f"Bearer {token}"}, base_url=server.url, timeout=20)
    excused = answer.status_code == 422 and (f"{case.method} {case.path}" in TOGETHER or is_unprintable(case, answer))
    checks = [each for each in CHECKS.get_all() if not (excused and each.__name__ == "positive_data_acceptance")]
    case.validate_response(answer, headers={"Authorization": f"Bearer {token}"}, checks=checks)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_answer_is_a_documented_one(operation: str, open_server: Door) -> None:
    """The cases are made here, not by the collector of schemathesis: those of all operations take a minute and a
    gigabyte, in each process that collects them."""
    load_all_checks()
    method, path = operation.split()
    cases = st.one_of(*(SCHEMA[path][method].as_strategy(generation_mode=mode) for mode in GenerationMode))

    @settings(
        max_examples=10,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def is_documented(case: Any) -> None:
        check(case, open_server)

    is_documented()


@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_begins_as_the_schema_says(path: str, open_server: Door) -> None:
    answers = DOCUMENT["paths"][path]["get"]["responses"]
    with open_server.client("admin").stream("GET", path) as answer:
        assert answer.headers["content-type"].partition(";")[0] in answers[str(answer.status_code)]["content"]
        assert answer.status_code == 200
        open_server.client("admin").post("/v1/runs", json={"task": "encode", "args": {"video": "v"}})
        open_server.ask(lambda store: store.number_events(1_000))
        assert next(line for line in answer.iter_lines() if line.startswith("data:"))
    for client in (open_server.client(), open_server.client("worker")):
        refused = client.get(path)
        assert refused.status_code in (401, 403)
        assert refused.headers["content-type"] in answers[str(refused.status_code)]["content"]


def test_only_rows_of_the_table_are_excused() -> None:
    assert set(OPERATIONS) >= TOGETHER
