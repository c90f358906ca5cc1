"""What queries and bodies of pages share: instants and durations, each refused under its own name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mainspring.api.endpoint import Request
from mainspring.api.problems import Wrong
from mainspring.api.wire.decoding import Given
from mainspring.core.instants import parse_instant, to_datetime
from mainspring.errors import InvalidInput


def instants(given: Given, wrong: Wrong, *names: str) -> dict[str, datetime]:
    """Those of the fields that are given, as instants; a fault is noted."""
    found: dict[str, datetime] = {}
    for name in names:
        if name in given:
            try:
                found[name] = to_datetime(parse_instant(given[name], name))
            except InvalidInput as error:
                wrong.take(error)
    return found


def asked(request: Request, *names: str, moments: tuple[str, ...] = ()) -> dict[str, Any]:
    """Those of the query's fields that are given; `moments` as instants."""
    words: dict[str, Any] = {name: request.query[name] for name in names if name in request.query}
    return words | {
        name: to_datetime(parse_instant(request.query[name], name)) for name in moments if name in request.query
    }
