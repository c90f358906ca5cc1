"""Whether it is alive, whether it is ready, and its figures."""

from __future__ import annotations

import asyncio

from prometheus_client import generate_latest

from mainspring.api import shapes
from mainspring.api.endpoint import PUBLIC, Answer, Call, Endpoint
from mainspring.api.measures import METRICS_TYPE
from mainspring.core.states import STATES
from mainspring.core.why import Crowd
from mainspring.errors import MainspringError
from mainspring.lookup import look_around
from mainspring.services.loop import Loop

PATIENCE_S = 5.0
STUCK_S = 60.0
"""A loop that has not turned for so long is not alive. The slowest look once in half a minute."""


async def live(call: Call) -> Answer:
    """Somebody answers."""
    return Answer(200, {"status": "alive"})


async def ready(call: Call) -> Answer:
    """Whether requests can be served: the store answers, and the loops of this process turn."""
    checks = {"store": await _store(call)} | {f"loop.{loop.name}": _loop(loop, call) for loop in _loops(call)}
    well = all(word == "ok" for word in checks.values())
    return Answer(200 if well else 503, {"status": "ready" if well else "not ready", "checks": checks})


async def _store(call: Call) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            await call.desk.store.next_position()
    except TimeoutError:
        return "does not answer"
    except MainspringError as error:
        return type(error).__name__
    return "ok"


def _loops(call: Call) -> list[Loop]:
    node = call.desk.node()
    return [] if node is None else node.loops


def _loop(loop: Loop, call: Call) -> str:
    silent = call.desk.app.clock.monotonic() - loop.turned_at
    return "ok" if silent < STUCK_S else f"has not turned for {silent:.0f} s"


async def metrics(call: Call) -> Answer:
    """Figures for Prometheus. Those of runs and workers are of the caller's namespace."""
    await _measure(call)
    return Answer(200, generate_latest(call.desk.measures.registry), media_type=METRICS_TYPE)


async def _measure(call: Call) -> None:
    desk, namespace = call.desk, call.namespace
    measures = desk.measures
    counted = await desk.store.count_runs(namespace)
    for state in STATES:
        measures.runs.labels(namespace, state).set(counted.get(state, 0))
    crowd: Crowd = await look_around(desk.app, namespace)
    living = crowd.living()
    measures.workers.labels(namespace, "alive").set(len(living))
    measures.workers.labels(namespace, "draining").set(sum(each.state == "draining" for each in living))
    measures.busy.labels(namespace).set(sum(each.running for each in living))
    measures.open.labels("working").set(desk.capacity.busy[False])
    measures.open.labels("waiting").set(desk.capacity.busy[True])
    measures.turned_away.set(desk.capacity.refused)
    measures.limited.set(desk.limits.refused)
    node = desk.node()
    measures.leads.set(node is not None and node.scheduler is not None and node.scheduler.leads())
    for loop in _loops(call):
        measures.loops.labels(loop.name).set(desk.app.clock.monotonic() - loop.turned_at)
    loop_now = asyncio.get_running_loop()
    began = loop_now.time()
    await asyncio.sleep(0)
    measures.lag.set(loop_now.time() - began)


ENDPOINTS = (
    Endpoint("GET", "/health/live", live, PUBLIC, "Whether the server is alive.", {200: shapes.Alive}),
    Endpoint("GET", "/health/ready", ready, PUBLIC, "Whether the server is ready.", {200: shapes.Ready}),
    Endpoint("GET", "/metrics", metrics, "metrics:read", "Figures for Prometheus.", {200: METRICS_TYPE}),
)
