"""Backfill: the instants of a past interval that a job never ran for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from mainspring.api import shapes
from mainspring.api.audit import attested
from mainspring.api.bodies import BackfillBody
from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.core.backfill import check_interval, has_run, plan_backfill
from mainspring.core.instants import Instant, parse_instant
from mainspring.core.model import Firing, Job, NewRun
from mainspring.core.planning import PlannedFiring
from mainspring.errors import InvalidInput
from mainspring.views import View, iso

MOST_RUNS = 1_000
"""So many runs at most come of one request; the answer tells where to go on."""
PAGE = 1_000

Rows = Mapping[Instant, Sequence[Firing]]


async def backfill_job(call: Call) -> Answer:
    """Fire the past instants of an interval that have no run yet: missed, skipped, or before the job was created. What
    has run stays as it is. At most `limit` instants at once: `next` tells where to go on. With `dry_run`, only look."""
    desk = call.desk
    interval = [_instant(call, field) for field in ("from", "to")]
    call.wrong.settle()
    since, until = interval
    job = await desk.store.get_job(call.namespace, call.named("job_id"))
    now = desk.store.now()
    check_interval(job, since, until, now, desk.settings.keep_firings)
    calendars = await desk.store.list_calendars(call.namespace)
    planned = plan_backfill(job, since, until, _limit(call, job), now, calendars)
    rows = await _ledger(call, job, planned.firings)
    wanted = [firing for firing in planned.firings if _lacking(firing, rows)]
    headers: dict[str, str] = {}
    made = frozenset(run.id for firing in wanted for run in _lacking(firing, rows))
    if wanted and not call.given.get("dry_run", False):
        headers = await call.spend(len(made))
        told: View = {"from": iso(since), "to": iso(until), "reason": call.given.get("reason", "")}
        counted = attested(call, "job.backfill", f"job:{job.id}", None, lambda ids: {**told, "runs": len(ids)})
        made = frozenset(await counted.backfill(job, wanted))
    items = [_view(firing, rows, made) for firing in planned.firings]
    body = {
        "job_id": job.id,
        "dry_run": call.given.get("dry_run", False),
        "count": sum(bool(item["run_ids"]) for item in items),
        "items": items,
        "next": iso(planned.following),
    }
    return Answer(200, body, headers)


def _instant(call: Call, field: str) -> Instant:
    try:
        return parse_instant(call.given[field], field) if field in call.given else 0
    except InvalidInput as error:
        call.wrong.take(error)
        return 0


def _limit(call: Call, job: Job) -> int:
    """How many instants: each may have several runs."""
    runs = len(job.policy.regions) * job.policy.completions
    return max(min(int(call.given.get("limit", 100)), MOST_RUNS // runs), 1)


async def _ledger(call: Call, job: Job, firings: Sequence[PlannedFiring]) -> Rows:
    """What the ledger has for these instants."""
    found: dict[Instant, list[Firing]] = defaultdict(list)
    if not firings:
        return found
    before = firings[-1].fire_at + 1
    while True:
        page = await call.desk.store.list_firings(job.id, before=before, limit=PAGE)
        # The last instant of a full page may go on beyond it: it is read again with the next.
        before = page[-1].fire_at + 1 if len(page) == PAGE and page[0].fire_at > page[-1].fire_at else 0
        for row in page:
            if before == 0 or row.fire_at >= before:
                found[row.fire_at].append(row)
        if before <= firings[0].fire_at:
            return found


def _lacking(firing: PlannedFiring, rows: Rows) -> list[NewRun]:
    """The runs of an instant that are not yet."""
    kept = {(row.region, row.idx) for row in rows.get(firing.fire_at, ()) if has_run(row)}
    return [run for run in firing.runs if (run.region, run.idx) not in kept]


def _view(firing: PlannedFiring, rows: Rows, made: frozenset[str]) -> View:
    known = [row.outcome for row in rows.get(firing.fire_at, ())]
    return {
        "fire_at": iso(firing.fire_at),
        "before": known[0] if known else None,
        "run_ids": [run.id for run in firing.runs if run.id in made],
    }


EXAMPLE = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-08T00:00:00Z", "dry_run": True}

ENDPOINTS = (
    Endpoint(
        "POST", "/v1/jobs/{job_id}/backfill", backfill_job, "jobs:operate", "Fire past instants that never ran.",
        {200: shapes.Backfill}, BackfillBody, problems=(409, 429), example=EXAMPLE, grows=True,
    ),
)  # fmt: skip
