"""What is measured, as Prometheus reads it. The names are in docs/metrics.md; labels are few and bounded."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mainspring.core.instants import SECOND
from mainspring.core.states import STATES
from mainspring.process.metrics import Durations, Metrics

if TYPE_CHECKING:
    from mainspring.core.answers import Connections
    from mainspring.core.instants import Instant
    from mainspring.core.runs.why import Crowd
    from mainspring.core.states import State
    from mainspring.store import Backlog, Strain

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

MOST_QUEUES, OTHERS = 50, "others"
"""Pairs of queue and region that are told apart; a tenant may make up as many as it likes."""

COUNTED = {
    "submissions": ("", "Runs that this process accepted"),
    "firings": ("outcome", "Due instants that this process recorded, by what became of them"),
    "claims": ("", "Runs that workers took through this process"),
    "reports": ("verdict", "Results that were reported through this process; stale ones were refused"),
    "duplicates": ("kind", "What came twice, or too late, and changed nothing"),
    "attempts": ("outcome", "Attempts whose result this process recorded"),
    "runs_finished": ("state", "Runs that this process brought to their final state"),
    "runs_lost": ("", "Runs that this process found lost by their worker"),
    "runs_shed": ("", "Runs that were skipped under pressure"),
    "hurried": ("", "Runs and jobs that did not wait for what they follow, under pressure"),
    "workers_dead": ("", "Workers that this process found silent for too long"),
    "deliveries": (
        "result",
        "Messages of the broker: claimed, refused (late, doubled or forged), redelivered, unreadable",
    ),
    "leases": ("result", "Leases and locks: taken, refused, renewed, lost, released"),
    "leadership": ("change", "Terms of this process, of the scheduler and of users: elected, resigned"),
    "locks": ("result", "Locks that users wanted: acquired, refused, lost"),
    "broker": ("change", "How often this process gave up its broker (lost), and used it again (back)"),
    "cache": ("change", "How often this process gave up the cache of statuses (lost), and used it again (back)"),
    "starts": ("priority", "Runs taken by workers, of priorities that have a service level"),
    "starts_late": ("priority", "Those of them that were taken later than their service level"),
    "statuses": ("source", "Status queries that this process answered, by where from"),
    "loop_restarts": ("loop", "How often a loop of this process ended unasked, or was ended, and was started again"),
    "loop_stalls": ("loop", "How often a loop of this process stood still for too long"),
    "terms_passed": ("", "Plans that were refused because another node leads"),
    "store_errors": ("call", "Calls of the store that failed"),
}
"""Counters of `mainspring.process.metrics`: label and meaning."""
SPREADS = {
    "run_seconds": "How long attempts took",
    "run_delay": "From when a run was due until a worker took it",
    "firing_delay": "From a due instant until it was recorded",
    "lock_wait": "How long locks were waited for",
    "lock_held": "How long locks were held",
}


class ApiMetrics:
    """Figures of the API of this process, in a registry of their own."""

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
    """Families in Prometheus's words."""
    registry = CollectorRegistry()
    registry.register(_Given(families))
    return generate_latest(registry)


def process_families(counted: Metrics, strain: Strain) -> Iterator[Metric]:
    """What this process counted between it and its store."""
    with counted.lock:
        counts = dict(counted.counts)
    for name, (label, meaning) in COUNTED.items():
        family = CounterMetricFamily(f"mainspring_{name}", meaning, labels=[label] if label else [])
        found = [(value, number) for (counted, value), number in counts.items() if counted == name]
        for value, number in found or ([] if label else [("", 0)]):
            family.add_metric([value] if label else [], number)
        yield family
    for name, meaning in SPREADS.items():
        durations: Durations = getattr(counted, name)
        histogram = HistogramMetricFamily(f"mainspring_{name.removesuffix('_seconds')}_seconds", meaning)
        histogram.add_metric([], durations.buckets(), durations.total_s)
        yield histogram
    waits = CounterMetricFamily("mainspring_store_waits", "How often a connection had to be waited for")
    waits.add_metric([], strain.waits)
    yield waits
    waited = CounterMetricFamily("mainspring_store_wait_seconds", "How long connections were waited for")
    waited.add_metric([], strain.waited_s)
    yield waited
    yield GaugeMetricFamily("mainspring_store_wait_longest_seconds", "The longest wait so far", strain.longest_s)
    yield from _pool_families(strain.pool)
    yield GaugeMetricFamily(
        "mainspring_clock_skew_seconds", "How far this host's clock is ahead of the store's", strain.skew / SECOND
    )


def _pool_families(pool: Connections) -> Iterator[Metric]:
    family = GaugeMetricFamily("mainspring_store_connections", "Connections to PostgreSQL", labels=["state"])
    for state, number in (("in_use", pool.in_use), ("idle", pool.idle), ("waited_for", pool.waiters)):
        family.add_metric([state], number)
    yield family
    yield GaugeMetricFamily("mainspring_store_connections_max", "How many of them there may be", pool.size)
    share = pool.in_use / pool.size if pool.size else 0.0
    yield GaugeMetricFamily("mainspring_store_pool_use", "The share of them that is in use: 0 to 1", share)
    leaks = CounterMetricFamily("mainspring_store_connection_leaks", "How often one was in use for too long")
    leaks.add_metric([], pool.leaks)
    yield leaks


def namespace_families(
    namespace: str, runs: dict[State, int], crowd: Crowd, backlog: list[Backlog], now: Instant
) -> Iterator[Metric]:
    """What the store holds of one namespace. Made anew for each who asks: nobody sees another tenant's."""
    held = GaugeMetricFamily("mainspring_runs", "Runs in the store", labels=["namespace", "state"])
    for state in STATES:
        held.add_metric([namespace, state], runs.get(state, 0))
    yield held
    yield from _worker_families(namespace, crowd)
    yield from _queue_families(namespace, crowd, [row for row in backlog if row.namespace == namespace], now)


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
    """By queue and region: of those with most to do, and of those that workers serve, up to a bound; the rest is told
    together."""
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
    depth = GaugeMetricFamily("mainspring_queue_depth", "Due runs that nobody has taken", labels=labels)
    oldest = GaugeMetricFamily("mainspring_queue_oldest_seconds", "Since when the oldest of them is due", labels=labels)
    for (queue, region, priority), (count, oldest_at) in sorted(rows.items()):
        depth.add_metric([namespace, queue, region, str(priority)], count)
        oldest.add_metric([namespace, queue, region, str(priority)], (now - oldest_at) / SECOND)
    yield depth
    yield oldest
