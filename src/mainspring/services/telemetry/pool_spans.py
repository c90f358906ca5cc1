"""Spans of functions in a pool process: they belong to the attempt's span, which the worker process makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from mainspring.executor import RunContext
from mainspring.services.telemetry.exporting import open_provider
from mainspring.services.telemetry.tracing import FLUSH_MS, TRACEPARENT, within


def follow_traces(hooks: list[Callable[[RunContext], Any]], url: str) -> None:
    """Put a hook around every attempt of this process, once, before those of the app."""
    provider = open_provider(url)

    @contextmanager
    def follow(run: RunContext) -> Iterator[None]:
        headers = run.context
        try:
            with within(headers):
                yield
        finally:
            # A pool process may be killed at any time, and with it the spans that it has not sent.
            if TRACEPARENT in headers and isinstance(provider, TracerProvider):
                provider.force_flush(FLUSH_MS)

    if not any(getattr(each, "__qualname__", "") == follow.__qualname__ for each in hooks):
        hooks.insert(0, follow)
