"""What all endpoints of a server share: its app and store, limits, caches, and readers for clients that wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mainspring.api.auth.access import check_rates
from mainspring.api.auth.gatekeeper import Gatekeeper, Revoked
from mainspring.api.auth.tokens import Keys, KeyWatch
from mainspring.api.load.capacity import Capacity
from mainspring.api.load.guard import Guard
from mainspring.api.load.guarded_store import GuardedStore
from mainspring.api.load.limits import Limits
from mainspring.api.load.sharing import COUNTED_S, KEPT_S, Fresh, Newsroom
from mainspring.api.load.waking import Waking
from mainspring.api.load.watching import Watching
from mainspring.api.prometheus import ApiMetrics
from mainspring.api.resources.system.health import Vitals
from mainspring.api.resources.system.statuses import Statuses
from mainspring.api.resources.tasks import KnownTasks
from mainspring.core.instants import Instant
from mainspring.operations.views.overview_records import Overview
from mainspring.operations.views.records import Load
from mainspring.sdk.app import Mainspring
from mainspring.services.node import Node
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.wiring import join_traces, open_cache, open_limiter


class ApiContext:
    """One for each server. It lives on the API's event loop."""

    def __init__(self, app: Mainspring, settings: Settings, keys: Keys | None, node: Callable[[], Node | None]) -> None:
        self.app = app
        self.settings = settings
        self.node = node
        self.rates = check_rates(settings.submit_rates)
        self.capacity = Capacity(settings.requests, settings.watchers)
        self.metrics = ApiMetrics()
        self.join_trace = join_traces(settings)
        self.waking = Waking()
        self.watching = Watching(self.waking, lambda: self.store)
        self.overviews: Fresh[Overview] = Fresh()
        self.loads: Fresh[Load] = Fresh(KEPT_S)
        self.worker_counts: Fresh[int] = Fresh(COUNTED_S)
        self.newsroom = Newsroom(self.waking, self.watching.tail, lambda: self.store)
        self.guard = Guard(settings, app.clock)
        self.vitals = Vitals()
        self.tasks = KnownTasks(app)
        self._store: Store | None = None
        self.limits = Limits(lambda: self.limiter, app.clock)
        watch = None if keys is None else KeyWatch(keys, settings, app.clock.monotonic)
        revoked = Revoked(self._revocations, app.clock)
        self.gatekeeper = Gatekeeper(watch, revoked, app.clock.now)

    @property
    def store(self) -> Store:
        """The store behind the guard's circuit breaker. The API has to be open."""
        assert self._store is not None, "the API has not been started"
        return self._store

    async def _revocations(self) -> Mapping[str, Instant]:
        return await self.store.revocations()

    async def open(self) -> None:
        """Open the store of the app, and begin to watch it. Called before the first request."""
        self.unguarded = await self.app.open()
        self._store = GuardedStore(self.unguarded, self.guard)
        self.limiter = open_limiter(self.settings, self.store, self.unguarded, self.app.clock)
        cache = open_cache(self.settings, self.app.clock, self.unguarded.metrics)
        self.statuses = Statuses(cache, self.unguarded, self.app.clock)
        self.waking.attach(self.unguarded)
        self.guard.start(self.unguarded)

    def close(self) -> None:
        """Stop watching the store. The store itself belongs to the app, and stays open."""
        self.guard.stop()
        self.waking.detach()
