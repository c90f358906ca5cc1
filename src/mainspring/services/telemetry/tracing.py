"""Spans of a run: submit or plan, claim, attempt, report. The run carries the trace from process to process.

A submitter's span is the parent of `submit`; `submit` (or `plan`, for a firing) is the parent of everything else. Its
W3C `traceparent` is stored in the context of the run, only if the trace is sampled. So a process decides by one search
in a text that a run is not traced.

A span costs tens of microseconds, as much as a whole run without one. So runs of one submission that the store claims
in one call share a `claim` span, and those that it ends in one call share a `report` span.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache

import msgspec
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    TracerProvider,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.core.model import Claim, KeptOptions, NewRun, Report
from mainspring.core.planning.plans import PlannedFiring
from mainspring.version import VERSION

TRACEPARENT = "traceparent"
NANOSECONDS = 1_000
"""In a microsecond, the unit of instants."""
MOST_UNREPORTED = 10_000
"""Ended attempts whose reports are awaited. An attempt that lost its claim is never reported."""
FLUSH_MS = 2_000
"""How long a process that ends waits for its collector."""

_W3C = TraceContextTextMapPropagator()
_read_options = msgspec.json.Decoder(KeptOptions).decode
_encode = msgspec.json.Encoder().encode


def carried(options: str) -> Context | None:
    """The sampled trace that the encoded options of a run carry; None for a run that is not traced."""
    return _carried(options) if TRACEPARENT in options else None


@lru_cache(maxsize=1_024)  # A claim reads the options of a run twice, and all runs of a submission have the same.
def _carried(options: str) -> Context | None:
    return joined(_read_options(options).context)


def joined(headers: Mapping[str, str]) -> Context | None:
    """The sampled trace that headers name; None if they name none."""
    found = _W3C.extract(dict(headers))
    return found if get_current_span(found).get_span_context().trace_flags.sampled else None


def headers_of(span: Span) -> dict[str, str]:
    """The headers that name a span."""
    headers: dict[str, str] = {}
    _W3C.inject(headers, set_span_in_context(span))
    return headers


@contextmanager
def within(headers: Mapping[str, str]) -> Iterator[None]:
    """What is done here belongs to the trace that headers name, if they name one."""
    if TRACEPARENT not in headers or (context := joined(headers)) is None:
        yield
        return
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


class Tracing:
    """Makes the spans of one process."""

    def __init__(self, provider: TracerProvider, clock: Clock) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("mainspring", VERSION)
        self._clock = clock
        self._unreported: dict[tuple[str, int], tuple[str, str]] = {}
        """Options and task of each traced attempt, by run and token."""

    def flush(self) -> None:
        """Send what has ended so far. Blocks for two seconds at most."""
        if isinstance(self._provider, SdkTracerProvider):
            self._provider.force_flush(FLUSH_MS)

    @contextmanager
    def submitting(self, runs: Sequence[NewRun]) -> Iterator[Sequence[NewRun]]:
        """A `submit` span around the acceptance of runs, which carry it."""
        if not runs:
            yield runs
            return
        first = runs[0]
        parent = None if get_current_span().get_span_context().is_valid else carried(first.options)
        attributes = {"mainspring.namespace": first.namespace, "mainspring.queue": first.queue}
        attributes["mainspring.runs"] = str(len(runs))
        if len(runs) == 1:
            attributes["mainspring.run"] = first.id
        with self._span(f"submit {first.task}", parent, SpanKind.PRODUCER, attributes) as span:
            yield carrying(runs, span)

    @contextmanager
    def planning(self, firings: Sequence[PlannedFiring]) -> Iterator[Sequence[PlannedFiring]]:
        """A `plan` span for each firing that has runs, which carry it."""
        spans: list[Span] = []
        planned = [self._plan(firing, spans) if firing.runs else firing for firing in firings]
        try:
            yield planned
        except BaseException as error:
            for span in spans:
                span.set_status(Status(StatusCode.ERROR, str(error)))
            raise
        finally:
            for span in spans:
                span.end()

    def _plan(self, firing: PlannedFiring, spans: list[Span]) -> PlannedFiring:
        run = firing.runs[0]
        attributes = {"mainspring.namespace": run.namespace, "mainspring.job": run.job or ""}
        attributes["mainspring.runs"] = str(len(firing.runs))
        # A plan starts its own trace: the loop that plans has no caller.
        span = self._tracer.start_span(f"plan {run.job}", Context(), SpanKind.PRODUCER, attributes)
        spans.append(span)
        return msgspec.structs.replace(firing, runs=tuple(carrying(firing.runs, span)))

    @contextmanager
    def triggering(self, job: str) -> Iterator[Callable[[Sequence[NewRun]], Sequence[NewRun]]]:
        """A `plan` span around a firing by hand; yields what makes its runs carry it."""
        with self._span(f"plan {job}", None, SpanKind.PRODUCER, {"mainspring.job": job}) as span:
            yield lambda runs: carrying(runs, span)

    def claimed(self, claims: Sequence[Claim], began: Instant) -> None:
        """A `claim` span for the traced runs of each submission among these claims."""
        traced: dict[tuple[str, str], list[Claim]] = {}
        for claim in claims:
            if TRACEPARENT in claim.options:
                traced.setdefault((claim.options, claim.task), []).append(claim)
        for (options, task), group in traced.items():
            if (parent := carried(options)) is not None:
                known = facts(group[0]) if len(group) == 1 else facts_of_many(group[0], len(group))
                span = self._tracer.start_span(
                    f"claim {task}", parent, SpanKind.CONSUMER, known, start_time=began * NANOSECONDS
                )
                span.end()

    @contextmanager
    def attempting(self, claim: Claim, parent: Context) -> Iterator[Span]:
        """An `attempt` span. It is current here, so that spans of the task become its children."""
        self._unreported[claim.run_id, claim.token] = (claim.options, claim.task)
        if len(self._unreported) > MOST_UNREPORTED:
            self._unreported.pop(next(iter(self._unreported)))
        with self._span(f"attempt {claim.task}", parent, SpanKind.CONSUMER, facts(claim)) as span:
            yield span

    @contextmanager
    def reporting(self, reports: Sequence[Report]) -> Iterator[None]:
        """A `report` span for the traced runs of each submission that end alike among these reports."""
        unreported = self._unreported
        known = [each for each in reports if (each.run_id, each.token) in unreported] if unreported else []
        alike = Counter((*unreported[each.run_id, each.token], each.state) for each in known)
        spans = [self._report_span(*group, number) for group, number in alike.items()]
        try:
            yield
        except BaseException as error:
            for span in spans:
                span.set_status(Status(StatusCode.ERROR, str(error)))
            raise
        else:
            for report in known:
                unreported.pop((report.run_id, report.token), None)
        finally:
            for span in spans:
                span.end()

    def _report_span(self, options: str, task: str, state: str, number: int) -> Span:
        attributes = {"mainspring.state": state, "mainspring.runs": str(number)}
        return self._tracer.start_span(f"report {task}", carried(options), SpanKind.CLIENT, attributes)

    def now(self) -> Instant:
        """The time of this host, by which spans are dated."""
        return self._clock.now()

    @contextmanager
    def _span(self, name: str, parent: Context | None, kind: SpanKind, attributes: Mapping[str, str]) -> Iterator[Span]:
        with self._tracer.start_as_current_span(name, parent, kind, attributes) as span:
            yield span


def facts(claim: Claim) -> dict[str, str]:
    """What the spans of a run say about it."""
    found = {
        "mainspring.run": claim.run_id,
        "mainspring.task": claim.task,
        "mainspring.namespace": claim.namespace,
        "mainspring.attempt": str(claim.attempt + 1),
    }
    return found if claim.job is None else found | {"mainspring.job": claim.job}


def facts_of_many(claim: Claim, number: int) -> dict[str, str]:
    """What a span says about several runs of one submission, of which this is one."""
    return {
        "mainspring.task": claim.task,
        "mainspring.namespace": claim.namespace,
        "mainspring.runs": str(number),
    }


def carrying(runs: Sequence[NewRun], span: Span) -> Sequence[NewRun]:
    """The runs with this span in their context, if its trace is sampled."""
    if not span.get_span_context().trace_flags.sampled:
        return runs
    headers, made = headers_of(span), dict[str, str]()
    for run in runs:
        if run.options not in made:
            made[run.options] = carry(run.options, headers)
    return [msgspec.structs.replace(run, options=made[run.options]) for run in runs]


def carry(options: str, headers: Mapping[str, str]) -> str:
    """The encoded options of a run, with headers in its context."""
    kept = _read_options(options)
    return _encode(msgspec.structs.replace(kept, context={**kept.context, **headers})).decode()
