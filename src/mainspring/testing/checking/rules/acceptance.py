"""What was accepted: work that is kept and comes to an end, and cancels that hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from mainspring.core.instants import DAY, Duration, Instant, format_instant
from mainspring.core.model import NewRun, Run
from mainspring.core.states import BLOCKED, CANCELLED, FINAL, PENDING, SKIPPED, SUCCEEDED
from mainspring.testing.checking.stories.reading import surely_before
from mainspring.testing.checking.stories.runs import RunStory
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record

_REMEMBERED: Duration = DAY
"""Idempotency keys are remembered for longer than this."""
_CANCELLED: frozenset[str] = frozenset({CANCELLED, SUCCEEDED, SKIPPED})
"""How a run may end after a cancel was acknowledged: a worker that had already succeeded, or skipped, is believed."""


def accepted_work_is_kept_and_ends(stories: Stories) -> Iterator[Finding]:
    """(3) Each acknowledged submission has its run at the end; if the history is drained, every run has ended; and one
    idempotency key has one run.

    Not seen: whether a run would have ended that was due or claimed only just before the history was drained, or later,
    or that waited while another that it may wait for was not done; keys that were used again after a day.
    """
    if stories.end_of_runs is not None:
        for story in stories.runs.values():
            if story.acknowledged is not None and story.row is None:
                message = f"run {story.id} was accepted, and is not there at the end"
                yield found(message, story.acknowledged, stories.end_of_runs)
    for story, run, drained in _unfinished(stories):
        message = f"run {story.id} was accepted, and is still {run.state} at the end"
        yield found(message, *story.submits[:1], story.row, drained)
    yield from _doubled_keys(stories)


def _unfinished(stories: Stories) -> Iterator[tuple[RunStory, Run, Record]]:
    """The runs that should have ended when the history was drained, and had not; and what says that it was."""
    drained = stories.drained
    if drained is None:
        return
    unfinished = [(story, story.run) for story in stories.runs.values() if story.run and story.run.state not in FINAL]
    waiting = [story for story, run in unfinished if run.state == BLOCKED]
    excused = _who_may_wait(waiting, [story for story, run in unfinished if run.state != BLOCKED])
    for story, run in unfinished:
        if story.id not in excused and _idle_since(story, run) <= drained.store - stories.bounds.planning:
            yield story, run, drained


def _who_may_wait(waiting: Sequence[RunStory], going_on: Sequence[RunStory]) -> set[str]:
    """Those that wait for a run that goes on, or for one that does so in turn. What runs of firings hold is not
    recorded: while there is one, it may be what others wait at."""
    untold = any(story.new is None for story in (*waiting, *going_on))
    by_name: defaultdict[str, list[RunStory]] = defaultdict(list)
    left, excused = list(going_on), set[str]()
    for story in waiting:
        names = [] if story.new is None else list(_shared_names(story.new))
        if story.new is None or (names and untold):
            excused.add(story.id)
            left.append(story)
        else:
            for name in (*story.new.after, *names):
                by_name[name].append(story)
    while left:
        story = left.pop()
        names = [] if story.new is None else list(_shared_names(story.new))
        for other in [each for name in (story.id, *names) for each in by_name.pop(name, ())]:
            if other.id not in excused:
                excused.add(other.id)
                left.append(other)
    return excused


def _shared_names(run: NewRun) -> Iterator[str]:
    """What it may keep others waiting at."""
    yield from (gate.name for gate in (*run.gates, *run.lines))
    if run.job_id is not None:
        yield run.job_id


def _idle_since(story: RunStory, run: Run) -> Instant:
    """Since when it should have gone on: what came just before the end had no time."""
    if run.state == PENDING:
        return max(run.due_at, run.created_at)
    return max([run.created_at, *(turn.claims[0].store for turn in story.claimed)])


def _doubled_keys(stories: Stories) -> Iterator[Finding]:
    by_key: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for story in stories.runs.values():
        for submit in story.submits:
            # One that was not acknowledged counts if its run is there.
            counts = submit.outcome == "ok" or (submit.outcome == "unknown" and story.row is not None)
            if submit.key is not None and counts and story.new is not None:
                by_key[story.new.namespace, submit.key].append(submit)
    for (_, key), submits in by_key.items():
        submits.sort(key=lambda submit: submit.store)
        first = submits[0]
        for submit in submits[1:]:
            if submit.run != first.run and submit.store < first.store + _REMEMBERED:
                rows = [stories.runs[each.run].row for each in (first, submit) if each.run and each.outcome != "ok"]
                yield found(f"idempotency key {key} has two runs, {first.run} and {submit.run}", first, submit, *rows)
                break


def acknowledged_cancels_hold(stories: Stories) -> Iterator[Finding]:
    """(18) A run whose cancel was acknowledged is never claimed again, and ends cancelled; unless its worker had
    succeeded, or skipped it, meanwhile.

    Not seen: a claim whose order to the cancel is not known; whether it ends, unless the history is drained well after.
    """
    for story in stories.runs.values():
        cancel = next((record for record in story.cancels if record.outcome == "ok"), None)
        if cancel is None:
            continue
        for turn in story.claimed:
            if surely_before(cancel, turn.claims[0]):
                message = f"run {story.id} was claimed with token {turn.token} after its cancel had been acknowledged"
                yield found(message, cancel, turn.claims[0])
                break
        yield from _not_cancelled(stories, story, cancel)


def _not_cancelled(stories: Stories, story: RunStory, cancel: Record) -> Iterator[Finding]:
    run, drained = story.run, stories.drained
    if run is None or run.state in _CANCELLED:
        return
    if run.state in FINAL:
        yield found(f"the cancel of run {story.id} was acknowledged, and it ended {run.state}", cancel, story.row)
    elif drained is not None and cancel.store <= drained.store - stories.bounds.planning:
        message = f"the cancel of run {story.id} was acknowledged, and it is still {run.state} at the end"
        yield found(message, cancel, story.row, drained)


def nothing_eligible_is_left(stories: Stories) -> Iterator[Finding]:
    """(19) Once the history is drained no run is due and unclaimed, held by no worker, or waits for nothing.

    Not seen: runs that were due or claimed only just before; whether one that waits could go on, while another that it
    comes after, or that shares a line, a limit or a job with it, is not done.
    """
    for story, run, drained in _unfinished(stories):
        if run.state == BLOCKED:
            message = f"run {story.id} waits, and nothing is left to wait for"
        elif run.state == PENDING:
            message = f"run {story.id} was due at {format_instant(run.due_at)}, and no worker has claimed it"
        elif (run.claimed_until or 0) < drained.store:
            message = f"run {story.id} is held with token {run.token} by worker {run.worker}, whose claim has run out"
        else:
            continue
        yield found(message, story.row, drained)
