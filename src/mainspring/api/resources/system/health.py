"""Liveness, readiness and metrics. They answer when all capacity slots are taken and while the store is unreachable:
that is when they are needed most."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from mainspring.api.endpoint import PUBLIC, Endpoint, Request, Response
from mainspring.api.load.limits import DEFINE, QUERY, REGISTER, SUBMIT
from mainspring.api.prometheus import METRICS_TYPE, broker_families, namespace_families, show
from mainspring.errors import MainspringError
from mainspring.operations import records
from mainspring.operations.views.explain import look_around
from mainspring.services.loop import Loop
from mainspring.services.metric_families import process_families

log = logging.getLogger("mainspring")

T = TypeVar("T")

PATIENCE_S = 5.0
COUNTED_UP_TO = 50_000_000
"""Waiting runs of one queue, region and priority are counted up to this number: counting ten million takes seconds."""
COUNTING_SHARE = 0.05
"""The largest share of time that one count may take: a count that took 2 s is repeated after 40 s."""
STUCK_S = 60.0
"""A loop without a turn for this long is not alive. The slowest loops turn every half minute."""
STORE_FIGURES_WAIT_S = 2.0
"""How long a scrape waits for the store's metrics before it answers with the last ones. Prometheus gives up after ten
seconds, and then has no metrics of the process either."""
STORE_FIGURES_LIMIT_S = 30.0
"""The longest time that the store may take for them."""
MOST_NAMESPACES = 1_000
FALLBACKS = {
    "broker": "runs are claimed from the store",
    "cache": "statuses are read from the store",
    "dependencies": 'runs with under_pressure="run" do not wait for others; others that wait are refused',
}
"""The fallback of each breaker that does not make a process unready while it is open."""


async def live(request: Request) -> Response:
    """Whether this process should go on: all of its loops and threads run. That the store is away is no reason to start
    it anew."""
    troubles = _troubles(request)
    if troubles:
        return Response(503, {"status": "not alive", "troubles": troubles})
    return Response(200, {"status": "alive"})


def _troubles(request: Request) -> dict[str, str]:
    node = request.context.node()
    return request.context.guard.troubles() | ({} if node is None else node.troubles())


async def ready(request: Request) -> Response:
    """Whether requests can be served: the store answers, its schema is current, and the loops of this process turn.
    `reasons` names all that is not well."""
    own = {name: state for name, state in _breakers(request).items() if name not in FALLBACKS or state == "closed"}
    troubles = _troubles(request)
    checks = (
        await request.context.vitals.check_store(request)
        | {f"breaker.{name}": "ok" if state == "closed" else state for name, state in own.items()}
        | {f"loop.{loop.name}": _loop(loop, request) for loop in _loops(request)}
        | {f"alive.{name}": trouble for name, trouble in troubles.items()}
        | _tasks(request)
    )
    reasons = [f"{name}: {word}" for name, word in checks.items() if word != "ok"]
    checks |= {f"breaker.{name}": f"{state}: {FALLBACKS[name]}" for name, state in _fallen_back(request).items()}
    body = {
        "status": "not ready" if reasons else "ready",
        "reasons": reasons,
        "checks": checks,
        "degradation": request.context.guard.level.name,
        "pressure": round(request.context.guard.pressure, 3),
    }
    return Response(503 if reasons else 200, body)


def _tasks(request: Request) -> dict[str, str]:
    """Whether a task blocks the event loop of all others, in a process that executes tasks."""
    node = request.context.node()
    loop_monitor = None if node is None or node.worker is None else node.worker.loop_monitor
    if loop_monitor is None:
        return {}
    return {"tasks": f"one blocks the others for {loop_monitor.blocked_s:.0f} s" if loop_monitor.is_blocked else "ok"}


def _breakers(request: Request) -> dict[str, str]:
    """The state of each breaker of this process."""
    guard = request.context.guard
    own = {"store": guard.breaker.state, "dependencies": guard.dependencies.state}
    return own | dict(request.context.unguarded.metrics.breakers)


def open_breakers(request: Request) -> dict[str, str]:
    """The breakers of this process that are not closed, each with what happens meanwhile."""
    return {
        name: FALLBACKS.get(name, "calls that need it are refused")
        for name, state in _breakers(request).items()
        if state != "closed"
    }


def _fallen_back(request: Request) -> dict[str, str]:
    """Breakers that are not closed and have a fallback: the process stays ready."""
    return {name: state for name, state in _breakers(request).items() if state != "closed" and name in FALLBACKS}


async def _check_store(request: Request) -> dict[str, str]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            version, known = await request.context.unguarded.schema()
    except TimeoutError:
        return {"store": f"has not answered for {PATIENCE_S:g} s", "schema": "unknown"}
    except MainspringError as error:
        return {"store": f"cannot be reached ({type(error).__name__})", "schema": "unknown"}
    # A newer schema is no fault: during an upgrade two versions of the program run side by side.
    return {"store": "ok", "schema": "ok" if version >= known else f"version {version}, {known} is needed"}


def _loops(request: Request) -> list[Loop]:
    node = request.context.node()
    return [] if node is None else node.loops


def _loop(loop: Loop, request: Request) -> str:
    silent = request.context.app.clock.monotonic() - loop.turned_at
    return "ok" if silent < STUCK_S else f"has not turned for {silent:.0f} s"


class Vitals:
    """The reads of health and metrics, shared by all concurrent requests. These requests take no capacity slot: many
    of them must not become as many calls of the store."""

    def __init__(self) -> None:
        self._check: asyncio.Task[dict[str, str]] | None = None
        self._reads: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, tuple[float, Sequence[Metric]]] = {}
        """When the metrics of a namespace were read, and the metrics."""
        self._counts: dict[str, tuple[float, float, Any]] = {}
        """When a subject was counted, how long that took, and the result."""

    async def check_store(self, request: Request) -> dict[str, str]:
        """Whether the store answers, and has the schema that this program needs."""
        if self._check is None or self._check.done():
            self._check = asyncio.ensure_future(_check_store(request))
        return await asyncio.shield(self._check)

    async def figures(self, request: Request) -> list[Metric]:
        """The metrics of the caller's namespace: current ones, or the last that the store returned, with their age."""
        namespace, now = request.namespace, request.context.app.clock.monotonic
        reading = self._reads.get(namespace)
        if reading is None:
            reading = self._reads[namespace] = asyncio.ensure_future(self._read(request))
            reading.add_done_callback(lambda done: self._forget(namespace, done))
        await asyncio.wait({reading}, timeout=STORE_FIGURES_WAIT_S)
        is_fresh = reading.done() and not reading.cancelled() and reading.exception() is None
        read_at, families = self._last.get(namespace, (float("-inf"), ()))
        age_s = 0.0 if is_fresh else now() - read_at
        meaning = "Age of the store's metrics: 0 if they were just read, +Inf if they never were"
        up = GaugeMetricFamily("mainspring_store_up", "Whether the store returned its metrics in time", int(is_fresh))
        return [*families, GaugeMetricFamily("mainspring_store_figures_age_seconds", meaning, age_s), up]

    def _forget(self, namespace: str, reading: asyncio.Task[None]) -> None:
        del self._reads[namespace]
        if not reading.cancelled() and (error := reading.exception()) is not None:
            log.debug("the figures of namespace %s could not be read: %s", namespace, error)

    async def _read(self, request: Request) -> None:
        context, namespace = request.context, request.namespace
        async with asyncio.timeout(STORE_FIGURES_LIMIT_S):
            counted = await self._count(request, f"runs of {namespace}", lambda: context.store.count_runs(namespace))
            crowd = await look_around(context.app, namespace)
            backlog = await self._count(request, "backlog", lambda: context.store.backlog(COUNTED_UP_TO))
        families = list(namespace_families(namespace, counted, crowd, backlog, context.store.now()))
        if len(self._last) >= MOST_NAMESPACES:
            self._last.clear()
            self._counts.clear()
        self._last[namespace] = (context.app.clock.monotonic(), families)

    async def _count(self, request: Request, what: str, count: Callable[[], Awaitable[T]]) -> T:
        """A count, new or cached: the longer a count takes, the longer it is cached."""
        monotonic = request.context.app.clock.monotonic
        began, (read_at, took_s, kept) = monotonic(), self._counts.get(what, (float("-inf"), 0.0, None))
        if began - read_at < took_s / COUNTING_SHARE:
            return cast(T, kept)
        counted = await count()
        self._counts[what] = (monotonic(), monotonic() - began, counted)
        return counted


async def metrics(request: Request) -> Response:
    """Metrics for Prometheus. Those of runs and workers are of the caller's namespace. While the store does not answer,
    they are the last that it returned, and `mainspring_store_figures_age_seconds` is their age."""
    context = request.context
    _measure(request)
    families = process_families(context.unguarded.metrics, context.unguarded.strain())
    carried = broker_families(request.namespace, context.unguarded.metrics.broker_depths)
    others = [*families, *carried, *_refusals(request), *await context.vitals.figures(request)]
    text = generate_latest(context.metrics.registry) + show(others)
    return Response(200, text, media_type=METRICS_TYPE)


def _refusals(request: Request) -> list[Metric]:
    meaning = "Requests refused for want of room, by what they needed it for"
    turned_away = CounterMetricFamily("mainspring_http_turned_away", meaning, labels=["kind"])
    for kind in request.context.capacity.busy:
        turned_away.add_metric([kind], request.context.capacity.refused[kind])
    limited = CounterMetricFamily("mainspring_rate_limited", "Refused by a rate limit", labels=["operation"])
    for operation in (SUBMIT, DEFINE, REGISTER, QUERY):
        limited.add_metric([operation.name], request.context.limits.refused[operation.name])
    return [turned_away, limited]


def _measure(request: Request) -> None:
    context, metrics = request.context, request.context.metrics
    for kind, number in context.capacity.busy.items():
        metrics.open.labels(kind).set(number)
    node = context.node()
    term = None if node is None or node.scheduler is None else node.scheduler.term()
    metrics.leads.set(term is not None)
    metrics.term.set(0 if term is None else term.number)
    guard = context.guard
    metrics.lag.set(guard.worst_lag_s)
    metrics.level.set(guard.level.number)
    for level, number in guard.count_levels().items():
        metrics.degraded.labels(level).set(number)
    metrics.pressure.set(guard.pressure)
    for name, state in _breakers(request).items():
        metrics.breaker.labels(name).set(state != "closed")
    now, troubles = context.app.clock.monotonic(), _troubles(request)
    for loop in _loops(request):
        metrics.loops.labels(loop.name).set(now - loop.turned_at)
        metrics.stalled.labels(loop.name).set(loop.name in troubles)
    metrics.loops.labels("guard").set(now - guard.looked_at)
    metrics.stalled.labels("guard").set("guard" in troubles)
    metrics.threads.set(sum(name not in {loop.name for loop in _loops(request)} for name in troubles))


def _alias(act: Callable[[Request], Awaitable[Response]], name: str) -> Callable[[Request], Awaitable[Response]]:
    """The same under another name: every operation has its own in the document."""

    async def same(request: Request) -> Response:
        return await act(request)

    same.__name__, same.__doc__ = name, act.__doc__
    return same


ENDPOINTS = (
    Endpoint("GET", "/health/live", live, PUBLIC, "Whether the server is alive.", {200: records.Alive}, vital=True),
    Endpoint("GET", "/health/ready", ready, PUBLIC, "Whether the server is ready.", {200: records.Ready}, vital=True),
    Endpoint(
        "GET", "/health/liveness", _alias(live, "liveness"), PUBLIC, "The same as /health/live.", {200: records.Alive},
        vital=True,
    ),
    Endpoint(
        "GET", "/health/readiness", _alias(ready, "readiness"), PUBLIC, "The same as /health/ready.",
        {200: records.Ready}, vital=True,
    ),
    Endpoint("GET", "/metrics", metrics, "metrics:read", "Figures for Prometheus.", {200: METRICS_TYPE}, vital=True),
)  # fmt: skip
