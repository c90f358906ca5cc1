"""The store that a cluster works on, and what is done to it: nothing to a file or to a foreign server; everything
to a PostgreSQL server behind a proxy, both started here."""

from __future__ import annotations

import asyncio
import math
import time
from random import Random
from typing import Final

from mainspring.core.instants import Instant
from mainspring.testing.chaos.inside.timing import measure_epoch
from mainspring.testing.servers.postgres import Postgres
from mainspring.testing.servers.proxy import Proxy

COMMIT_LOSS: Final = 0.25
DELAY_S: Final = 0.15
_SCHEMES: Final = ("postgresql://", "postgres://")


class Backing:
    """A store that nothing is done to."""

    def __init__(self, url: str) -> None:
        self.url = url
        """For the processes of the cluster."""
        self.direct = url
        """For observers: what is done to the wire is not done to this."""
        self.epoch: Instant | None = None
        """See `timing.StoreTime`."""
        self.troubled_until = -math.inf
        """By monotonic time; infinite while something is done to it."""

    @property
    def shareable(self) -> bool:
        """Whether the store has its own clock, so that those of processes may differ."""
        return self.url.startswith(_SCHEMES)

    async def start(self) -> None:
        """To be called once, before anything else."""
        if self.shareable:
            self.epoch = await measure_epoch(self.direct)

    async def suffer(self, kind: str, seconds: float) -> None:
        """Let something go wrong for a while; returns when it is mended."""
        raise ValueError(f"{kind} cannot be done to {self.direct}")

    def close(self) -> None:
        """Nothing stays behind."""


class OwnServer(Backing):
    """A database on a server that the driver starts. One that is given outlives this."""

    def __init__(self, random: Random, server: Postgres | None = None, database: str | None = None) -> None:
        self.server = server or Postgres()
        self._given = server is not None
        self._database = database
        self._random = random
        self.proxy = Proxy(self.server.port, random)
        super().__init__("postgresql://")

    async def start(self) -> None:
        if not self._given:
            await asyncio.to_thread(self.server.make)
        self.direct = self.server.url if self._database is None else self.server.create(self._database)
        self.proxy.start()
        self.url = self.direct.replace(f":{self.server.port}/", f":{self.proxy.port}/")
        await super().start()

    async def suffer(self, kind: str, seconds: float) -> None:
        self.troubled_until = math.inf
        try:
            await getattr(self, f"_{kind.replace(' ', '_')}")(seconds)
        finally:
            self.troubled_until = time.monotonic()

    async def _kill_server(self, seconds: float) -> None:
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.server.start)

    async def _restart_server(self, seconds: float) -> None:
        await asyncio.to_thread(self.server.stop)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.server.start)

    async def _kill_backend(self, seconds: float) -> None:
        await asyncio.to_thread(self.server.kill_backend)
        await asyncio.to_thread(self.server.start)  # It comes back by itself; this waits for it.

    async def _cut_wire(self, seconds: float) -> None:
        self.proxy.cut()

    async def _lose_commits(self, seconds: float) -> None:
        self.proxy.commit_loss = COMMIT_LOSS
        await asyncio.sleep(seconds)
        self.proxy.commit_loss = 0.0

    async def _slow_wire(self, seconds: float) -> None:
        self.proxy.delay_s = DELAY_S
        await asyncio.sleep(seconds)
        self.proxy.delay_s = 0.0

    async def _block_wire(self, seconds: float) -> None:
        self.proxy.block()
        await asyncio.sleep(seconds)
        self.proxy.unblock(forget=False)

    async def _replace_wire(self, seconds: float) -> None:
        self.proxy.block()
        await asyncio.sleep(seconds)
        self.proxy.unblock(forget=True)

    def close(self) -> None:
        self.proxy.close()
        if not self._given:
            self.server.close()


SERVER_FAULTS: Final = frozenset(
    name[1:].replace("_", " ") for name in vars(OwnServer) if name.startswith("_") and name[1].isalpha()
)
"""What can be done to a server that the driver started, and to the proxy before it."""
