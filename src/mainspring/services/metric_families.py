"""The counters of a process as Prometheus families: `/metrics` shows them, and telemetry exports them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from mainspring.core.instants import SECOND
from mainspring.process.metrics import Durations, Metrics

if TYPE_CHECKING:
    from mainspring.core.answers import Connections
    from mainspring.store import Strain

COUNTED = {
    "submissions": ("", "Runs that this process accepted"),
    "firings": ("outcome", "Due instants that this process recorded, by what became of them"),
    "claims": ("", "Runs that workers took through this process"),
    "reports": ("verdict", "Results that were reported through this process; stale ones were refused"),
    "duplicates": ("kind", "What came twice, or too late, and changed nothing"),
    "attempts": ("outcome", "Attempts whose result this process recorded"),
    "runs_finished": ("state", "Runs that this process brought to their final state"),
    "retries": ("", "Attempts after whose failure the run waits for another attempt"),
    "runs_lost": ("", "Runs that this process found lost by their worker"),
    "runs_shed": ("", "Runs that were skipped under pressure"),
    "hurried": ("", "Runs and jobs that did not wait for what they follow, under pressure"),
    "workers_dead": ("", "Workers that this process found silent for too long"),
    "deliveries": (
        "result",
        "Messages of the broker by what became of them: claimed, refused (late, doubled or forged), unreadable",
    ),
    "broker_redeliveries": ("", "Messages that the broker had delivered before, to this worker or another"),
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
BY_REGION = frozenset({"attempts", "runs_finished"})
"""Counters that also have the region of the worker as a label: one value for each process, so their number is
bounded."""
SPREADS = {
    "run_seconds": "How long attempts took",
    "run_delay": "From when a run was due until a worker took it",
    "firing_delay": "From a due instant until it was recorded",
    "lock_wait": "How long locks were waited for",
    "lock_held": "How long locks were held",
    "broker_publish": "How long it took the broker to take messages, of one call",
    "broker_receive": "From the publication of a message until a worker took it",
}


def process_families(counted: Metrics, strain: Strain) -> Iterator[Metric]:
    """What this process counted between it and its store."""
    with counted.lock:
        counts = dict(counted.counts)
    for name, (label, meaning) in COUNTED.items():
        place = {"region": counted.region} if name in BY_REGION and counted.region else {}
        family = CounterMetricFamily(f"mainspring_{name}", meaning, labels=[*([label] if label else []), *place])
        found = [(value, number) for (each, value), number in counts.items() if each == name]
        for value, number in found or ([] if label else [("", 0)]):
            family.add_metric([*([value] if label else []), *place.values()], number)
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
    yield GaugeMetricFamily("mainspring_replication_standbys", "Servers that follow the store's", strain.standbys)
    yield GaugeMetricFamily(
        "mainspring_replication_lag_seconds", "How far the furthest behind of them is", strain.lag / SECOND
    )
    used = CounterMetricFamily("mainspring_process_cpu_seconds", "CPU time of this process and its ended children")
    used.add_metric([], sum(os.times()[:4]))
    yield used
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
