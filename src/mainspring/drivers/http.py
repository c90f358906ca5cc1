"""HTTP clients for drivers whose server speaks JSON over HTTP: one client per event loop, closed with its loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

PARTING_S = 2.0


class Clients:
    """Gives each event loop its own client, since connections belong to the loop that opened them."""

    def __init__(self, make: Callable[[], httpx.AsyncClient]) -> None:
        self._make = make
        self._clients: dict[asyncio.AbstractEventLoop, tuple[httpx.AsyncClient, AsyncGenerator[None, None]]] = {}
        self.closed = False

    async def here(self) -> httpx.AsyncClient:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        known = self._clients.get(loop)
        if known is not None:
            return known[0]
        for ended in [other for other in self._clients if other.is_closed()]:
            del self._clients[ended]
        client = self._make()
        ending = _close_at_the_end(client)
        self._clients[loop] = (client, ending)
        await anext(ending)
        return client

    async def close(self) -> None:
        """Close all clients, on their own loops."""
        self.closed = True
        here = asyncio.get_running_loop()
        for loop, (_, ending) in list(self._clients.items()):
            if loop is here:
                await ending.aclose()
            elif loop.is_running():
                with suppress(Exception):  # A loop that ends meanwhile closes its connections.
                    closing = asyncio.run_coroutine_threadsafe(_end(ending), loop)
                    await asyncio.wait_for(asyncio.wrap_future(closing), PARTING_S)
        self._clients.clear()


async def _close_at_the_end(client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
    """A loop that is shut down closes its async generators, and with this one the client."""
    try:
        yield
    finally:
        with suppress(Exception):
            await client.aclose()


async def _end(ending: AsyncGenerator[None, None]) -> None:
    await ending.aclose()
