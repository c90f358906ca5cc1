"""Backfill: which instants of a past interval have no run, and what becomes of them."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Firing, Job, NewRun
from mainspring.core.planning.backfill import Backfill, check_interval, has_run, plan_backfill
from mainspring.core.planning.plans import PlannedFiring
from mainspring.core.schedules.calendars import Calendar
from mainspring.operations import records
from mainspring.operations.values.from_rows import moment, moment_or_none
from mainspring.store import Store

MOST_RUNS = 1_000
"""The most runs that one request makes; the answer says where to continue."""
PAGE = 1_000
PIECE = 20
SEARCH_S = 2.0
"""Instants that calendars make hard to find are searched for at most this long."""


class Survey(msgspec.Struct, frozen=True):
    """The instants of a part of an interval, and what the ledger has of them."""

    job: Job
    planned: Backfill
    rows: Mapping[Instant, Sequence[Firing]]

    def wanted(self) -> list[PlannedFiring]:
        """The firings that lack a run."""
        return [firing for firing in self.planned.firings if self._lacking(firing)]

    def lacking(self) -> frozenset[str]:
        """The ids of the runs that do not exist yet."""
        return frozenset(run.id for firing in self.planned.firings for run in self._lacking(firing))

    def record(self, made: Collection[str], *, dry_run: bool) -> records.Backfill:
        """What became of the interval; `made` are the runs that were made, or would be."""
        items = [self._item(firing, made) for firing in self.planned.firings]
        count = sum(bool(item.run_ids) for item in items)
        return records.Backfill(self.job.id, dry_run, count, items, moment_or_none(self.planned.following))

    def _lacking(self, firing: PlannedFiring) -> list[NewRun]:
        kept = {(row.region, row.idx) for row in self.rows.get(firing.fire_at, ()) if has_run(row)}
        return [run for run in firing.runs if (run.region, run.idx) not in kept]

    def _item(self, firing: PlannedFiring, made: Collection[str]) -> records.Backfilled:
        known = [row.outcome for row in self.rows.get(firing.fire_at, ())]
        run_ids = [run.id for run in firing.runs if run.id in made]
        return records.Backfilled(moment(firing.fire_at), known[0] if known else None, run_ids)


async def survey(store: Store, job: Job, since: Instant, until: Instant, limit: int, remembered: Duration) -> Survey:
    """Look at an interval, both ends included: at most `limit` of its instants, fewer where each has many runs.

    InvalidInput if it is not past, or if the ledger no longer has what ran in it.
    """
    now = store.now()
    check_interval(job, since, until, now, remembered)
    runs = len(job.policy.regions) * job.policy.completions
    most = max(min(limit, MOST_RUNS // runs), 1)
    planned = await _plan(job, since, until, most, now, await store.list_calendars(job.namespace))
    return Survey(job, planned, await _ledger(store, job, planned.firings))


async def _plan(
    job: Job, since: Instant, until: Instant, limit: int, now: Instant, calendars: Mapping[str, Calendar]
) -> Backfill:
    """Piece by piece in a thread: with calendars that allow little, a search takes long. Then it ends early."""
    firings: list[PlannedFiring] = []
    deadline = time.monotonic() + SEARCH_S
    while True:
        piece = min(PIECE, limit - len(firings))
        part = await asyncio.to_thread(plan_backfill, job, since, until, piece, now, calendars)
        firings += part.firings
        if part.following is None or len(firings) == limit or time.monotonic() > deadline:
            return Backfill(tuple(firings), part.following)
        since = part.following


async def _ledger(store: Store, job: Job, firings: Sequence[PlannedFiring]) -> Mapping[Instant, Sequence[Firing]]:
    """What the ledger has for these instants."""
    found: dict[Instant, list[Firing]] = defaultdict(list)
    if not firings:
        return found
    before = firings[-1].fire_at + 1
    while True:
        page = await store.list_firings(job.id, before=before, limit=PAGE)
        # The last instant of a full page may go on beyond it: it is read again with the next.
        before = page[-1].fire_at + 1 if len(page) == PAGE and page[0].fire_at > page[-1].fire_at else 0
        for row in page:
            if before == 0 or row.fire_at >= before:
                found[row.fire_at].append(row)
        if before <= firings[0].fire_at:
            return found
