"""What the parts of a client share: requests below `/v1`, and lists that a server gives page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from datetime import date
from typing import Any, TypeVar

from mainspring.client.connection import Connection, Request, path_of
from mainspring.operations.paging import walk
from mainspring.operations.records import Page

T = TypeVar("T")

LARGEST = 1_000
"""The most items that a server puts on a page."""


class Resource:
    """A part of a client, such as `client.runs`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _get(self, shape: type[T], /, *path: str, **query: object) -> T:
        """What a path has, of a shape. None in the query is left out."""
        return await self._connection.ask(Request("GET", path_of(*path), words(query)), shape)

    async def _post(self, shape: type[T], /, *path: str, **body: object) -> T:
        """The answer to a body, of a shape. None in the body is left out."""
        return await self._connection.ask(Request("POST", path_of(*path), body=words(body)), shape)

    def _each(
        self, shape: type[T], /, *path: str, limit: int | None = None, size: int = LARGEST, **query: object
    ) -> AsyncGenerator[T, None]:
        """The items of a list, at most `limit`; a page of at most `size` is fetched when it is needed."""
        kind: Any = Page  # mypy does not take a type that is known at run time only.

        async def fetch(cursor: str | None, count: int) -> Page[T]:
            page: Page[T] = await self._get(kind[shape], *path, **query, limit=count, cursor=cursor)
            return page

        return walk(fetch, limit, size)


def words(given: Mapping[str, object]) -> dict[str, object]:
    """What is given, as a query or a body carries it: without None, and days and instants as text."""
    return {
        name: value.isoformat() if isinstance(value, date) else value
        for name, value in given.items()
        if value is not None
    }
