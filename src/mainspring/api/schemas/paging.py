"""Pages: a list of items, and a cursor from which the next page goes on."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TypeVar

from mainspring.api.endpoint import Response
from mainspring.api.problems import Fault, invalid
from mainspring.api.wire.decoding import Given
from mainspring.operations.records import Page

DEFAULT_LIMIT = 50

T = TypeVar("T")


def write_cursor(place: str) -> str:
    """A position in a list, as an opaque text."""
    return urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(query: Given) -> str | None:
    """The position from which a page continues."""
    text = query.get("cursor")
    if text is None:
        return None
    try:
        place = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)).decode()
    except ValueError:
        place = ""
    if not place.isprintable() or not place:
        raise unknown_cursor()
    return place


def read_number(query: Given) -> int | None:
    """The cursor of a list whose positions are numbers."""
    place = read_cursor(query)
    if place is None:
        return None
    sign = place.removeprefix("-")
    if not (sign.isascii() and sign.isdecimal()) or len(sign) > 18:
        raise unknown_cursor()
    return int(place)


def unknown_cursor() -> Exception:
    """The refusal of a cursor that no page returned."""
    return invalid([Fault("cursor", "is not one of ours", "give the `next` of the page before, unchanged")])


def limit_of(query: Given) -> int:
    """How many items a page has."""
    limit: int = query.get("limit", DEFAULT_LIMIT)
    return limit


def page(found: Page[T]) -> Response:
    """One page of a list; `next` is null on the last."""
    return Response(200, {"items": found.items, "next": None if found.next is None else write_cursor(found.next)})
