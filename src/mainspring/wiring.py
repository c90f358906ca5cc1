"""Builds a process: from URLs to adapters, from an app and its settings to a store, a scheduler and a worker.

No other module imports adapters, and this one imports each only when it is used.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from mainspring.adapter import AdapterContext, find_adapter, need_packages, open_adapter
from mainspring.broker import Broker
from mainspring.cache import StatusCache
from mainspring.clock import Clock, SystemClock
from mainspring.core.instants import SECOND, Instant
from mainspring.core.model import Event, Job, TaskNotice
from mainspring.core.model import Worker as WorkerRow
from mainspring.errors import InvalidInput
from mainspring.executor import ExecutableTask, Executor, RunContext, TaskHooks
from mainspring.lease import Lease
from mainspring.limiter import RateLimiter
from mainspring.process.metrics import Metrics
from mainspring.process.secrets import SIGNING, find_exposed, masker, secrets_of, withhold
from mainspring.process.urls import show_url
from mainspring.services.store_layers import MeasuredStore
from mainspring.settings import FILE, Settings
from mainspring.sink import Sink
from mainspring.store import Store
from mainspring.version import VERSION

if TYPE_CHECKING:
    from mainspring.executors.registry import ExecutorRegistry
    from mainspring.services.activity import Listener
    from mainspring.services.chores.chores import Chores
    from mainspring.services.node import Node
    from mainspring.services.runtime import Runtime
    from mainspring.services.scheduler.elector import Elector
    from mainspring.services.scheduler.scheduler import SchedulerService
    from mainspring.services.worker.broker_source import BrokerSource
    from mainspring.services.worker.worker import UnfinishedWork, WorkerService
    from mainspring.stores.postgres.server.database import Limits

_POSTGRES = ("postgresql", "postgres")
_SQLITE = "write sqlite:///file.db, or sqlite:////folder/file.db for an absolute path"
POOL_PROGRAM = "mainspring.sdk.pool_main"
"""The module that pool processes run; named, not imported, since it is in a layer above this one."""


class DeclaredTask(ExecutableTask, Protocol):
    """A task of an app: a worker executes it and announces it."""

    def notice(self) -> TaskNotice:
        """What the worker announces."""


class AppHooks(TaskHooks, Protocol):
    """The hooks of an app that a worker calls."""

    @property
    def on_end(self) -> Sequence[object]:
        """The hooks that are called when an attempt ends."""

    def hear_ends(self, loop: asyncio.AbstractEventLoop) -> Callable[[Event], None]:
        """A function that calls the `on_end` hooks on this loop; it may be called from any thread."""


class AppLeaderHooks(Protocol):
    """The callbacks of an app for gained and lost leadership."""

    def follow(self, electors: Sequence[Elector], loop: asyncio.AbstractEventLoop) -> None:
        """Call the callbacks on `loop` when one of these electors gains or loses leadership."""

    def alive(self) -> AbstractAsyncContextManager[None]:
        """Entered while callbacks may be called."""


class App(Protocol):
    """The program that a process schedules and works for: the part of `sdk.app.Mainspring` that is used here."""

    name: str
    clock: Clock

    @property
    def settings(self) -> Settings:
        """The settings of the app."""

    @property
    def tasks(self) -> Mapping[str, DeclaredTask]:
        """The registered tasks by name."""

    @property
    def hooks(self) -> AppHooks:
        """The hooks around attempts."""

    @property
    def leader_hooks(self) -> AppLeaderHooks:
        """The callbacks for leadership."""

    async def open(self) -> Store:
        """The store, opened on first use."""

    def queues(self) -> tuple[str, ...]:
        """The queues that its tasks and jobs name."""

    def declared_jobs(self, now: Instant) -> list[Job]:
        """The jobs that the code declares."""

    def forget(self, *names: str) -> None:
        """Delete these settings from memory."""


def open_store(url: str, settings: Settings, clock: Clock) -> Store:
    """Open the store that a URL names, and bring its schema up to date; a SQLite file is created if it does not exist.
    If the settings name a broker, submissions are published on it.

    Call it on a thread where no event loop runs.
    """
    bare = _open_store(url, settings, clock)
    store = MeasuredStore(bare, Metrics(dict(settings.service_levels)))
    broker = open_broker(settings, clock, store.metrics)
    if broker is not None:
        from mainspring.services.announcer import Announcer

        bare.on_accepted(Announcer(store, broker, clock))
    return store if settings.otel is None else _observed(store, settings.otel)


def _observed(store: Store, url: str) -> Store:
    """The store with spans around its calls. Spans and metrics are exported to a collector."""
    need_packages("otel", url, "otel", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
    from mainspring.services.metric_families import process_families
    from mainspring.services.telemetry.exporting import MetricsExport, open_tracing
    from mainspring.services.telemetry.traced_store import TracedStore

    export = MetricsExport(url, lambda: process_families(store.metrics, store.strain()))
    export.start()
    return TracedStore(store, open_tracing(url), on_closing=export.end)


def join_traces(settings: Settings) -> Callable[[Mapping[str, str]], AbstractContextManager[None]]:
    """A context manager around a request, made from its headers, so that its spans belong to the caller's trace."""
    if settings.otel is None:
        return lambda headers: nullcontext()
    from mainspring.services.telemetry.tracing import within

    return within


def follow_traces(settings: Settings, hooks: list[Callable[[RunContext], Any]]) -> None:
    """Add a hook to a pool process, so that the spans of functions belong to the trace of their attempt."""
    if settings.otel is not None:
        from mainspring.services.telemetry.pool_spans import follow_traces

        follow_traces(hooks, settings.otel)


def _open_store(url: str, settings: Settings, clock: Clock) -> Store:
    if _is_postgres(url):
        from mainspring.stores.postgres.store import PostgresStore

        opening = PostgresStore.open(
            url, clock, limits=_limits(settings), listen=settings.listen, durable=settings.durable
        )
        return asyncio.run(opening)
    from mainspring.stores.sqlite.store import SqliteStore

    schedule_s = settings.schedule_timeout / SECOND
    return SqliteStore(_sqlite_path(url), clock, durable=settings.durable, schedule_s=schedule_s)


def _limits(settings: Settings) -> Limits:
    """The settings of calls and connections, as the adapter takes them."""
    from mainspring.stores.postgres.server.database import Limits
    from mainspring.stores.postgres.server.pool import Bounds

    return Limits(
        call_s=settings.store_timeout / SECOND,
        schedule_s=settings.schedule_timeout / SECOND,
        schedule_retries_s=tuple(pause / SECOND for pause in settings.schedule_retries),
        pool=Bounds(
            size=settings.pool_size,
            min_idle=min(settings.pool_min_idle, settings.pool_size),
            wait_s=settings.pool_wait / SECOND,
            exhausted_s=settings.pool_exhausted / SECOND,
            idle_s=settings.pool_idle / SECOND,
            lifetime_s=settings.pool_lifetime / SECOND,
            leak_s=settings.pool_leak / SECOND,
            validation_s=settings.pool_validation / SECOND,
        ),
    )


def open_broker(settings: Settings, clock: Clock, metrics: Metrics) -> Broker | None:
    """The broker that the settings name; None without one. It connects on first use."""
    if settings.broker is None:
        return None
    broker: Broker = open_adapter("broker", settings.broker, AdapterContext(settings, clock, metrics.count))
    return broker


def open_cache(settings: Settings, clock: Clock, metrics: Metrics) -> StatusCache | None:
    """The status cache that the settings name; None without one. It connects on first use."""
    if settings.cache is None:
        return None
    cache: StatusCache = open_adapter("cache", settings.cache, AdapterContext(settings, clock, metrics.count))
    return cache


def open_limiter(settings: Settings, spare: RateLimiter, store: Store, clock: Clock) -> RateLimiter:
    """The rate limiter that all servers share: the broker's server if there is an adapter for it; otherwise, and while
    that does not answer, `spare`, which is the store."""
    url = settings.broker or ""
    if find_adapter("limiter", url) is None:
        return spare
    from mainspring.services.shared_limits import SharedLimits

    limiter: RateLimiter = open_adapter(
        "limiter", url, AdapterContext(settings, _StoreTime(store), store.metrics.count)
    )
    return SharedLimits(limiter, spare, store, clock)


class _StoreTime(SystemClock):
    """The store's clock, so that servers whose own clocks differ count alike."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def now(self) -> Instant:
        return self._store.now()


def _sqlite_path(url: str) -> str:
    """The file that a URL names; InvalidInput for any other kind of URL."""
    scheme, separator, rest = url.partition("://")
    if ":memory:" in url:
        problem = "is a database that no other process could see, and that ends with this process"
        raise InvalidInput("store", url, problem, "name a file, if only in a temporary folder: sqlite:///file.db")
    if not separator:
        raise InvalidInput("store", url, "is not a URL", f"for a file, {_SQLITE}")
    if scheme != "sqlite":
        remedy = f"{_SQLITE}; or postgresql://user@host/database"
        raise InvalidInput("store", show_url(url), "names no kind of store that there is", remedy)
    path = rest.removeprefix("/")
    if path == rest or not path or path.endswith("/"):
        raise InvalidInput("store", url, "names no file", _SQLITE)
    return path


def _is_postgres(url: str) -> bool:
    """Whether a URL names a PostgreSQL database; InvalidInput if its driver is not installed."""
    if url.partition("://")[0] not in _POSTGRES:
        return False
    need_packages("store", url, "postgres", ("asyncpg",))
    return True


class DatabaseStatus(msgspec.Struct, frozen=True):
    """The database that a store URL names, as found without opening or changing it."""

    path: str
    """The file, or the URL of the server's database, without its password."""
    exists: bool
    """Whether a store was ever opened there."""
    size: int = 0
    version: int = 0
    """The version of its schema; 0 before the first migration."""
    latest: int = 0
    """The newest version that this program knows."""
    refusal: str = ""
    """Why this program may not use it, and what to do; empty if it may."""
    server: str = ""
    """Product and version of what keeps it."""
    denied: tuple[str, ...] = ()
    """What this user may not do, and must: `INSERT on runs`."""


def sqlite_file(settings: Settings) -> Path | None:
    """The file of the database, from the root; None if it is on a server."""
    return None if _is_postgres(settings.store) else Path(_sqlite_path(settings.store)).absolute()


def describe_store(settings: Settings) -> str:
    """Where the database is, for people: with the absolute path, since a relative one depends on the working folder."""
    file, shown = sqlite_file(settings), show_url(settings.store)
    return shown if file is None or str(file) in shown else f"{shown} ({file})"


def database_status(settings: Settings) -> DatabaseStatus:
    """Inspect the database of these settings without creating or changing anything. StoreMismatch if it belongs to
    another program."""
    if _is_postgres(settings.store):
        from mainspring.stores.postgres.server.connection import look_at as look_at_server

        look = asyncio.run(look_at_server(settings.store))
        shown, found = show_url(settings.store), look.schema
        return DatabaseStatus(
            shown, found.version > 0, look.size, found.version, found.latest, found.refusal, look.server, look.denied
        )
    from mainspring.stores.sqlite.file.connection import PRODUCT, look_at

    path = _sqlite_path(settings.store)
    file = Path(path)
    if not file.exists():
        return DatabaseStatus(path, exists=False, server=PRODUCT)
    schema = look_at(path)
    # SQLite writes its log beside the file.
    denied = tuple(f"writing {each}" for each in (file, file.absolute().parent) if not os.access(each, os.W_OK))
    return DatabaseStatus(
        path, True, file.stat().st_size, schema.version, schema.latest, schema.refusal, PRODUCT, denied
    )


def open_memory(clock: Clock) -> Store:
    """A store in memory that runs inline, without threads: for tests in virtual time."""
    from mainspring.stores.sqlite.store import SqliteStore

    return SqliteStore(":memory:", clock, durable=False, inline=True)


def open_lease(settings: Settings, store: Store, clock: Clock) -> Lease:
    """The lease that the settings name; the store's own without one. It connects on first use."""
    if settings.lease is None:
        from mainspring.leases.database import DatabaseLease

        return DatabaseLease(store)
    lease: Lease = open_adapter("lease", settings.lease, AdapterContext(settings, clock, store.metrics.count))
    return lease


def open_sinks(settings: Settings, clock: Clock, metrics: Metrics) -> dict[str, Sink]:
    """The sinks that the settings name, separated by spaces; by the names under which the store keeps positions."""
    context = AdapterContext(settings, clock, metrics.count)
    return {show_url(url): open_adapter("sink", url, context) for url in (settings.sink or "").split()}


def names_alerts(app: App) -> bool:
    """Whether the app's own tasks or jobs name a receiver of alerts."""
    named = [each.options.alert for each in app.declared_jobs(0)]
    return any(named) or any(task.defaults.options.alert for task in app.tasks.values())


def find_executors(app: App, concurrency: int, settings: Settings | None = None) -> ExecutorRegistry:
    """The executors of the app's tasks; with its own settings unless others are given."""
    from mainspring.executors.registry import ExecutorRegistry

    chosen = msgspec.structs.replace(settings or app.settings, concurrency=concurrency)
    return ExecutorRegistry(app.tasks, chosen, POOL_PROGRAM)


def describe_host(app: App, settings: Settings) -> list[str]:
    """Which kinds of confinement this host offers and which not, for people; empty if nothing asks for confinement."""
    if not _asks_for_confinement(app, settings):
        return []
    from mainspring.executors.programs.host import look_around

    return look_around(settings.run_as, settings.cgroup, settings.run_users).describe()


def _asks_for_confinement(app: App, settings: Settings) -> bool:
    """Whether the settings, or a task or job of the app, name an isolation that confines."""
    named = [task.defaults.options.isolation for task in app.tasks.values()]
    named += [job.options.isolation for job in app.declared_jobs(0)]
    asked = settings.isolation not in (None, "none") or settings.run_as is not None or settings.cgroup is not None
    return asked or any(isolation is not None and isolation.confined for isolation in named)


def protect_process(app: App, *, signs: bool) -> None:
    """Hide the configuration of this process from the programs that it, or another worker of the same user, runs:
    remove it from the environment, and make the memory of the process unreadable for them. A process that neither signs
    nor checks tokens does not keep the key at all."""
    from mainspring.executors.launching.kernel import hide_memory

    hide_memory()
    if signs:
        _ = app.settings  # Read them before they are removed from the environment.
    else:
        app.forget("secret", "token", "token_keys", "token_algorithm")
    withhold(forget=() if signs else SIGNING)


def hear_runs(settings: Settings) -> None:
    """Capture what tasks log and print in this process into the logs of their runs, from now on."""
    from mainspring.executors.captured_output import hear_logging, hear_prints, run_level

    hear_logging(run_level(settings))
    hear_prints()


def describe_exposure(settings: Settings, *, work: bool) -> list[str]:
    """Which secrets of this process other users or commands could read, for people."""
    from mainspring.executors.command import least_level

    return find_exposed(settings, FILE, to_commands=work and least_level(settings) == "none")


def describe_commands(settings: Settings) -> str:
    """How commands are isolated if no setting says so and the default confines them; empty otherwise."""
    from mainspring.executors.command import least_level

    level = least_level(settings)
    if settings.isolation is not None or level == "none":
        return ""
    return f"this worker is root, so commands run confined ({level}), as other users (setting isolation)"


def name_process(random: Random, fleet: str | None = None) -> str:
    """The name of this process in leases and claims: readable, and never the name of an earlier process. The name of a
    worker that an autoscaler started has the name of its fleet in it."""
    unique = f"{random.getrandbits(32):08x}"
    return f"{socket.gethostname()}:{os.getpid()}:{unique if fleet is None else f'{fleet}.{unique}'}"


def describe_worker(app: App, settings: Settings, name: str) -> WorkerRow:
    """The row by which this process registers as a worker."""
    return WorkerRow(
        id=name,
        namespace=settings.namespace,
        app=app.name,
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=settings.queues or app.queues(),
        regions=settings.regions,
        tasks=("command", "http", *(["container"] if settings.containers else []), *sorted(app.tasks)),
        concurrency=settings.concurrency,
        notices=tuple(app.tasks[name].notice() for name in sorted(app.tasks)),
        version=VERSION,
        pools=settings.pools,
    )


def build_runtime(
    app: App,
    settings: Settings,
    *,
    schedule: bool,
    work: bool,
    listener: Listener | None = None,
    on_failed: Callable[[str], None] | None = None,
    on_replaced: Callable[[UnfinishedWork], None] | None = None,
    on_drain: Callable[[], None] | None = None,
    end: Callable[[str], None] | None = None,
) -> Runtime:
    """A runtime that schedules, works, or both, on the app's store. `listener` receives what this process does.

    `on_failed` is called, from any thread, with the reason why the process cannot go on, `on_replaced` with the
    unfinished work of a worker that has to be replaced, `end` where the process has to end at once: the node's loop
    stands still, or work that lost its claim cannot be stopped. Without them, the process ends. `on_drain` is called
    when the worker is asked to drain; without it, the worker drains and the rest of the process goes on.
    """
    from mainspring.services.runtime import Runtime
    from mainspring.services.supervisor import end_process

    on_failed, end = on_failed or end_process, end or end_process
    unstoppable = partial(end, "work that lost its claim cannot be stopped")

    async def build(task_loop: asyncio.AbstractEventLoop) -> Node:
        from mainspring.services.node import Node
        from mainspring.services.worker.broker_source import BrokerSource

        store, random = await app.open(), SystemRandom()
        name, broker = name_process(random, settings.fleet), open_broker(settings, app.clock, store.metrics)
        scheduler = build_scheduler(store, name, settings, app.clock, random, broker) if schedule else None
        if scheduler is not None:
            app.leader_hooks.follow(scheduler.electors, task_loop)
        chores = _build_chores(app, store, name, settings, random, scheduler)
        source = None if broker is None else BrokerSource(store, broker, app.clock, name)
        row = describe_worker(app, settings, name)
        given = (row, task_loop, settings, random, on_replaced, on_drain, unstoppable, source)
        worker = build_worker(app, store, *given) if work else None
        if work:
            store.metrics.region = settings.regions[0] if len(settings.regions) == 1 else "several"
        return Node(
            *(store, scheduler, worker, chores, broker, source),
            stall_after=settings.stall_after,
            on_failed=on_failed,
            listener=_with_hooks(listener, app, task_loop),
        )

    return Runtime(
        build,
        stall_after=settings.stall_after,
        on_failed=on_failed,
        on_stalled=end,
        lifespan=_lifespan(app.leader_hooks.alive, app.hooks.alive if work else nullcontext),
    )


def _lifespan(
    *parts: Callable[[], AbstractAsyncContextManager[object]],
) -> Callable[[], AbstractAsyncContextManager[object]]:
    """One context manager that enters all of these in order."""

    @asynccontextmanager
    async def alive() -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for part in parts:
                await stack.enter_async_context(part())
            yield

    return alive


def _build_chores(
    app: App, store: Store, name: str, settings: Settings, random: Random, scheduler: SchedulerService | None
) -> Chores:
    """The chores of a process; those of one that schedules also publish events and statuses."""
    from mainspring.services.chores.chores import Chores

    return Chores(
        *(store, name, settings, app.clock, random),
        leads=None if scheduler is None else scheduler.leads,
        forwarded={} if scheduler is None else open_sinks(settings, app.clock, store.metrics),
        alerts=False if scheduler is None else names_alerts(app),
        cache=None if scheduler is None else open_cache(settings, app.clock, store.metrics),
    )


def _with_hooks(listener: Listener | None, app: App, task_loop: asyncio.AbstractEventLoop) -> Listener | None:
    """The listener, which also calls the app's `on_end` hooks, if it has any."""
    if not app.hooks.on_end:
        return listener
    from mainspring.services.activity import SILENT

    return (listener or SILENT)._replace(on_end=app.hooks.hear_ends(task_loop))


def build_scheduler(
    store: Store, name: str, settings: Settings, clock: Clock, random: Random, broker: Broker | None = None
) -> SchedulerService:
    """The scheduler of this process, with its lease."""
    from mainspring.services.scheduler.scheduler import SchedulerService

    lease = open_lease(settings, store, clock)
    return SchedulerService(store, lease, name, settings, clock, random, broker=broker, checks_in=True)


def build_worker(
    app: App,
    store: Store,
    row: WorkerRow,
    task_loop: asyncio.AbstractEventLoop,
    settings: Settings,
    random: Random,
    on_replaced: Callable[[UnfinishedWork], None] | None = None,
    on_drain: Callable[[], None] | None = None,
    on_unstoppable: Callable[[], None] | None = None,
    source: BrokerSource | None = None,
) -> WorkerService:
    """The worker of this process, with its executors."""
    from mainspring.services.worker.worker import WorkerService, end_process

    executors = find_executors(app, settings.concurrency, settings)
    task_loop.call_soon_threadsafe(executors.prepare)
    worker = WorkerService(
        *(store, row, _traced(executors, settings), task_loop, settings, app.clock, random),
        on_unstoppable=on_unstoppable or end_process,
        on_stopped=executors.close,
        on_replaced=on_replaced,
        mask=masker(secrets_of(settings)),
        source=source,
    )
    if executors.leftovers is not None:
        worker.sweep(executors.leftovers)
    if on_drain is not None:
        worker.on_drain = on_drain
    return worker


def _traced(executors: ExecutorRegistry, settings: Settings) -> Callable[[str], Executor]:
    """The executors; within spans if the settings name a collector."""
    if settings.otel is None:
        return executors
    from mainspring.services.telemetry.exporting import open_tracing
    from mainspring.services.telemetry.traced_executors import trace_executors

    return trace_executors(executors, open_tracing(settings.otel))
