"""Sentry: failures of attempts as events with the run's facts, and traces that go on from the submission to the run.

sentry_sdk.init(dsn=…)
install(app)
"""

from __future__ import annotations

from collections.abc import Iterator

import sentry_sdk

from mainspring.errors import RetryIn
from mainspring.executor import RunContext
from mainspring.sdk.app import Mainspring
from mainspring.sdk.hooks import Submission

_HEADERS = ("sentry-trace", "baggage")


def install(app: Mainspring) -> None:
    """Report what tasks of an app raise, attempt by attempt. `RetryIn` is not reported: the task asked for it."""

    @app.on_submit
    def carry_trace(submission: Submission) -> dict[str, str]:
        found = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
        return {name: value for name, value in found.items() if value}

    @app.around
    def report(run: RunContext) -> Iterator[None]:
        with sentry_sdk.isolation_scope() as scope:
            _describe(scope, run)
            headers = {name: run.context[name] for name in _HEADERS if name in run.context}
            transaction = sentry_sdk.continue_trace(headers, op="queue.task", name=run.task, source="task")
            with sentry_sdk.start_transaction(transaction):
                try:
                    yield
                except RetryIn:
                    raise
                except Exception as error:
                    sentry_sdk.capture_exception(error)
                    raise


def _describe(scope: sentry_sdk.Scope, run: RunContext) -> None:
    scope.set_tag("mainspring.task", run.task)
    if run.job:
        scope.set_tag("mainspring.job", run.job)
    scope.set_context("mainspring", {"run_id": run.id, "attempt": run.attempt})
