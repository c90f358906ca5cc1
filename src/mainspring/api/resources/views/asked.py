"""What queries and bodies of pages share: instants and durations, each refused under its own name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from mainspring.api.endpoint import Request
from mainspring.api.problems import Wrong
from mainspring.api.wire.decoding import Given
from mainspring.core.instants import parse_instant, to_datetime
from mainspring.errors import InvalidInput

_MOMENTS = ("since", "until", "from", "to")
_PAGE = ("limit", "cursor", "fields")


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


def asked(request: Request) -> dict[str, Any]:
    """The fields of the query in the words of operations: instants as such, lists by their plural, without the page."""
    words: dict[str, Any] = {}
    for name, value in request.query.items():
        if name in _MOMENTS:
            words[name] = to_datetime(parse_instant(value, name))
        elif isinstance(value, list):
            words[f"{name}s"] = tuple(value)
        elif name not in _PAGE:
            words[name] = value
    return words
