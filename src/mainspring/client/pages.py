"""Lists that a server gives page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, TypeVar

from mainspring.client.connection import Connection, Query, Request
from mainspring.operations.paging import walk
from mainspring.operations.records import Page

T = TypeVar("T")

LARGEST = 1_000
"""The most items that a server puts on a page."""


def each(
    connection: Connection, path: str, query: Query, shape: type[T], limit: int | None = None, size: int = LARGEST
) -> AsyncGenerator[T, None]:
    """The items of a list, at most `limit`; a page of at most `size` is fetched when it is needed."""
    kind: Any = Page  # mypy does not take a type that is known at run time only.

    async def fetch(cursor: str | None, count: int) -> Page[T]:
        request = Request("GET", path, {**query, "limit": count, "cursor": cursor})
        page: Page[T] = await connection.ask(request, kind[shape])
        return page

    return walk(fetch, limit, size)
