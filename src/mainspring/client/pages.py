"""Lists that come in pages, as one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, TypeVar

from mainspring.client.connection import Line, Query, Request
from mainspring.operations.records import Page

T = TypeVar("T")

LARGEST = 1_000


async def each(
    line: Line, path: str, query: Query, shape: type[T], limit: int | None = None
) -> AsyncGenerator[T, None]:
    """The items of a list, page by page as they are needed; at most `limit`."""
    kind: Any = Page  # Of items whose type is known when it is asked for.
    left = limit
    cursor: str | None = None
    while left is None or left > 0:
        size = LARGEST if left is None else min(left, LARGEST)
        page: Page[T] = await line.ask(Request("GET", path, {**query, "limit": size, "cursor": cursor}), kind[shape])
        for item in page.items:
            yield item
        left = None if left is None else left - len(page.items)
        cursor = page.next
        if cursor is None:
            return
