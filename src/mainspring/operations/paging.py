"""Lists that are read page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from mainspring.operations.records import Page

T = TypeVar("T")

PAGE = 500


async def walk(
    fetch: Callable[[str | None, int], Awaitable[Page[T]]], limit: int | None = None, size: int = PAGE
) -> AsyncGenerator[T, None]:
    """The items of a list, at most `limit`. `fetch` gives the page that begins at a position, with at most that many
    items."""
    left, place = limit, None
    while left is None or left > 0:
        page = await fetch(place, size if left is None else min(left, size))
        for item in page.items:
            yield item
        left = None if left is None else left - len(page.items)
        place = page.next
        if place is None:
            return


def number_of(place: str | None) -> int | None:
    """A place in a list whose places are numbers."""
    return None if place is None else int(place)
