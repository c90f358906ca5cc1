"""All operations on a store, as one object: the same shape as `mainspring.Client` has for a server."""

from __future__ import annotations

from typing import Protocol

from mainspring.core.instants import Instant
from mainspring.operations.audit import Audit
from mainspring.operations.calendars import Calendars
from mainspring.operations.cluster import Cluster
from mainspring.operations.context import Context, Host
from mainspring.operations.events import Events
from mainspring.operations.installation import Installation, ShownSettings, Versions
from mainspring.operations.jobs.jobs import Jobs
from mainspring.operations.runs import Runs
from mainspring.operations.views import overview_records
from mainspring.operations.views.acting import Acting
from mainspring.operations.views.insight import Insight
from mainspring.operations.views.overview import Overview
from mainspring.operations.views.queues import Queues
from mainspring.operations.workers import Workers


class ClosingHost(Host, Protocol):
    """A program that can close its store."""

    async def close(self) -> None:
        """Close the store."""


class Operations:
    """The operations of a program that has the store itself."""

    def __init__(self, host: ClosingHost, *, by: str | None = None) -> None:
        """`by` names the program in reasons that it does not give itself: "cancelled by …"."""
        context = Context(host, by=by)
        self.jobs = Jobs(context)
        self.runs = Runs(context)
        self.workers = Workers(context)
        self.cluster = Cluster(context)
        self.queues = Queues(context)
        self.actions = Acting(context)
        self.insight = Insight(context)
        self.calendars = Calendars(context)
        self.events = Events(context)
        self.audit = Audit(context)
        self._installation = Installation(context)
        self._overview = Overview(context)
        self._host = host
        self._now = host.clock.now

    async def overview(self) -> overview_records.Overview:
        """How the namespace stands now."""
        return await self._overview.show()

    async def versions(self) -> Versions:
        """Which version each process runs, and that of the database's schema."""
        return await self._installation.versions()

    async def settings(self) -> ShownSettings:
        """The settings in effect; secrets are masked."""
        return self._installation.settings()

    async def open(self) -> None:
        """Open the store."""
        self._now = (await self._host.open()).now

    def now(self) -> Instant:
        """The store's clock; until it is open, this machine's."""
        return self._now()

    async def close(self) -> None:
        """Close the store."""
        await self._host.close()
