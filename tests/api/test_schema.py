"""Whatever fits the schema, and whatever nearly does, is answered as the schema says: by schemathesis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
from door import Door, open_door
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS

from mainspring.api.application import ENDPOINTS
from mainspring.api.openapi import describe_api


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A server with something in it, so that not all is 404."""
    with open_door(tmp_path_factory.mktemp("schema")) as door:
        client = door.client("admin")
        client.post("/v1/jobs", json={"name": "nothing", "manual": True, "task": "encode", "args": {"video": "v"}})
        yield door


# A stream does not end.
schema = schemathesis.openapi.from_dict(msgspec.to_builtins(describe_api(ENDPOINTS))).exclude(path="/v1/events")

NOT_MEANT = {"positive_data_acceptance"}
"""The schema cannot say what is a cron expression, a zone, or the name of something that exists."""


@schema.parametrize()
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_a_documented_one(case: Any, open_server: Door) -> None:
    token = open_server.token("admin", "worker")
    checks = [check for check in CHECKS.get_all() if check.__name__ not in NOT_MEANT]
    case.call_and_validate(
        headers={"Authorization": f"Bearer {token}"}, base_url=open_server.url, checks=checks, timeout=20
    )
