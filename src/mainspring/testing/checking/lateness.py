"""Time: nothing begins early, little begins late, and what has a deadline ends."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.core.instants import Instant, format_duration, format_instant
from mainspring.core.planning import jitter_of
from mainspring.testing.checking.reading import earliest
from mainspring.testing.checking.runs import RunStory
from mainspring.testing.checking.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record


def nothing_begins_early_or_late(stories: Stories) -> Iterator[Finding]:
    """(11) No run is claimed or begins before it is due; nor later than `lateness_bound` after, if that is given and
    nothing had gone wrong since well before, nor was there anything for the run to wait for.

    Not seen: whether retries begin early, which is in (9); whether there was a worker with room, so the bound must
    allow for the load.
    """
    for story in stories.runs.values():
        due = due_of(stories, story)
        claimed = story.claimed
        if due is None or not claimed:
            continue
        for record in (claimed[0].claims[0], *claimed[0].starts[:1]):
            if record.store < due:
                message = (
                    f"run {story.id} was due at {format_instant(due)}, and its {record.what} with token "
                    f"{record.token} came {format_duration(due - record.store)} early"
                )
                yield found(message, *_cause(stories, story), claimed[0].claims[0], record)
                break
        else:
            yield from _late(stories, story, due, claimed[0].claims[0])


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
    return run.fire_at + min(jitter_of(definition) for definition in job.definitions)


def waits_for_nothing(stories: Stories, story: RunStory) -> bool:
    """Whether a run was pending as soon as it was accepted."""
    new, run = story.new, story.run
    if new is not None:
        return not (new.after or new.gates or new.lines)
    if run is None or run.job_id is None or not stories.job(run.job_id).is_complete:
        return False
    return not any(
        job.key or job.limit or job.policy.parallelism or job.policy.overlap in ("queue", "replace")
        for job in stories.job(run.job_id).definitions
    )


def accepted_by(stories: Stories, story: RunStory) -> Record | None:
    """A record after which the run surely was there."""
    if story.new is not None:
        return story.acknowledged
    known = story.known
    if known is None or known.job_id is None or known.fire_at is None:
        return None
    return stories.fired.get((known.job_id, known.fire_at))


def _cause(stories: Stories, story: RunStory) -> tuple[Record | None, ...]:
    known = story.known
    if story.new is not None or known is None or known.job_id is None or known.fire_at is None:
        return (story.source,)
    job = stories.job(known.job_id)
    return (*job.records, *job.rows.get(known.fire_at, [])[:1], *job.triggers, story.source)


def _late(stories: Stories, story: RunStory, due: Instant, claim: Record) -> Iterator[Finding]:
    bound, accepted = stories.bounds.lateness, accepted_by(stories, story)
    if bound is None or accepted is None or not waits_for_nothing(stories, story):
        return
    ready = max(due, accepted.store)
    if earliest(claim) > ready + bound and stories.is_quiet(ready):
        message = f"run {story.id} could begin at {format_instant(ready)}, and was claimed only at "
        yield found(message + format_instant(claim.store), *_cause(stories, story), accepted, claim, stories.healed)


def deadlines_end_the_work(stories: Stories) -> Iterator[Finding]:
    """(12) Work ends at its timeout, or soon after (`deadline_bound`), where nothing had gone wrong since well before.

    Not seen: work whose end was not recorded. A function in a thread cannot be ended: one that has a timeout and goes
    on is reported here.
    """
    for story in stories.runs.values():
        options = story.options
        if options is None or options.timeout is None:
            continue
        for turn in story.turns.values():
            if not turn.starts or not turn.ends:
                continue
            start, end = turn.starts[0], turn.ends[0]
            if end.store - start.store > options.timeout + stories.bounds.overrun and stories.is_quiet(start.store):
                message = (
                    f"run {story.id} with token {turn.token} has a timeout of {format_duration(options.timeout)}, and "
                    f"went on for {format_duration(end.store - start.store)}"
                )
                yield found(message, story.source, start, end, stories.healed)
