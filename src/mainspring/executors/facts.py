"""The environment variables that describe a run to its program."""

from __future__ import annotations

from mainspring.core.instants import format_instant
from mainspring.executor import AttemptContext


def facts_of(attempt: AttemptContext) -> dict[str, str]:
    """The environment variables that describe a run to its program."""
    claim = attempt.claim
    facts = {"MAINSPRING_RUN_ID": claim.run_id, "MAINSPRING_ATTEMPT": str(claim.attempt + 1)}
    facts["MAINSPRING_INDEX"] = str(claim.idx)
    if attempt.context is not None:
        # The variables by which programs join a trace.
        carried = attempt.context.context
        facts |= {name.upper(): carried[name] for name in ("traceparent", "tracestate") if name in carried}
    if claim.job is not None:
        facts["MAINSPRING_JOB"] = claim.job
    if claim.fire_at is not None:
        facts["MAINSPRING_FIRE_AT"] = format_instant(claim.fire_at)
    if attempt.deadline is not None:
        facts["MAINSPRING_DEADLINE"] = format_instant(attempt.deadline)
    if attempt.soft_deadline is not None:
        facts["MAINSPRING_SOFT_DEADLINE"] = format_instant(attempt.soft_deadline)
    return facts
