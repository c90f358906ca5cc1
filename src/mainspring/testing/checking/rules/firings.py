"""The ledger: each due instant is in it, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mainspring.core.instants import LATEST, Instant, format_instant
from mainspring.core.planning.plans import next_fire_at
from mainspring.core.runs.regions import home_of
from mainspring.testing.checking.stories.jobs import JobStory, Span, unlimited
from mainspring.testing.checking.stories.runs import RunStory
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record


def each_due_instant_has_one_record(stories: Stories) -> Iterator[Finding]:
    """(1) Each due instant has exactly one run (per region and index), or one row that says why it has none.

    Judged up to the next fire time that a job is known to have had; if the history is drained, up to shortly before
    that. Not seen: instants of jobs whose definitions or calendars are not all known; those before the first and after
    the last row of a job that may fire only so often; which regions and indices were due if these were edited.
    """
    if stories.end is None:
        return
    for job in stories.jobs.values():
        yield from _doubled_rows(job)
        if job.is_complete:
            yield from _vanished_rows(stories, job)
            yield from _missing_runs(stories, job)
            yield from _missing_rows(stories, job)
    yield from _doubled_runs(stories)


def instant_of(job: JobStory, instant: Instant | None) -> str:
    """An instant of a job, for people."""
    return f"job {job.name}: {format_instant(instant or 0)}"


def _doubled_rows(job: JobStory) -> Iterator[Finding]:
    for instant, rows in job.rows.items():
        seen: dict[tuple[str | None, int | None], Record] = {}
        for row in rows:
            first = seen.setdefault((row.region, row.idx), row)
            if first is not row:
                yield found(f"{instant_of(job, instant)} is in the ledger twice", first, row)
        stretch = job.stretch_over(instant)
        if stretch is not None and stretch not in rows and rows[0].kind == "scheduled":
            yield found(
                f"{instant_of(job, instant)} is in the ledger by itself and as one of a stretch", stretch, rows[0]
            )


def _vanished_rows(stories: Stories, job: JobStory) -> Iterator[Finding]:
    if job.removed or not job.is_timed:
        return
    for fire in job.fires:
        instant = fire.fire_at or 0
        if fire.outcome == "ok" and instant not in job.rows and job.stretch_over(instant) is None:
            message = f"{instant_of(job, instant)} was fired, and is not in the ledger"
            yield found(message, fire, *job.records, stories.end)


def _missing_runs(stories: Stories, job: JobStory) -> Iterator[Finding]:
    if stories.end_of_runs is None or any(policy.keep_succeeded or policy.keep_failed for policy in job.policies):
        return
    for rows in job.rows.values():
        for row in rows:
            if row.run is not None and (row.run not in stories.runs or stories.runs[row.run].row is None):
                message = f"{instant_of(job, row.fire_at)} has run {row.run} in the ledger, and there is no such run"
                yield found(message, *job.records, row, stories.end_of_runs)


def _doubled_runs(stories: Stories) -> Iterator[Finding]:
    seen: dict[tuple[str, Instant | None, str, int], RunStory] = {}
    for story in stories.runs.values():
        run = story.run
        if run is None or run.job_id is None or run.retry_of is not None:
            continue
        key = (run.job_id, run.fire_at, home_of(run.region, run.options), run.idx)
        first = seen.setdefault(key, story)
        if first is not story:
            instant = instant_of(stories.job(run.job_id), run.fire_at)
            yield found(f"{instant} has two runs, {first.id} and {story.id}", first.row, story.row)


class _Horizon(NamedTuple):
    """Up to this instant all that was due is in the ledger, as the record shows."""

    instant: Instant
    shown_by: Record | None


def _missing_rows(stories: Stories, job: JobStory) -> Iterator[Finding]:
    horizon = _horizon(stories, job)
    for span in job.spans():
        if not stories.can_time(span.job):
            continue
        after, until = span.since, min(span.until, horizon.instant)
        if span.job.policy.max_firings is None:
            yield from _missing_in_span(stories, job, span, after, _Horizon(until, horizon.shown_by))
        elif own := [i for i, rows in job.rows.items() if after < i <= until and job.is_scheduled(rows[0])]:
            last = job.rows[max(own)][0]
            yield from _missing_in_span(stories, job, span, min(own), _Horizon(max(own), last))


def _horizon(stories: Stories, job: JobStory) -> _Horizon:
    assert job.newest is not None
    record, newest = job.newest
    recorded = [rows[0] for rows in job.rows.values() if job.is_scheduled(rows[0])]
    accounted = [_Horizon(row.last_at or row.fire_at or 0, row) for row in recorded]
    if not job.removed:
        planned = LATEST if newest.next_fire_at is None else newest.next_fire_at - 1
        accounted.append(_Horizon(planned, record))
        if stories.drained is not None and newest.paused_at is None:
            accounted.append(_Horizon(stories.drained.store - stories.bounds.planning, stories.drained))
    return max(accounted, key=lambda horizon: horizon.instant, default=_Horizon(0, None))


def _missing_in_span(stories: Stories, job: JobStory, span: Span, after: Instant, until: _Horizon) -> Iterator[Finding]:
    definition, shape = unlimited(span.job), _shape(job)
    context = (*job.records, until.shown_by, stories.end)
    while (instant := next_fire_at(definition, after, stories.calendars)) is not None and instant <= until.instant:
        after = instant
        rows = job.rows.get(instant, [])
        stretch = job.stretch_over(instant)
        if stretch is not None:
            after = stretch.last_at or instant
            if instant == stretch.fire_at and after <= span.until:
                yield from _miscounted(stories, job, span, stretch)
        elif not rows:
            yield found(f"{instant_of(job, instant)} was due, and is not in the ledger", *context)
        elif shape is not None and (len(rows) > 1 or rows[0].run is not None):
            for region, idx in sorted(shape - {(row.region or "", row.idx or 0) for row in rows}):
                message = f"{instant_of(job, instant)} has no run of index {idx} in region {region}"
                yield found(message, *context, *rows)


def _shape(job: JobStory) -> frozenset[tuple[str, int]] | None:
    """The regions and indices of each firing, if they were always the same."""
    shapes = {(policy.regions, policy.completions) for policy in job.policies}
    if len(shapes) > 1:
        return None
    regions, completions = shapes.pop()
    return frozenset((region, idx) for region in regions for idx in range(completions))


def _miscounted(stories: Stories, job: JobStory, span: Span, stretch: Record) -> Iterator[Finding]:
    if not stretch.count:
        return  # Too many to count, then and now.
    definition, last = unlimited(span.job), stretch.last_at or 0
    due, instant = 1, stretch.fire_at or 0
    while due <= stretch.count:
        following = next_fire_at(definition, instant, stories.calendars)
        if following is None or following > last:
            break
        due, instant = due + 1, following
    if due != stretch.count or instant != last:
        message = f"{instant_of(job, stretch.fire_at)} to {format_instant(last)} is not {stretch.count} due instants"
        yield found(message, *job.records, stretch)
