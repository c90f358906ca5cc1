"""Claims: numbered in order, one at a time, and nothing is executed without."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from mainspring.core.instants import format_duration, format_instant
from mainspring.core.states import FINAL
from mainspring.testing.checking.stories.reading import surely_before
from mainspring.testing.checking.stories.runs import RunStory, Turn
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record


def tokens_grow(stories: Stories) -> Iterator[Finding]:
    """(4) Each claim of a run has its own token, greater than those before.

    Not seen: the order of claims where it is not known; claims whose answers were lost, if the store itself was not
    recorded.
    """
    for story in stories.runs.values():
        for turn in story.turns.values():
            if len(turn.claims) > 1:
                message = f"token {turn.token} of run {story.id} was given {len(turn.claims)} times"
                yield found(message, *turn.claims[:2])
        for turn, following in pairwise(story.claimed):
            if surely_before(following.claims[0], turn.claims[0]):
                message = f"run {story.id} was claimed with token {turn.token} after token {following.token}"
                yield found(message, turn.claims[0], following.claims[0])


def claims_never_overlap(stories: Stories) -> Iterator[Finding]:
    """(5) A run is claimed again only after the claim before was reported, given back, or ran out.

    Not seen: overlaps with a claim that was reported or given back at a time that is not known exactly.
    """
    for story in stories.runs.values():
        for turn, following in pairwise(story.claimed):
            again = following.claims[0]
            if again.store < turn.released and not surely_before(again, turn.claims[0]):
                message = (
                    f"run {story.id} was claimed with token {following.token} at {format_instant(again.store)}, "
                    f"while token {turn.token} stood until {format_instant(turn.released)}"
                )
                yield found(message, *turn.proof(), again)


def executions_stay_within_claims(stories: Stories) -> Iterator[Finding]:
    """(7) Work begins once for each claim, at the worker that has it; and while other work for the same run goes on
    only if the older of the two claims no longer stood. A worker ends its own work when its claim has run out, or soon
    after (`fence_bound`, if that is given), unless it stood still itself or the store's clock was put forward.

    Not seen: work whose end was not recorded, as it may have been killed.
    """
    for story in stories.runs.values():
        for turn in story.turns.values():
            if turn.starts:
                yield from _unclaimed(story, turn)
                yield from _overstayed(stories, story, turn)
        yield from _at_once(story)


def _unclaimed(story: RunStory, turn: Turn) -> Iterator[Finding]:
    start = turn.starts[0]
    if not turn.claims:
        yield found(f"run {story.id} was executed with token {turn.token}, which no worker was given", start)
    elif start.worker is not None and start.worker != turn.claims[0].worker:
        message = f"run {story.id} was executed by {start.worker} with token {turn.token} of {turn.claims[0].worker}"
        yield found(message, turn.claims[0], start)
    if len(turn.starts) > 1:
        message = f"run {story.id} was executed {len(turn.starts)} times with token {turn.token}"
        yield found(message, *turn.claims[:1], *turn.starts[:2])


def _overstayed(stories: Stories, story: RunStory, turn: Turn) -> Iterator[Finding]:
    """A worker that could not renew its claim must stop before another may have it."""
    bound = stories.bounds.fence
    if bound is None or not turn.claims or not turn.ends:
        return
    claim, end = turn.claims[0], turn.ends[0]
    late = end.store - turn.until
    if late > bound and not stories.stood_still(claim.worker or "", claim.store, end.store):
        message = (
            f"run {story.id} was still at work with token {turn.token} {format_duration(late)} after its claim had run "
            f"out at {format_instant(turn.until)}"
        )
        yield found(message, claim, turn.prolonged, turn.starts[0], end)


def _at_once(story: RunStory) -> Iterator[Finding]:
    executed = [turn for turn in story.turns.values() if turn.starts]
    if len(executed) < 2:
        return
    executed.sort(key=lambda turn: (turn.starts[0].store, turn.starts[0].seq))
    longest = executed[0]
    for turn in executed[1:]:
        moment = turn.starts[0].store
        older = min(turn, longest, key=lambda each: each.token)
        if _end_of(longest) > moment and moment < older.released:
            message = (
                f"run {story.id} was executed with tokens {longest.token} and {turn.token} at once, at "
                f"{format_instant(moment)}, while the claim with token {older.token} stood"
            )
            yield found(message, longest.starts[0], *longest.ends[:1], turn.starts[0], *older.proof())
        longest = max(longest, turn, key=_end_of)


def _end_of(turn: Turn) -> int:
    return turn.ends[0].store if turn.ends else 0


def nothing_starts_after_the_end(stories: Stories) -> Iterator[Finding]:
    """(8) No work begins for a run that has ended, under a claim that still stands.

    Not seen: work under a claim that had run out. A process that was held up between looking at its claim and
    beginning cannot know that, and what it reports is refused.
    """
    for story in stories.runs.values():
        if not any(turn.starts for turn in story.turns.values()):
            continue
        settled = story.settled
        for turn in story.turns.values():
            for start in turn.starts:
                if settled is not None and surely_before(settled, start) and _is_live(turn, settled, start):
                    message = f"run {story.id} was executed with token {turn.token} after it had ended {settled.state}"
                    yield found(message, *turn.claims[:1], turn.prolonged, settled, start)
                elif settled is None and _ended_meanwhile(story, turn, start):
                    message = f"run {story.id} was executed with token {turn.token} after it had ended"
                    yield found(message, *turn.proof(), start, story.row)


def _is_live(turn: Turn, settled: Record, start: Record) -> bool:
    return turn.token == settled.token or start.store < turn.until


def _ended_meanwhile(story: RunStory, turn: Turn, start: Record) -> bool:
    """It ended otherwise than by a report, before work began that had every right to."""
    run = story.run
    if run is None or run.state not in FINAL or run.finished_at is None:
        return False
    reported = any(report.outcome != "refused" for each in story.turns.values() for report in each.reports)
    return not reported and run.finished_at < start.store < turn.released
