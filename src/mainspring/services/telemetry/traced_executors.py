"""Executors whose attempts leave spans. Whatever an attempt calls gets the trace: functions by their context, pool
processes, programs and HTTP calls by the context of the run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode

from mainspring.executor import AttemptContext, Executor, Outcome
from mainspring.services.telemetry.tracing import Tracing, carried, carry, headers_of


def trace_executors(executor_of: Callable[[str], Executor], tracing: Tracing) -> Callable[[str], Executor]:
    """The executors by task, each within spans."""

    @cache  # By task, of which a worker knows a few: this is asked for each attempt.
    def find(task: str) -> Executor:
        return TracedExecutor(executor_of(task), tracing)

    return find


class TracedExecutor:
    """See `executor.Executor`."""

    def __init__(self, executor: Executor, tracing: Tracing) -> None:
        self._executor = executor
        self._tracing = tracing

    def run(self, attempt: AttemptContext) -> Coroutine[Any, Any, Outcome]:
        parent = carried(attempt.claim.options)
        return self._executor.run(attempt) if parent is None else self._run(attempt, parent)

    async def _run(self, attempt: AttemptContext, parent: Context) -> Outcome:
        with self._tracing.attempting(attempt.claim, parent) as span:
            attempt.change_options(carry(attempt.claim.options, headers_of(span)))
            outcome = await self._executor.run(attempt)
            span.set_attribute("mainspring.outcome", outcome.kind)
            if outcome.kind in ("failed", "timed_out"):
                said = outcome.failure.message if outcome.failure is not None else outcome.kind
                span.set_status(Status(StatusCode.ERROR, said))
            return outcome
