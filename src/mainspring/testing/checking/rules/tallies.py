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
    firings that failed without a run. Those of each queue count its runs: as many as were accepted, and as ended.

    Not seen: skipped and missed instants, of which one row may stand for many; which period they were counted in.
    """
    if stories.drained is None:
        return
    yield from _of_queues(stories, stories.drained)
    ended: dict[str, list[Record]] = defaultdict(list)
    for story in stories.runs.values():
        if story.run is not None and story.row is not None:
            ended[story.run.state].append(story.row)
    rows = (row for job in stories.jobs.values() for rows in job.rows.values() for row in rows)
    ended[FAILED] += [row for row in rows if row.run is None and row.state == FAILED]
    for record in stories.tallies:
        outcome = record.name or ""
        if outcome in _OUTCOMES and record.key is None:
            yield from _compared(f"that {outcome}", record, ended[outcome], stories.drained)


def _of_queues(stories: Stories, drained: Record) -> Iterator[Finding]:
    runs: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for story in stories.runs.values():
        if story.run is not None and story.row is not None:
            runs[story.run.queue, story.run.state].append(story.row)
            runs[story.run.queue, "accepted"].append(story.row)
    for record in stories.tallies:
        if record.key is not None:
            name = record.name or ""
            verb = "were accepted" if name == "accepted" else f"are {name}"
            yield from _compared(f"of queue {record.key} that {verb}", record, runs[record.key, name], drained)


def _compared(which: str, record: Record, rows: list[Record], drained: Record) -> Iterator[Finding]:
    """Nothing, or what is wrong with a count."""
    count = record.count or 0
    if count != len(rows):
        much = "more" if count > len(rows) else "fewer"
        shown = rows[: count + 1] if much == "fewer" else ()
        yield found(f"the tallies count {count} {which}: {much} than there are", record, drained, *shown)
