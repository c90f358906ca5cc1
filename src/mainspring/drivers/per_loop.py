"""One resource for each event loop: connections of asyncio libraries belong to the loop that opened them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

T = TypeVar("T")

PARTING_S: Final = 2.0
"""How long to wait for another loop to close its resource."""


class PerLoop(Generic[T]):
    """Makes a resource on first use on each loop, and closes it with the loop or at `close`, whichever comes first."""

    def __init__(self, make: Callable[[], T], end: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._end = end
        self._known: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}

    async def get(self) -> T:
        """The resource of the running loop."""
        loop = asyncio.get_running_loop()
        known = self._known.get(loop)
        if known is not None:
            return known[0]
        for ended in [other for other in self._known if other.is_closed()]:
            del self._known[ended]
        resource = self._make()
        farewell = self._close_with_loop(resource)
        self._known[loop] = (resource, farewell)
        await anext(farewell)
        return resource

    async def close(self) -> None:
        """Close the resources of all loops."""
        here = asyncio.get_running_loop()
        for loop, (_, farewell) in list(self._known.items()):
            if loop is here:
                await farewell.aclose()
            elif loop.is_running():
                with suppress(Exception):  # A loop that ends meanwhile closes its resource itself.
                    closing = asyncio.run_coroutine_threadsafe(_aclose(farewell), loop)
                    await asyncio.wait_for(asyncio.wrap_future(closing), PARTING_S)
        self._known.clear()

    async def _close_with_loop(self, resource: T) -> AsyncGenerator[None, None]:
        """`asyncio.run` ends the generators of its loop, so the resource is closed even if nothing else closes it."""
        try:
            yield
        finally:
            with suppress(Exception):
                await self._end(resource)


async def _aclose(farewell: AsyncGenerator[None, None]) -> None:
    await farewell.aclose()
