"""What the API measures of itself. The names are in docs/api.md; labels are few and bounded."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Measures:
    """Counters of this process, in a registry of their own."""

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
        self.open = Gauge("mainspring_http_open", "Requests open now", ("kind",), registry=self.registry)
        self.turned_away = Gauge(
            "mainspring_http_turned_away", "Requests refused for want of room", registry=self.registry
        )
        self.submitted = Counter("mainspring_submissions", "Runs accepted by the API", registry=self.registry)
        self.limited = Gauge("mainspring_rate_limited", "Submissions refused by the rate limit", registry=self.registry)
        self.reports = Counter(
            "mainspring_reports", "Results that workers reported over HTTP", ("verdict",), registry=self.registry
        )
        self.runs = Gauge(
            "mainspring_runs",
            "Runs in the store by namespace and state",
            ("namespace", "state"),
            registry=self.registry,
        )
        self.workers = Gauge(
            "mainspring_workers", "Workers by namespace and state", ("namespace", "state"), registry=self.registry
        )
        self.busy = Gauge(
            "mainspring_workers_running", "Runs that workers execute now", ("namespace",), registry=self.registry
        )
        self.leads = Gauge("mainspring_leader", "Whether this process plans", registry=self.registry)
        self.loops = Gauge(
            "mainspring_loop_age_seconds", "Since when a loop has not turned well", ("loop",), registry=self.registry
        )
        self.lag = Gauge("mainspring_loop_lag_seconds", "How late the API's event loop is", registry=self.registry)
