"""What the dashboards show: four boards of panels, each a title, queries and a unit. `docs/metrics.md` has the metrics.

Counters are of one process, so they are summed. The store's figures are the same from every process, so their maximum
is taken. Names with colons are recorded by `deploy/prometheus/recording.rules.yml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Unit = Literal["short", "percentunit", "s", "ops", "reqps", "bool"]
"""Units of Grafana."""


class Query(NamedTuple):
    """One line of a panel."""

    expr: str
    legend: str = ""


class Panel(NamedTuple):
    """One graph, or one figure (`stat`)."""

    title: str
    queries: Sequence[Query]
    unit: Unit = "short"
    kind: Literal["timeseries", "stat"] = "timeseries"
    limits: Sequence[tuple[float, str]] = ()
    """The colour from each value on; the lowest first."""


class Dashboard(NamedTuple):
    """A dashboard: rows of panels under headings."""

    name: str
    title: str
    rows: Sequence[tuple[str, Sequence[Panel]]]


def _by_state(metric: str, label: str) -> Query:
    return Query(f"sum by ({label}) (rate({metric}[5m]))", f"{{{{{label}}}}}")


def _quantiles(metric: str) -> list[Query]:
    template = "histogram_quantile({share}, sum by (le) (rate({metric}_bucket[5m])))"
    return [
        Query(template.format(share=share, metric=metric), name)
        for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    ]


_SUCCESS = ((0.0, "red"), (0.90, "orange"), (0.95, "yellow"), (0.99, "green"))
_DELAY = ((0.0, "green"), (0.05, "yellow"), (0.1, "orange"), (0.2, "red"))
_USE = ((0.0, "red"), (0.6, "orange"), (0.7, "yellow"), (0.8, "green"))
_DEPTH = ((0.0, "green"), (1e6, "yellow"), (5e6, "orange"), (10e6, "red"))
_BAD = ((0.0, "green"), (1.0, "red"))

FLEET = Dashboard(
    "fleet",
    "Mainspring: fleet",
    (
        (
            "Targets",
            (
                Panel("Success", [Query("mainspring:success:ratio5m")], "percentunit", "stat", _SUCCESS),
                Panel("Scheduling latency, p99", [Query("mainspring:run_delay_seconds:p99_5m")], "s", "stat", _DELAY),
                Panel("Utilisation", [Query("max(mainspring:worker_utilisation:ratio)")], "percentunit", "stat", _USE),
                Panel("Queue depth", [Query("sum(mainspring:queue_depth:sum)")], "short", "stat", _DEPTH),
                Panel("Leaders", [Query("sum(mainspring_leader)")], "short", "stat", ((0.0, "red"), (1.0, "green"))),
                Panel("Degradation", [Query("max(mainspring_degradation_level)")], "short", "stat", _BAD),
            ),
        ),
        (
            "Workers",
            (
                Panel("Workers", [Query("max by (state) (mainspring_workers)", "{{state}}")]),
                Panel(
                    "Places",
                    [
                        Query("max by (namespace) (mainspring_workers_running)", "running {{namespace}}"),
                        Query("max by (namespace) (mainspring_worker_places)", "places {{namespace}}"),
                    ],
                ),
                Panel("Dead", [Query("mainspring:workers_dead:ratio", "{{namespace}}")], "percentunit"),
                Panel("Lost runs", [Query("sum(rate(mainspring_runs_lost_total[5m]))")], "ops"),
            ),
        ),
        (
            "Processes",
            (
                Panel("Replication lag", [Query("max(mainspring_replication_lag_seconds)", "furthest behind")], "s"),
                Panel("Clock skew", [Query("mainspring_clock_skew_seconds", "{{instance}}")], "s"),
                Panel("Stalled loops", [Query("sum by (loop) (mainspring_loop_stalled)", "{{loop}}")], "short"),
                Panel("Age of loops", [Query("max by (loop) (mainspring_loop_age_seconds)", "{{loop}}")], "s"),
                Panel("Leases", [_by_state("mainspring_leases_total", "result")], "ops"),
            ),
        ),
    ),
)
JOBS = Dashboard(
    "jobs",
    "Mainspring: jobs and runs",
    (
        (
            "Throughput",
            (
                Panel("Runs by state", [_by_state("mainspring_runs_finished_total", "state")], "ops"),
                Panel("Submissions", [Query("sum(rate(mainspring_submissions_total[5m]))")], "ops"),
                Panel("Claims", [Query("sum(rate(mainspring_claims_total[5m]))")], "ops"),
                Panel("Firings", [_by_state("mainspring_firings_total", "outcome")], "ops"),
                Panel("Attempts", [_by_state("mainspring_attempts_total", "outcome")], "ops"),
                Panel("Retries", [Query("sum(rate(mainspring_retries_total[5m]))")], "ops"),
                Panel("Duplicates", [_by_state("mainspring_duplicates_total", "kind")], "ops"),
            ),
        ),
        (
            "Time",
            (
                Panel("Scheduling latency", _quantiles("mainspring_run_delay_seconds"), "s"),
                Panel("Duration", _quantiles("mainspring_run_seconds"), "s"),
                Panel("Firing delay", _quantiles("mainspring_firing_delay_seconds"), "s"),
                Panel("Late starts by priority", [_by_state("mainspring_starts_late_total", "priority")], "ops"),
            ),
        ),
        (
            "Queue",
            (
                Panel(
                    "Depth by queue",
                    [Query("sum by (queue) (max by (namespace, queue, region, priority) (mainspring_queue_depth))",
                           "{{queue}}")],
                ),
                Panel(
                    "Depth by priority",
                    [Query("sum by (priority) (max by (namespace, queue, region, priority) (mainspring_queue_depth))",
                           "{{priority}}")],
                ),
                Panel("Oldest", [Query("max by (queue) (mainspring_queue_oldest_seconds)", "{{queue}}")], "s"),
                Panel("Runs in the store", [Query("max by (state) (mainspring_runs)", "{{state}}")]),
            ),
        ),
        (
            "Locks",
            (
                Panel("Locks", [_by_state("mainspring_locks_total", "result")], "ops"),
                Panel("Wait", _quantiles("mainspring_lock_wait_seconds"), "s"),
                Panel("Held", _quantiles("mainspring_lock_held_seconds"), "s"),
            ),
        ),
    ),
)  # fmt: skip
STORE = Dashboard(
    "store",
    "Mainspring: store and brokers",
    (
        (
            "Store",
            (
                Panel("Up", [Query("min(mainspring_store_up)")], "short", "stat", ((0.0, "red"), (1.0, "green"))),
                Panel("Age of figures", [Query("min(mainspring_store_figures_age_seconds)")], "s", "stat"),
                Panel("Errors", [_by_state("mainspring_store_errors_total", "call")], "ops"),
            ),
        ),
        (
            "Connections",
            (
                Panel("Pool use", [Query("mainspring_store_pool_use", "{{instance}}")], "percentunit"),
                Panel("Connections", [Query("sum by (state) (mainspring_store_connections)", "{{state}}")]),
                Panel("Waits", [Query("sum(rate(mainspring_store_waits_total[5m]))")], "ops"),
                Panel("Time waited", [Query("sum(rate(mainspring_store_wait_seconds_total[5m]))")], "s"),
                Panel("Leaks", [Query("sum(increase(mainspring_store_connection_leaks_total[5m]))")]),
            ),
        ),
        (
            "Broker",
            (
                Panel("Depth by queue", [Query("sum by (queue, region) (mainspring_broker_depth)",
                                               "{{queue}} {{region}}")]),
                Panel("Depth by source; on Kafka the lag of a partition",
                      [Query("topk(20, max by (source) (mainspring_broker_depth))", "{{source}}")]),
                Panel("Time to publish", _quantiles("mainspring_broker_publish_seconds"), "s"),
                Panel("From publication to a worker", _quantiles("mainspring_broker_receive_seconds"), "s"),
                Panel("Deliveries", [_by_state("mainspring_deliveries_total", "result")], "ops"),
                Panel("Redeliveries", [Query("sum(rate(mainspring_broker_redeliveries_total[5m]))")], "ops"),
            ),
        ),
        (
            "Cache and breakers",
            (
                Panel("Broker lost, back", [_by_state("mainspring_broker_total", "change")], "ops"),
                Panel("Status cache", [_by_state("mainspring_cache_total", "change")], "ops"),
                Panel("Status queries", [_by_state("mainspring_statuses_total", "source")], "ops"),
                Panel("Open breakers", [Query("max by (breaker) (mainspring_breaker_open)", "{{breaker}}")]),
            ),
        ),
    ),
)  # fmt: skip
API = Dashboard(
    "api",
    "Mainspring: API",
    (
        (
            "Requests",
            (
                Panel("Requests", [_by_state("mainspring_http_requests_total", "status")], "reqps"),
                Panel("Duration", _quantiles("mainspring_http_request_seconds"), "s"),
                Panel("Open", [Query("sum by (kind) (mainspring_http_open)", "{{kind}}")]),
                Panel("Errors", [Query('sum(rate(mainspring_http_requests_total{status=~"5.."}[5m])) or vector(0)')],
                      "reqps"),
            ),
        ),
        (
            "Refusals and pressure",
            (
                Panel("Turned away", [_by_state("mainspring_http_turned_away_total", "kind")], "reqps"),
                Panel("Rate limited", [_by_state("mainspring_rate_limited_total", "operation")], "reqps"),
                Panel("Pressure", [Query("max(mainspring_pressure)")]),
                Panel("Degraded namespaces", [Query("max by (level) (mainspring_degraded_namespaces)", "{{level}}")]),
                Panel("Lag of the event loop", [Query("mainspring_loop_lag_seconds", "{{instance}}")], "s"),
                Panel("Shed runs", [Query("sum(rate(mainspring_runs_shed_total[5m]))")], "ops"),
            ),
        ),
    ),
)  # fmt: skip
BOARDS = (FLEET, JOBS, STORE, API)
