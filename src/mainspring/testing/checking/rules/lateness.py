"""Time: nothing begins early, little begins late, and what has a deadline ends."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.core.instants import Instant, format_duration, format_instant
from mainspring.core.runs.pacing import CLAIM_AHEAD
from mainspring.testing.checking.stories.origins import accepted_by, due_of, origin, waits_for_nothing
from mainspring.testing.checking.stories.reading import earliest
from mainspring.testing.checking.stories.runs import RunStory
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record


def nothing_begins_early_or_late(stories: Stories) -> Iterator[Finding]:
    """(11) No run begins before it is due, or is claimed long before; nor later than `lateness_bound` after, if that is
    given and nothing had gone wrong since well before, nor was there anything for the run to wait for.

    Not seen: whether retries begin early, which is in (9); whether there was a worker with room, so the bound must
    allow for the load.

    Nor is a firing recorded later than that after its instant, unless its job was ever paused.
    """
    yield from _late_firings(stories)
    for story in stories.runs.values():
        due = due_of(stories, story)
        claimed = story.claimed
        if due is None or not claimed:
            continue
        for record, earliest_at in [
            (claimed[0].claims[0], due - CLAIM_AHEAD),
            *[(start, due) for start in claimed[0].starts[:1]],
        ]:
            if record.store < earliest_at:
                message = (
                    f"run {story.id} was due at {format_instant(due)}, and its {record.what} with token "
                    f"{record.token} came {format_duration(due - record.store)} early"
                )
                yield found(message, *_timed_by(stories, story), claimed[0].claims[0], record)
                break
        else:
            yield from _late(stories, story, due, claimed[0].claims[0])


def _late_firings(stories: Stories) -> Iterator[Finding]:
    bound = stories.bounds.lateness
    if bound is None:
        return
    for job in stories.jobs.values():
        if not job.is_complete or not job.is_timed or job.was_paused:
            continue
        for fire in job.fires:
            instant = fire.fire_at or 0
            is_late = earliest(fire) > instant + job.most_jitter + bound
            if is_late and fire.outcome == "ok" and stories.is_quiet(instant):
                message = f"job {job.name}: {format_instant(instant)} was due, and was written down only at "
                yield found(message + format_instant(fire.store), *job.records, fire, stories.healed)


def _timed_by(stories: Stories, story: RunStory) -> list[Record]:
    """The record that says when a run was due."""
    run = story.run
    if story.new is not None or run is None or run.job_id is None or run.fire_at is None:
        return origin(stories, story)
    return [*origin(stories, story), stories.job(run.job_id).rows[run.fire_at][0]]


def _late(stories: Stories, story: RunStory, due: Instant, claim: Record) -> Iterator[Finding]:
    bound, accepted = stories.bounds.lateness, accepted_by(stories, story)
    if bound is None or accepted is None or claim.token != 1 or not waits_for_nothing(stories, story):
        return
    ready = max(due, accepted.store)
    if earliest(claim) > ready + bound and stories.is_quiet(ready):
        message = f"run {story.id} could begin at {format_instant(ready)}, and was claimed only at "
        yield found(message + format_instant(claim.store), *_timed_by(stories, story), accepted, claim, stories.healed)


def deadlines_end_the_work(stories: Stories) -> Iterator[Finding]:
    """(12) Work ends at its timeout, and a run at its total timeout even if it waits, or soon after (`deadline_bound`),
    where nothing had gone wrong since well before.

    Not seen: work whose end was not recorded. A function in a thread cannot be ended: one that has a timeout and goes
    on is reported here.
    """
    for story in stories.runs.values():
        options = story.options
        yield from _ends_too_late(stories, story)
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


def _ends_too_late(stories: Stories, story: RunStory) -> Iterator[Finding]:
    """A run that went on, or waited, well beyond its total timeout."""
    run, end = story.run, None if story.options is None else story.options.give_up_at
    if run is None or end is None or not stories.is_quiet(end):
        return
    drained = stories.end_of_runs
    until = run.finished_at if run.finished_at is not None else None if drained is None else drained.store
    if until is not None and until > end + stories.bounds.overrun:
        gone_on = "ended only at" if run.finished_at is not None else f"was {run.state} at"
        message = f"the total timeout of run {story.id} ended at {format_instant(end)}, and the run {gone_on} "
        yield found(message + format_instant(until), story.row, stories.healed)
