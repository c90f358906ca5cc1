"""Sends spans and metrics to a collector by OTLP over HTTP. The standard `OTEL_…` variables set everything else."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, SamplingResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes
from prometheus_client.core import Metric as Family
from prometheus_client.samples import Sample

from mainspring.clock import Clock, SystemClock
from mainspring.process.secrets import environment
from mainspring.services.telemetry.tracing import Tracing
from mainspring.version import VERSION

log = logging.getLogger("mainspring")

INTERVAL_MS = 60_000.0
"""How often metrics are exported, unless `OTEL_METRIC_EXPORT_INTERVAL` says otherwise: as often as the SDK would."""
SAMPLED_PER_S = 20.0
"""A traced run costs some 100 µs of CPU time in all: this many cost a fifth of a percent of a core."""
_CUMULATIVE = AggregationTemporality.CUMULATIVE


@cache
def open_provider(url: str) -> trace.TracerProvider:
    """Where spans go: the provider that the program has set up, if it has; otherwise one that exports to `url`, which
    then serves the program's own spans, too."""
    current = trace.get_tracer_provider()
    if not isinstance(current, trace.ProxyTracerProvider):
        return current
    chosen = "OTEL_TRACES_SAMPLER" in environment()  # Then the SDK makes the sampler that it names.
    provider = TracerProvider(
        sampler=None if chosen else ParentBased(RunBudget(SystemClock())), resource=describe_process()
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces")))
    trace.set_tracer_provider(provider)
    return provider


@cache
def open_tracing(url: str) -> Tracing:
    """The spans of this process. Stores and executors share them, whatever layers a store has."""
    return Tracing(open_provider(url), SystemClock())


class RunBudget(Sampler):
    """Samples traces of at most `per_s` runs a second, on average. So a calm fleet traces every run, and a busy one
    pays no more than a bounded share of its CPU time."""

    def __init__(self, clock: Clock, per_s: float = SAMPLED_PER_S) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = per_s
        self._at = clock.monotonic()
        self._lock = threading.Lock()

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """A submission of many runs is traced whole; later ones are left out until it is paid off."""
        runs = int(str((attributes or {}).get("mainspring.runs", 1)))
        with self._lock:
            now = self._clock.monotonic()
            self._left = min(self._left + (now - self._at) * self._per_s, self._per_s)
            self._at = now
            sampled = self._left > 0
            self._left -= runs if sampled else 0
        chosen = ALWAYS_ON if sampled else ALWAYS_OFF
        return chosen.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """As the SDK names samplers."""
        return f"RunBudget{{{self._per_s:g}}}"


def describe_process() -> Resource:
    """This process, as a collector knows it."""
    named = "OTEL_SERVICE_NAME" in environment() or "service.name" in environment().get("OTEL_RESOURCE_ATTRIBUTES", "")
    own = {"service.instance.id": f"{socket.gethostname()}:{os.getpid()}", "service.version": VERSION}
    return Resource.create(own if named else own | {"service.name": "mainspring"})


class MetricsExport:
    """Exports the families of this process at intervals, from its own thread."""

    def __init__(self, url: str, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families
        self._exporter = OTLPMetricExporter(endpoint=f"{url.rstrip('/')}/v1/metrics")
        self._interval_s = float(environment().get("OTEL_METRIC_EXPORT_INTERVAL") or INTERVAL_MS) / 1_000
        self._process = describe_process()
        self._began_ns = time.time_ns()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="mainspring-metrics", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Export a last time, and end. Blocks until that is done or has failed."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join(self._interval_s)
            self._exporter.shutdown()

    def _serve(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._export()
        self._export()

    def _export(self) -> None:
        try:
            self._exporter.export(self._collect())
        except Exception:
            log.warning("the metrics could not be exported", exc_info=True)

    def _collect(self) -> MetricsData:
        now_ns = time.time_ns()
        metrics = [metric for family in self._families() for metric in convert(family, self._began_ns, now_ns)]
        scope = ScopeMetrics(InstrumentationScope("mainspring", VERSION), metrics, "")
        return MetricsData([ResourceMetrics(self._process, [scope], "")])


def convert(family: Family, began_ns: int, now_ns: int) -> Iterator[Metric]:
    """A family of Prometheus as a metric of OpenTelemetry, under the same name."""
    data: Sum | Gauge | Histogram
    if family.type == "histogram":
        data = Histogram(list(_histograms(family.samples, began_ns, now_ns)), _CUMULATIVE)
    else:
        points = [NumberDataPoint(each.labels, began_ns, now_ns, each.value) for each in family.samples]
        is_counter = family.type == "counter"
        data = Sum(points, _CUMULATIVE, is_monotonic=True) if is_counter else Gauge(points)
    if data.data_points:
        yield Metric(family.name, family.documentation, family.unit, data)


def _histograms(samples: Iterable[Sample], began_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Mainspring's histograms have no labels: their samples are one point."""
    bounds: list[float] = []
    reached: list[int] = []
    total = 0.0
    for sample in samples:
        if sample.name.endswith("_bucket"):
            bounds.append(float(sample.labels["le"]))
            reached.append(int(sample.value))
        elif sample.name.endswith("_sum"):
            total = sample.value
    counts = [after - before for before, after in zip([0, *reached], reached, strict=False)]
    if reached and reached[-1]:
        unknown: Any = None  # OTLP may leave out the least and the greatest; the SDK's own points always have them.
        yield HistogramDataPoint({}, began_ns, now_ns, reached[-1], total, counts, bounds[:-1], unknown, unknown)
