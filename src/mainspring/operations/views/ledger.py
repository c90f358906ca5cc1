"""The ledger over a span of time: of one job with what its firings came to, and of many jobs by periods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final

import msgspec

from mainspring.core.instants import (
    DAY,
    SECOND,
    Duration,
    Instant,
    format_duration,
    format_instant,
    from_datetime,
    parse_duration,
    transition_between,
)
from mainspring.core.model import Firing, Job, Run
from mainspring.core.runs.retry import Length
from mainspring.core.runs.tallies import OUTCOMES
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import CronTrigger, transition_note
from mainspring.errors import InvalidInput
from mainspring.operations.context import InContext
from mainspring.operations.planning.load import plan_load
from mainspring.operations.values.from_rows import moment, same_fields
from mainspring.operations.views.records import FiringBucket, FiringCell, FiringWindow, LedgerRow
from mainspring.operations.views.records import Ledger as LedgerPage
from mainspring.store import Store

MOST_ROWS: Final = 2_000
"""Rows of one answer; more are given as buckets."""
MOST_READ: Final = 20_000
AT_ONCE: Final = 1_000
MOST_PLANNED: Final = 500
MOST_BUCKETS: Final = 2_000


class Ledger(InContext):
    """What `/v1/jobs/ID/firings` shows of a span, and `/v1/ledger` of many jobs."""

    async def of_job(
        self,
        job: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        outcome: str | None = None,
        bucket: Length | None = None,
        before: Instant | None = None,
        limit: int = MOST_ROWS,
    ) -> FiringWindow:
        """The due instants of a job from `since` (30 days ago) to `until` (now), newest first: what became of each;
        and, where the span reaches beyond now, what is planned and what calendars exclude."""
        store = await self._context.open()
        found = await store.get_job(self._context.namespace, job)
        last = store.now() if until is None else from_datetime(until, "until")
        first = last - 30 * DAY if since is None else from_datetime(since, "since")
        width = _width(bucket, first, last)
        if width is not None:
            rows, partial = await _read(store, found.id, first, last, MOST_READ)
            return FiringWindow(items=[], buckets=_buckets(rows, first, width, outcome), bucket=format_duration(width),
                                next=None, partial=partial)  # fmt: skip
        end = last if before is None else min(before, last)
        rows, more = await _read(store, found.id, first, end, min(limit, MOST_ROWS))
        shown = [row for row in rows if outcome in (None, row.outcome)]
        runs = await _runs_of(store, shown)
        cells = [_cell(row, runs.get(row.run_id or "")) for row in shown]
        calendars = await store.list_calendars(self._context.namespace)
        if before is None and outcome in (None, "planned", "excluded"):
            ahead = [each for each in _ahead(found, calendars, max(store.now(), first), last)
                     if outcome in (None, each.outcome)]  # fmt: skip
            cells = [*reversed(ahead), *cells]
        following = str(rows[-1].fire_at) if more and rows else None
        return FiringWindow(items=_with_notes(found, cells), buckets=[], bucket=None, next=following, partial=False)

    async def of_all(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        bucket: Length = "1d",
        after: str | None = None,
        limit: int = 50,
    ) -> LedgerPage:
        """What ended of each job by period, from the tallies: a page of jobs by name, each with the periods that have
        any."""
        store = await self._context.open()
        last = store.now() if until is None else from_datetime(until, "until")
        first = last - 30 * DAY if since is None else from_datetime(since, "since")
        width = _width(bucket, first, last) or DAY
        jobs = await store.list_jobs(self._context.namespace, after=after, limit=limit + 1)
        rows = [await self._row(store, job, first, last, width) for job in jobs[:limit]]
        following = jobs[limit - 1].name if len(jobs) > limit else None
        return LedgerPage(rows, format_duration(width), following)

    async def _row(self, store: Store, job: Job, first: Instant, last: Instant, width: Duration) -> LedgerRow:
        cells: dict[str, dict[str, int]] = {}
        for key, tally in await store.list_tallies(self._context.namespace, "job", first, last, name=job.name):
            cell = cells.setdefault(format_instant(key.began_at - key.began_at % width), {})
            for outcome in OUTCOMES:
                if count := tally.outcomes.get(outcome, 0):
                    cell[outcome] = cell.get(outcome, 0) + count
        return LedgerRow(job.name, cells)


def _width(bucket: Length | None, first: Instant, last: Instant) -> Duration | None:
    if first >= last:
        raise InvalidInput("since", format_instant(first), "is not before `until`", "give an earlier instant")
    if bucket is None:
        return None
    width = parse_duration(bucket, "bucket")
    if width < SECOND or (last - first) // width > MOST_BUCKETS:
        fault = f"is too short for {format_duration(last - first)}"
        raise InvalidInput("bucket", bucket, fault, f"give at least 1s, and at most {MOST_BUCKETS} buckets")
    return width


async def _read(store: Store, job_id: str, first: Instant, end: Instant, most: int) -> tuple[list[Firing], bool]:
    """Rows of the ledger, newest first, by whole instants; and whether there are more."""
    rows: list[Firing] = []
    while len(rows) <= most:
        page = await store.list_firings(job_id, since=first, before=end, limit=AT_ONCE)
        if len(page) < AT_ONCE:
            rows += page
            break
        whole = [row for row in page if row.fire_at != page[-1].fire_at] or page
        rows += whole
        end = whole[-1].fire_at
    if len(rows) <= most:
        return rows, False
    kept = [row for row in rows[:most] if row.fire_at != rows[most].fire_at] or rows[:most]
    return kept, True


async def _runs_of(store: Store, rows: Iterable[Firing]) -> dict[str, Run]:
    ids = [row.run_id for row in rows if row.run_id is not None]
    found: dict[str, Run] = {}
    for start in range(0, len(ids), AT_ONCE):
        found |= {run.id: run for run in await store.finished(ids[start : start + AT_ONCE])}
    return found


def _cell(row: Firing, run: Run | None) -> FiringCell:
    started, finished = (None, None) if run is None else (run.started_at, run.finished_at)
    return FiringCell(
        **same_fields(row, FiringCell),
        index=row.idx,
        late_s=None if started is None else max(started - row.fire_at, 0) / SECOND,
        took_s=None if started is None or finished is None else max(finished - started, 0) / SECOND,
        attempts=None if run is None else run.attempt,
        note="",
    )


def _ahead(job: Job, calendars: Mapping[str, Calendar], first: Instant, last: Instant) -> list[FiringCell]:
    """The instants that are planned, and those that calendars leave out, oldest first; at most 500."""
    if job.paused_at is not None or job.next_fire_at is None or first >= last:
        return []
    planned = _planned(job, calendars, first, last)
    found = dict.fromkeys(planned, "planned")
    if job.policy.calendars:
        free = msgspec.structs.replace(job.policy, calendars=())
        for instant in _planned(msgspec.structs.replace(job, policy=free), {}, first, last):
            found.setdefault(instant, "excluded")
    return [_future(instant, found[instant]) for instant in sorted(found)[:MOST_PLANNED]]


def _planned(job: Job, calendars: Mapping[str, Calendar], first: Instant, last: Instant) -> Sequence[Instant]:
    seen = 0

    def enough() -> bool:
        nonlocal seen
        seen += 1
        return seen * 100 > MOST_PLANNED

    plans, _ = plan_load([job], calendars, first, last, enough)
    return plans[0].instants if plans else ()


def _future(instant: Instant, outcome: str) -> FiringCell:
    return FiringCell(
        fire_at=moment(instant),
        last_at=None,
        count=1,
        outcome="planned" if outcome == "planned" else "excluded",
        reason="" if outcome == "planned" else "a calendar excludes it",
        kind="scheduled",
        run_id=None,
        region="",
        index=0,
        late_s=None,
        took_s=None,
        attempts=None,
        note="",
    )


def _with_notes(job: Job, cells: list[FiringCell]) -> list[FiringCell]:
    """The same, newest first, with a note where the clocks of the job's zone change between two instants."""
    if not isinstance(job.trigger, CronTrigger) or len(cells) < 2:
        return cells
    zone, noted = job.trigger.tz, [cells[-1]]
    for before, cell in pairwise(reversed(cells)):
        first, last = from_datetime(before.fire_at), from_datetime(cell.fire_at)
        changed = transition_between(first, last, zone) if first < last else None
        note = "" if changed is None else transition_note(changed, zone) or ""
        noted.append(msgspec.structs.replace(cell, note=note) if note else cell)
    return noted[::-1]


def _buckets(rows: Iterable[Firing], first: Instant, width: Duration, outcome: str | None) -> list[FiringBucket]:
    found: dict[Instant, Counter[str]] = {}
    for row in rows:
        if outcome in (None, row.outcome):
            at = row.fire_at - (row.fire_at - first) % width
            found.setdefault(at, Counter())[row.outcome] += max(row.count, 1)
    return [FiringBucket(moment(at), dict(found[at])) for at in sorted(found)]
