"""Causes: every run has a cause, and jobs fire when their triggers say."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.core.instants import format_instant
from mainspring.core.schedules.triggers import CronTrigger
from mainspring.testing.checking.rules.firings import instant_of
from mainspring.testing.checking.stories.jobs import JobStory, is_due
from mainspring.testing.checking.stories.reading import surely_before
from mainspring.testing.checking.stories.runs import RunStory
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record


def no_run_without_cause(stories: Stories) -> Iterator[Finding]:
    """(2) A run was submitted, or is in the ledger; and what is in the ledger was due or fired by hand.

    A submission whose answer is unknown is cause enough. Not seen: whether jobs that were removed, or whose definitions
    are not all known, were due. The instants of cron jobs are left to (21).
    """
    for story in stories.runs.values():
        if story.row is not None and all(record.outcome == "refused" for record in story.submits):
            yield from _without_firing(stories, story)
    for job in stories.jobs.values():
        if not _is_cron(job):
            yield from _not_due(stories, job)
        yield from _by_no_hand(job)


def _without_firing(stories: Stories, story: RunStory) -> Iterator[Finding]:
    run = story.run
    if run is None or run.job_id is None or run.fire_at is None:
        yield found(f"run {story.id} was not submitted, and is of no job", story.row, *story.submits)
        return
    job = stories.job(run.job_id)
    if job.removed or stories.kinds.get("firing") is None:
        return
    if all(row.run != story.id for row in job.rows.get(run.fire_at, ())):
        message = f"run {story.id} is of no firing: the ledger does not have it for {instant_of(job, run.fire_at)}"
        yield found(message, story.row, *story.submits, stories.kinds["firing"])


def _not_due(stories: Stories, job: JobStory) -> Iterator[Finding]:
    """Rows at instants that no definition of the job names. Any will do: which was in force is not asked."""
    if not job.is_complete or not job.is_timed or not all(map(stories.can_time, job.timings)):
        return
    for instant, rows in job.rows.items():
        if job.is_scheduled(rows[0]) and not any(is_due(each, instant, stories.calendars) for each in job.timings):
            yield found(f"{instant_of(job, instant)} is in the ledger, and was never due", *job.records, rows[0])


def _by_no_hand(job: JobStory) -> Iterator[Finding]:
    if job.triggers:
        return
    for instant, rows in job.rows.items():
        if rows[0].kind == "manual":
            yield found(f"{instant_of(job, instant)} was fired by hand, and no client did", rows[0])


def fire_times_follow_the_clocks(stories: Stories) -> Iterator[Finding]:
    """(21) A cron job fires at the instants that its expression names in its zone, as `core.schedules.cron` has it,
    each later than the one before, as long as its definition stays.

    Not seen: the same as in (2); and the order of firings by different nodes where it is not known.
    """
    for job in stories.jobs.values():
        if _is_cron(job):
            yield from _not_due(stories, job)
            yield from _not_growing(job)


def _is_cron(job: JobStory) -> bool:
    return any(isinstance(definition.trigger, CronTrigger) for definition in job.timings)


def _not_growing(job: JobStory) -> Iterator[Finding]:
    if not job.is_complete:
        return
    edits = [span.until for span in job.spans()]
    last: Record | None = None
    for fire in sorted((fire for fire in job.fires if fire.outcome == "ok"), key=lambda fire: (fire.store, fire.seq)):
        while fire.store >= edits[0]:
            del edits[0]
            last = None
        if last is not None and surely_before(last, fire) and (fire.fire_at or 0) <= (last.fire_at or 0):
            before, after = format_instant(last.fire_at or 0), format_instant(fire.fire_at or 0)
            yield found(f"job {job.name} fired for {after} after it had fired for {before}", *job.records, last, fire)
        last = fire
