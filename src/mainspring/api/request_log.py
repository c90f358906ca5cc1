"""Metrics and the access log: one observation and, where a handler listens, one line for each request."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from prometheus_client import Counter, Histogram

from mainspring.api.prometheus import ApiMetrics
from mainspring.api.router import METHODS
from mainspring.api.wire.incoming import RequestRecord
from mainspring.clock import Clock
from mainspring.core.instants import format_instant

access_log = logging.getLogger("mainspring.access")
access_log.setLevel(logging.INFO)
access_log.propagate = False
"""One line of JSON per request, for handlers that are added to it. It has no query, header or body, since those may
contain secrets."""
LONGEST_PATH = 500


class RequestLog:
    """Counts requests and writes the access log."""

    def __init__(self, metrics: ApiMetrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """The series of each method, route and status: finding them by label costs more than the rest of this."""

    def observe(self, scope: Any, record: RequestRecord, seconds: float) -> None:
        """Record a request that has been answered."""
        method = scope["method"] if scope["method"] in METHODS else "other"
        requests, durations = self._find_series(method, record.route, record.status)
        requests.inc()
        if not record.is_patient:
            durations.observe(seconds)
        if access_log.hasHandlers():
            access_log.info(msgspec.json.encode(self._line(scope, method, record, seconds)).decode())

    def _find_series(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        series = self._series.get((method, route, status))
        if series is None:
            requests = self._metrics.requests.labels(method, route, str(status))
            series = self._series[method, route, status] = (requests, self._metrics.seconds.labels(method, route))
        return series

    def _line(self, scope: Any, method: str, record: RequestRecord, seconds: float) -> dict[str, object]:
        client = scope.get("client")
        return {
            "at": format_instant(self._clock.now()),
            "request_id": record.request_id,
            "method": method,
            "path": (scope.get("raw_path") or b"").decode("latin-1")[:LONGEST_PATH],
            "status": record.status,
            "ms": round(seconds * 1000, 3),
            "subject": record.subject,
            "client": client[0] if client else None,
        }
