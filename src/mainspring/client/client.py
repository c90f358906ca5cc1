"""`Client`: a server's jobs, runs and the rest, for programs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import cached_property
from typing import Self

import msgspec

from mainspring.client.calendars import Calendars
from mainspring.client.connection import RETRY, Connection, Request, path_of
from mainspring.client.events import Audit, Events, Tokens
from mainspring.client.insight import Actions, Insight, Queues
from mainspring.client.jobs import Jobs
from mainspring.client.runs import Runs
from mainspring.client.streams import follow
from mainspring.client.workers import Cluster, Workers
from mainspring.core.instants import SECOND, Instant, parse_duration
from mainspring.core.runs.retry import Length, Retry
from mainspring.operations import records
from mainspring.operations.installation import Me, ShownSettings, Versions
from mainspring.operations.views import overview_records
from mainspring.sdk.sync import Blocking


class Client:
    """A caller of one server. Answers are structs of `mainspring.operations.records`, refusals are `mainspring.errors`.

        async with Client("https://jobs.example.org", token) as client:
            run = await client.runs.submit("encode", {"video": "v1"})
            print(await client.runs.result(run.run_id, timeout="30s"))

    Code that cannot await uses `client.sync`.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        namespace: str | None = None,
        timeout: Length = "30s",
        retry: Retry = RETRY,
    ) -> None:
        """`namespace` chooses one of those that the token is for. An answer that takes longer than `timeout` is given
        up; what fails for a reason that passes is tried again as `retry` says, where that cannot do anything twice."""
        self._connection = Connection(url, token, namespace, parse_duration(timeout, "timeout") / SECOND, retry)
        self.jobs = Jobs(self._connection)
        self.runs = Runs(self._connection)
        self.workers = Workers(self._connection)
        self.cluster = Cluster(self._connection)
        self.queues = Queues(self._connection)
        self.actions = Actions(self._connection)
        self.insight = Insight(self._connection)
        self.calendars = Calendars(self._connection)
        self.events = Events(self._connection)
        self.audit = Audit(self._connection)
        self.tokens = Tokens(self._connection)

    def __repr__(self) -> str:
        return f"<client of {self.url}>"

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._connection.url

    def now(self) -> Instant:
        """The server's clock, as far as it is known: to a second or two."""
        return self._connection.now()

    async def ready(self) -> records.Ready:
        """What has to be well for the server to serve; ServerUnavailable if something is not."""
        return await self._connection.ask(Request("GET", "/health/ready"), records.Ready)

    async def overview(self) -> overview_records.Overview:
        """How the namespace stands; at most a second old."""
        return await self._connection.ask(Request("GET", path_of("overview")), overview_records.Overview)

    async def me(self) -> Me:
        """The caller as the server sees it: its name, its permissions by namespace, and when its token expires."""
        return await self._connection.ask(Request("GET", path_of("me")), Me)

    async def versions(self) -> Versions:
        """Which version each process runs, and that of the database's schema."""
        return await self._connection.ask(Request("GET", path_of("versions")), Versions)

    async def settings(self) -> ShownSettings:
        """The settings of the server; secrets are masked. It needs the permission `settings:read`."""
        return await self._connection.ask(Request("GET", path_of("settings")), ShownSettings)

    async def live(self) -> AsyncGenerator[overview_records.News, None]:
        """Which jobs and runs change, at most twice a second, without end. The first news, also after a broken
        connection, has `more` set: something may have changed before."""
        async for message in follow(self._connection, Request("GET", path_of("live"))):
            yield msgspec.json.decode(message.data, type=overview_records.News)

    async def open(self) -> None:
        """Nothing to open: connections are made when they are needed."""

    @cached_property
    def sync(self) -> Blocking:
        """The same for code that cannot await: `client.sync(client.runs.get, run_id)`. See `Blocking`."""
        return Blocking(self.close)

    async def close(self) -> None:
        """Let go of the connections. The client can be used again."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
