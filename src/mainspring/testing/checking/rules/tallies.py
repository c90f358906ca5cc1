"""Tallies: they count what ended, each thing once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from mainspring.core.states import CANCELLED, FAILED, SUCCEEDED
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record

_OUTCOMES: Final = (SUCCEEDED, FAILED, CANCELLED)


def tallies_count_what_ended(stories: Stories) -> Iterator[Finding]:
    """(24) The tallies of a history that was drained count as many runs of each outcome as there are, and as many
    firings that failed without a run.

    Not seen: skipped and missed instants, of which one row may stand for many; which period they were counted in.
    """
    if stories.drained is None:
        return
    ended: dict[str, list[Record]] = defaultdict(list)
    for story in stories.runs.values():
        if story.run is not None and story.row is not None:
            ended[story.run.state].append(story.row)
    rows = (row for job in stories.jobs.values() for rows in job.rows.values() for row in rows)
    ended[FAILED] += [row for row in rows if row.run is None and row.state == FAILED]
    for record in stories.tallies:
        outcome, count = record.name or "", record.count or 0
        if outcome not in _OUTCOMES or count == len(ended[outcome]):
            continue
        much = "more" if count > len(ended[outcome]) else "fewer"
        shown = ended[outcome][: count + 1] if much == "fewer" else ()
        yield found(f"the tallies count {count} that {outcome}: {much} than there are", record, stories.drained, *shown)
