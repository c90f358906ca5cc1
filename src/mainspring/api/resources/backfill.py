"""Backfill: the instants of a past interval that a job never ran for."""

from __future__ import annotations

from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.resources.audit import audit_of
from mainspring.api.schemas.bodies import BackfillBody
from mainspring.core.instants import Instant, parse_instant
from mainspring.errors import InvalidInput
from mainspring.operations import records
from mainspring.operations.backfill import survey
from mainspring.operations.views import View, iso


async def backfill_job(call: Call) -> Answer:
    """Fire the past instants of an interval that have no run yet: missed, skipped, or before the job was created. What
    has run stays as it is. At most `limit` instants at once: `next` tells where to go on. With `dry_run`, only look."""
    desk, dry_run = call.desk, call.given.get("dry_run", False)
    since, until = _instant(call, "from"), _instant(call, "to")
    call.wrong.settle()
    job = await desk.store.get_job(call.namespace, call.named("job_id"))
    found = await survey(desk.store, job, since, until, call.given.get("limit", 100), desk.settings.keep_firings)
    made = found.lacking()
    headers: dict[str, str] = {}
    if made and not dry_run:
        headers = await call.spend(len(made))
        told: View = {"from": iso(since), "to": iso(until), "reason": call.given.get("reason", "")}
        audit = audit_of(call, "job.backfill", f"job:{job.id}", None, lambda ids: {**told, "runs": len(ids)})
        made = frozenset(await desk.store.backfill(job, found.wanted(), audit=audit))
    return Answer(200, found.view(made, dry_run=dry_run), headers)


def _instant(call: Call, field: str) -> Instant:
    try:
        return parse_instant(call.given[field], field) if field in call.given else 0
    except InvalidInput as error:
        call.wrong.take(error)
        return 0


EXAMPLE = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-08T00:00:00Z", "dry_run": True}

ENDPOINTS = (
    Endpoint(
        "POST", "/v1/jobs/{job_id}/backfill", backfill_job, "jobs:operate", "Fire past instants that never ran.",
        {200: records.Backfill}, BackfillBody, problems=(409, 429), example=EXAMPLE, grows=True,
    ),
)  # fmt: skip
