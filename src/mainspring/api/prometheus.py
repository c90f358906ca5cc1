"""What is measured, as Prometheus reads it. The names are in docs/metrics.md; labels are few and bounded."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mainspring.core.instants import SECOND
from mainspring.core.runs.regions import region_health
from mainspring.core.states import STATES

if TYPE_CHECKING:
    from mainspring.core.instants import Instant
    from mainspring.core.runs.why import Crowd
    from mainspring.core.states import State
    from mainspring.store import Backlog

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

MOST_QUEUES, OTHERS = 50, "others"
"""How many pairs of queue and region get labels of their own: a tenant may create any number of them."""

MOST_SOURCES = 500
"""How many queues and partitions of the broker get labels of their own."""


class ApiMetrics:
    """Metrics of this process's API, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "mainspring_http_requests", "Requests answered", ("method", "route", "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "mainspring_http_request_seconds",
            "How long requests took; long polls and streams are not among them",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.open = self._gauge("http_open", "Requests open now", "kind")
        self.leads = self._gauge("leader", "Whether this process plans")
        self.term = self._gauge("term", "The term in which this process leads; 0 if it does not")
        self.loops = self._gauge("loop_age_seconds", "Since when a loop has not turned well", "loop")
        self.stalled = self._gauge("loop_stalled", "Whether a loop has ended or stands still", "loop")
        self.threads = self._gauge("threads_failed", "Threads of this process that have ended or stand still")
        self.lag = self._gauge("loop_lag_seconds", "How late the API's event loop was lately, at worst")
        self.level = self._gauge(
            "degradation_level", "Worst: 0 normal, 1 shedding, 2 slow history, 3 no waiting, 4 refusing"
        )
        self.degraded = self._gauge("degraded_namespaces", "Namespaces under pressure of their own, by level", "level")
        self.pressure = self._gauge("pressure", "The worst of what is measured, beside its limit")
        self.breaker = self._gauge("breaker_open", "Whether calls are not made because too many failed", "breaker")

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"mainspring_{name}", meaning, labels, registry=self.registry)


class _Given(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def show(families: Iterable[Metric]) -> bytes:
    """Families in the text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Given(families))
    return generate_latest(registry)


def namespace_families(
    namespace: str, runs: dict[State, int], crowd: Crowd, backlog: list[Backlog], now: Instant
) -> Iterator[Metric]:
    """Metrics of one namespace in the store. Created for each request, so that no tenant sees another's."""
    held = GaugeMetricFamily("mainspring_runs", "Runs in the store", labels=["namespace", "state"])
    for state in STATES:
        held.add_metric([namespace, state], runs.get(state, 0))
    yield held
    yield from _worker_families(namespace, crowd)
    yield from _queue_families(namespace, crowd, [row for row in backlog if row.namespace == namespace], now)


def broker_families(namespace: str, depths: Mapping[tuple[str, str, str, str], int]) -> Iterator[Metric]:
    """What waits in the broker for one namespace. The longest queues and partitions get labels of their own."""
    labels = ["namespace", "queue", "region", "source"]
    family = GaugeMetricFamily("mainspring_broker_depth", "Messages that no worker has acknowledged", labels=labels)
    found = {place: waiting for place, waiting in depths.items() if place[0] == namespace}
    shown = sorted(found, key=lambda place: (-found[place], place))[:MOST_SOURCES]
    for place in shown:
        family.add_metric(place, found.pop(place))
    if found:
        family.add_metric([namespace, OTHERS, OTHERS, OTHERS], sum(found.values()))
    yield family


def _worker_families(namespace: str, crowd: Crowd) -> Iterator[Metric]:
    living, dead = crowd.living(), crowd.lately_dead()
    workers = GaugeMetricFamily("mainspring_workers", "Workers by state", labels=["namespace", "state"])
    workers.add_metric([namespace, "alive"], len(living))
    workers.add_metric([namespace, "busy"], sum(each.running > 0 for each in living))
    workers.add_metric([namespace, "draining"], sum(each.state == "draining" for each in living))
    workers.add_metric([namespace, "dead"], len(dead))
    yield workers
    places, running = sum(each.concurrency for each in living), sum(each.running for each in living)
    for name, meaning, value in (
        ("workers_running", "Runs that workers execute now", running),
        ("worker_places", "Runs that living workers could execute at once", places),
        ("worker_utilisation", "The share of these places that is in use: 0 to 1", running / places if places else 0.0),
        ("workers_dead_share", "Dead workers beside all that live or died lately: 0 to 1",
         len(dead) / (len(dead) + len(living)) if dead else 0.0),
    ):  # fmt: skip
        family = GaugeMetricFamily(f"mainspring_{name}", meaning, labels=["namespace"])
        family.add_metric([namespace], value)
        yield family


def _queue_families(namespace: str, crowd: Crowd, backlog: list[Backlog], now: Instant) -> Iterator[Metric]:
    """Metrics by queue and region: those with the most due runs, and those that workers serve, up to a bound; the
    others are summed up."""
    waiting: Tally[tuple[str, str]] = Tally()
    for row in backlog:
        waiting[row.queue, row.region] += row.count
    served = {(queue, region) for each in crowd.living() for queue in each.queues for region in each.regions}
    shown = {place for place, _ in waiting.most_common(MOST_QUEUES)}
    shown |= set(sorted(served - shown)[: MOST_QUEUES - len(shown)])
    rows: dict[tuple[str, str, int], tuple[int, Instant]] = {
        (*place, priority): (0, now) for place in shown for priority in range(1, 11)
    }
    for row in backlog:
        place = (row.queue, row.region) if (row.queue, row.region) in shown else (OTHERS, OTHERS)
        count, oldest_at = rows.get((*place, row.priority), (0, now))
        rows[*place, row.priority] = (count + row.count, min(oldest_at, row.oldest_at))
    labels = ["namespace", "queue", "region", "priority"]
    depth = GaugeMetricFamily("mainspring_queue_depth", "Due runs that no worker has taken", labels=labels)
    oldest = GaugeMetricFamily("mainspring_queue_oldest_seconds", "Since when the oldest of them is due", labels=labels)
    for (queue, region, priority), (count, oldest_at) in sorted(rows.items()):
        depth.add_metric([namespace, queue, region, str(priority)], count)
        oldest.add_metric([namespace, queue, region, str(priority)], (now - oldest_at) / SECOND)
    yield depth
    yield oldest
    yield from _region_families(namespace, crowd, backlog, now)


def _region_families(namespace: str, crowd: Crowd, backlog: list[Backlog], now: Instant) -> Iterator[Metric]:
    """The regions with most workers or most to do, up to a bound."""
    health = sorted(region_health(crowd.living(), backlog, now), key=lambda each: (-each.depth, -each.workers))
    shown = sorted(health[:MOST_QUEUES])
    for name, meaning, values in (
        ("workers", "Live workers that serve the region", [each.workers for each in shown]),
        ("depth", "Due runs of the region that no worker has taken", [each.depth for each in shown]),
        ("lateness_seconds", "How long the oldest of them has been due", [each.lateness / SECOND for each in shown]),
    ):
        family = GaugeMetricFamily(f"mainspring_region_{name}", meaning, labels=["namespace", "region"])
        for each, value in zip(shown, values, strict=True):
            family.add_metric([namespace, each.region], value)
        yield family
