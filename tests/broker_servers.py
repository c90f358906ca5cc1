"""Where RabbitMQ, Kafka and SQS are.

`make services` starts them and `make test` names them in the environment, which makes a missing server a failure.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

URLS = Path(__file__).parent.parent / ".services" / "urls"


def find_server(name: str) -> str:
    """The URL of a running server; the test fails without it."""
    variable = f"MAINSPRING_TEST_{name}"
    known = dict(os.environ)
    if variable not in known and URLS.exists():
        known |= dict(line.split("=", 1) for line in URLS.read_text().splitlines())
    if variable not in known:
        pytest.fail(f"no {name}: `make services` starts one; `-m 'not brokers'` leaves its tests out")
    return known[variable]
