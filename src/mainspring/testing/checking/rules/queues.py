"""Queues: a paused one gives no run away."""

from __future__ import annotations

from collections.abc import Iterator

from mainspring.testing.checking.stories.origins import origin
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found


def a_paused_queue_gives_no_run(stories: Stories) -> Iterator[Finding]:
    """(23) From the commit of a pause to that of its end, no run of the queue is claimed.

    Not seen: queues of which a recorder elsewhere than at the store says when they were paused; runs whose queue is not
    known.
    """
    for story in stories.runs.values():
        if story.known is None:
            continue
        for turn in story.turns.values():
            for claim in turn.claims:
                pause = stories.pause_before(story.known.queue, claim)
                if pause is not None:
                    message = f"worker {claim.worker} claimed run {story.id} of queue {pause.name}, which was paused"
                    yield found(message, pause, claim, *origin(stories, story))
