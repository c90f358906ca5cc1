"""Where runs come from: when they were accepted, when they were due, and whether they had to wait for anything."""

from __future__ import annotations

from mainspring.core.instants import Instant
from mainspring.testing.checking.stories.runs import RunStory
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.history import Record


def origin(stories: Stories, story: RunStory) -> list[Record]:
    """The records that say what kind of run it is."""
    known = story.known
    records = [] if story.row is None else [story.row]
    if story.new is not None:
        return [*records, *story.submits]
    if known is not None and known.job_id is not None:
        records += stories.job(known.job_id).records
    return records


def due_of(stories: Stories, story: RunStory) -> Instant | None:
    """When a run was due for the first time, or a time before that; None if that is not known."""
    if story.new is not None:
        return story.new.due_at
    run = story.run
    if run is None or run.job_id is None or run.fire_at is None:
        return None
    job = stories.job(run.job_id)
    rows = job.rows.get(run.fire_at)
    if not rows or not job.is_complete or not job.is_timed or not job.is_scheduled(rows[0]):
        return None  # One that was fired by hand is numbered by the next free instant, and is due before it.
    return run.fire_at + job.least_jitter


def waits_for_nothing(stories: Stories, story: RunStory) -> bool:
    """Whether a run was pending as soon as it was accepted."""
    new, run = story.new, story.run
    if new is not None:
        return not (new.after or new.gates or new.lines)
    return run is not None and run.job_id is not None and not stories.job(run.job_id).may_wait


def accepted_by(stories: Stories, story: RunStory) -> Record | None:
    """A record after which the run surely was there."""
    if story.new is not None:
        return story.acknowledged
    known = story.known
    if known is None or known.job_id is None or known.fire_at is None:
        return None
    return stories.fired.get((known.job_id, known.fire_at))
