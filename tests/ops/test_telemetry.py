"""OpenTelemetry, end to end: real processes export to a collector in this process, over HTTP and protobuf."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import msgspec
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.conformance.store.samples import TASK, a_run, a_worker, failure, success
from mainspring.core.instants import HOUR, MILLISECOND, SECOND
from mainspring.sdk.hooks import Submission
from mainspring.services.telemetry.exporting import RunBudget
from mainspring.services.telemetry.traced_store import TracedStore
from mainspring.services.telemetry.tracing import Tracing, carried
from mainspring.settings import Settings
from mainspring.testing.clock import ManualClock
from mainspring.testing.servers.process import free_port
from mainspring.wiring import open_store

APP = Path(__file__).parent / "traced_app.py"
TASKS = ("on_loop", "in_thread", "in_process", "fails", "command")
SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


class Seen(msgspec.Struct):
    """One span that arrived."""

    name: str
    trace: str
    id: str
    parent: str
    failed: bool
    attributes: dict[str, str]


class Collector:
    """Receives spans and metrics as a collector does."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.metrics: dict[str, str] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    attributes = {pair.key: pair.value.string_value for pair in span.attributes}
                    ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                    self.spans.append(Seen(span.name, *ids, failed=span.status.code == 2, attributes=attributes))
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    self.metrics[metric.name] = str(metric.WhichOneof("data"))

    def named(self, name: str, trace: str) -> list[Seen]:
        return [span for span in list(self.spans) if span.name == name and span.trace == trace]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def until(look: Callable[[], object], what: str, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not look():
        assert time.monotonic() < end, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)


def surroundings(folder: Path, collector: Collector) -> dict[str, str]:
    given = {
        "MAINSPRING_STORE": f"sqlite:///{folder / 'traced.db'}",
        "MAINSPRING_OTEL": collector.url,
        "MAINSPRING_LOG_FORMAT": "json",
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        "PYTHONPATH": str(APP.parent),
    }
    return {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")} | given


def check_trace(collector: Collector, trace: str, parent: str) -> None:
    """A submission, and what became of it: one tree, from the caller's span to the spans inside of the attempt."""
    for task in TASKS:
        until(partial(collector.named, f"report {task}", trace), f"a report of {task}")
        submit = collector.named(f"submit {task}", trace)[-1]
        assert submit.parent == parent
        (claim,), (attempt,) = collector.named(f"claim {task}", trace), collector.named(f"attempt {task}", trace)
        (report,) = collector.named(f"report {task}", trace)
        assert {claim.parent, attempt.parent, report.parent} == {submit.id}
        assert attempt.failed == (task == "fails")
        assert attempt.attributes["mainspring.run"] == claim.attributes["mainspring.run"]
    for task in ("on_loop", "in_thread", "in_process"):
        until(partial(collector.named, f"inside {task}", trace), f"the span of the user in {task}")
        (inside,) = collector.named(f"inside {task}", trace)
        assert inside.parent == collector.named(f"attempt {task}", trace)[0].id


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def test_one_trace_from_the_submitter_to_the_spans_inside_of_the_attempt(tmp_path: Path, collector: Collector) -> None:
    environ, errors, url = surroundings(tmp_path, collector), tmp_path / "errors", f"http://127.0.0.1:{free_port()}"
    up = [sys.executable, "-m", "mainspring", "up", str(APP), "--port", url.rpartition(":")[2]]
    with errors.open("w") as stderr:
        process = subprocess.Popen(up, env=environ, stdout=subprocess.DEVNULL, stderr=stderr, cwd=tmp_path)
    try:
        until(partial(answers, f"{url}/health/ready"), "the server is ready")
        command = [sys.executable, str(APP)]
        submitter = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=120)
        trace, span = submitter.stdout.split()
        check_trace(collector, trace, span)
        check_requests(collector, url)
        until(lambda: "mainspring_submissions" in collector.metrics, "the metrics")
        assert collector.metrics["mainspring_submissions"] == "sum"
        assert collector.metrics["mainspring_run_delay_seconds"] == "histogram"
        assert collector.metrics["mainspring_clock_skew_seconds"] == "gauge"
        until(lambda: [each for each in list(collector.spans) if each.name == "attempt tick"], "a firing's attempt")
        attempt = next(each for each in list(collector.spans) if each.name == "attempt tick")
        until(partial(collector.named, "plan tick", attempt.trace), "the firing's plan")
        (plan,) = collector.named("plan tick", attempt.trace)
        assert (attempt.parent, plan.parent) == (plan.id, "")
    finally:
        process.terminate()
        assert process.wait(60) == 0
    lines = [msgspec.json.decode(line) for line in errors.read_text().splitlines() if line.startswith("{")]
    logged = next(line for line in lines if line.get("logger") == "user" and line["trace"] == trace)
    (attempt,) = collector.named("attempt on_loop", trace)
    assert (logged["span"], logged["run"]) == (attempt.id, attempt.attributes["mainspring.run"])


def check_requests(collector: Collector, url: str) -> None:
    """A request joins the trace that its header names, if that is sampled."""
    for header in (UNSAMPLED, SAMPLED):
        answer = httpx.post(f"{url}/v1/runs", json={"task": "on_loop"}, headers={"traceparent": header})
        assert answer.status_code == 201, answer.text
    _, trace, span, _ = SAMPLED.split("-")
    until(partial(collector.named, "report on_loop", trace), "the report of the run that a request made")
    assert collector.named("submit on_loop", trace)[0].parent == span
    assert [each for each in collector.spans if each.trace == UNSAMPLED.split("-")[1]] == []


async def test_runs_of_one_submission_share_the_spans_of_what_the_store_does_in_one_call(tmp_path: Path) -> None:
    url, clock, exporter = f"sqlite:///{tmp_path / 'x.db'}", SystemClock(), InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    bare = await asyncio.to_thread(open_store, url, Settings(store=url), clock)
    tracing = Tracing(provider, clock)
    store = TracedStore(bare, tracing)
    worker = a_worker()
    await store.register(worker)
    await store.submit([a_run(clock) for _ in range(3)])
    await store.submit([a_run(clock)])
    claims = await store.claim(worker, 10, 10 * SECOND, "strict")
    for claim in claims:
        parent = carried(claim.options)
        assert parent is not None
        with tracing.attempting(claim, parent):
            pass
    await store.report([success(claim) for claim in claims[:2]])
    await store.report([failure(claims[2]), success(claims[3])])
    await store.close()
    spans = exporter.get_finished_spans()
    together, alone = (span for span in spans if span.name == f"submit {TASK}")

    def runs(name: str, submit: ReadableSpan) -> list[object]:
        named = [each for each in spans if each.name == f"{name} {TASK}"]
        mine = [each for each in named if each.parent and each.parent.span_id == submit.context.span_id]
        return [(each.attributes or {}).get("mainspring.runs", "1") for each in mine]

    assert (runs("claim", together), runs("attempt", together)) == (["3"], ["1"] * 3)
    assert runs("report", together) == ["2", "1"]  # Two calls of the store.
    assert (runs("claim", alone), runs("attempt", alone), runs("report", alone)) == (["1"], ["1"], ["1"])


def test_by_default_traces_of_twenty_runs_a_second_are_sampled() -> None:
    clock = ManualClock()
    budget = RunBudget(clock)

    def sampled(runs: int) -> bool:
        decision = budget.should_sample(None, 1, "submit", attributes={"mainspring.runs": str(runs)}).decision
        return decision is Decision.RECORD_AND_SAMPLE

    assert [sampled(1) for _ in range(21)] == [True] * 20 + [False]
    clock.advance(SECOND)
    assert sampled(100)  # Whole, though only 20 are left: it uses up the next four seconds.
    clock.advance(4 * SECOND - MILLISECOND)
    assert not sampled(1)
    clock.advance(2 * MILLISECOND)
    assert sampled(1)
    clock.advance(HOUR)
    assert [sampled(1) for _ in range(21)] == [True] * 20 + [False]  # A calm hour is not saved up.


def test_a_sampler_of_the_environment_replaces_the_default() -> None:
    code = (
        "from mainspring.services.telemetry.exporting import open_provider\n"
        "print(open_provider('http://127.0.0.1:1').sampler.get_description())"
    )
    for chosen, expected in ((None, "RunBudget"), ("always_on", "AlwaysOnSampler")):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        environ |= {} if chosen is None else {"OTEL_TRACES_SAMPLER": chosen}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        assert expected in done.stdout


def test_a_repeated_submission_from_another_trace_is_the_same_submission(new_store: Callable[[], str]) -> None:
    app = Mainspring(new_store())
    traces = iter(("one", "two"))

    @app.on_submit
    def carry(submission: Submission) -> dict[str, str]:
        return {"traceparent": next(traces)}

    @app.task
    def work() -> None: ...

    async def submit_twice() -> set[str]:
        async with app:
            return {(await work.options(idempotency_key="k").submit()).id for _ in range(2)}

    assert len(asyncio.run(submit_twice())) == 1
