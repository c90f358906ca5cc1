"""Whether it is alive, whether it is ready, and its figures."""

from __future__ import annotations

import asyncio

from prometheus_client import generate_latest
from prometheus_client.core import Metric

from mainspring.api import shapes
from mainspring.api.endpoint import PUBLIC, Answer, Call, Endpoint
from mainspring.api.measures import METRICS_TYPE, namespace_families, process_families, show
from mainspring.errors import MainspringError
from mainspring.figures import figures_of
from mainspring.lookup import look_around
from mainspring.services.loop import Loop

PATIENCE_S = 5.0
COUNTED_UP_TO = 100_000
"""So many waiting runs are counted at most, of each queue and priority."""
STUCK_S = 60.0
"""A loop that has not turned for so long is not alive. The slowest look once in half a minute."""


async def live(call: Call) -> Answer:
    """Somebody answers."""
    return Answer(200, {"status": "alive"})


async def ready(call: Call) -> Answer:
    """Whether requests can be served: the store answers, its schema is current, and the loops of this process turn."""
    breaker = call.desk.guard.breaker.state
    checks = (
        await _store(call)
        | {"breaker.store": "ok" if breaker == "closed" else breaker}
        | {f"loop.{loop.name}": _loop(loop, call) for loop in _loops(call)}
    )
    well = all(word == "ok" for word in checks.values())
    body = {
        "status": "ready" if well else "not ready",
        "checks": checks,
        "degradation": call.desk.guard.level.name,
        "pressure": round(call.desk.guard.pressure, 3),
    }
    return Answer(200 if well else 503, body)


async def _store(call: Call) -> dict[str, str]:
    try:
        async with asyncio.timeout(PATIENCE_S):
            version, known = await call.desk.unguarded.schema()
    except TimeoutError:
        return {"store": "does not answer", "schema": "unknown"}
    except MainspringError as error:
        return {"store": type(error).__name__, "schema": "unknown"}
    # A newer one is no fault: during an upgrade two versions of the program work side by side.
    return {"store": "ok", "schema": "ok" if version >= known else f"version {version}, {known} is needed"}


def _loops(call: Call) -> list[Loop]:
    node = call.desk.node()
    return [] if node is None else node.loops


def _loop(loop: Loop, call: Call) -> str:
    silent = call.desk.app.clock.monotonic() - loop.turned_at
    return "ok" if silent < STUCK_S else f"has not turned for {silent:.0f} s"


async def metrics(call: Call) -> Answer:
    """Figures for Prometheus. Those of runs and workers are of the caller's namespace."""
    desk = call.desk
    _measure(call)
    families = process_families(figures_of(desk.unguarded), desk.unguarded.strain())
    text = generate_latest(desk.measures.registry) + show([*families, *await _of_namespace(call)])
    return Answer(200, text, media_type=METRICS_TYPE)


async def _of_namespace(call: Call) -> list[Metric]:
    desk, namespace = call.desk, call.namespace
    counted = await desk.store.count_runs(namespace)
    crowd = await look_around(desk.app, namespace)
    backlog = await desk.store.backlog(COUNTED_UP_TO)
    return list(namespace_families(namespace, counted, crowd, backlog, desk.store.now()))


def _measure(call: Call) -> None:
    desk, measures = call.desk, call.desk.measures
    measures.open.labels("working").set(desk.capacity.busy[False])
    measures.open.labels("waiting").set(desk.capacity.busy[True])
    measures.turned_away.set(desk.capacity.refused)
    measures.limited.set(desk.limits.refused)
    node = desk.node()
    term = None if node is None or node.scheduler is None else node.scheduler.term()
    measures.leads.set(term is not None)
    measures.term.set(0 if term is None else term.number)
    guard = desk.guard
    measures.lag.set(guard.worst_lag_s)
    measures.level.set(guard.level.number)
    measures.pressure.set(guard.pressure)
    measures.breaker.labels("store").set(guard.breaker.state != "closed")
    for loop in _loops(call):
        measures.loops.labels(loop.name).set(desk.app.clock.monotonic() - loop.turned_at)


ENDPOINTS = (
    Endpoint("GET", "/health/live", live, PUBLIC, "Whether the server is alive.", {200: shapes.Alive}),
    Endpoint("GET", "/health/ready", ready, PUBLIC, "Whether the server is ready.", {200: shapes.Ready}),
    Endpoint("GET", "/metrics", metrics, "metrics:read", "Figures for Prometheus.", {200: METRICS_TYPE}),
)
