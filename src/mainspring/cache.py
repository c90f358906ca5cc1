"""The board port: where statuses are kept, so that whoever asks for them need not ask the store.

A board is a copy, never the truth. Whoever leads posts what events tell, in order, and then moves the mark: all events
before it are on the board. What is not there is asked of the store, and posted by whoever asked, with the mark that was
there before. So an older word never takes the place of a newer, whoever is slow: positions decide.

A board that was emptied, or whose mark was not moved for a while, begins a new epoch: what was said in an earlier one
does not count any more, since events in between may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mainspring.core.runs.status import Posting, Status


class Mark(NamedTuple):
    """All events before a position are on the board, since this epoch began."""

    epoch: str
    position: int
    late: bool = False
    """Whether there are many more, so that the store knows better."""


class Board(Protocol):
    """What cannot be done raises BrokerUnavailable; all may be repeated."""

    async def look(self, subject: str) -> tuple[Mark | None, Status | None]:
        """The mark, and what is known of a subject in its epoch; the mark is None where nobody has moved it lately."""

    async def post(self, epoch: str, postings: Sequence[Posting]) -> None:
        """Note each unless a newer one of its epoch is there."""

    async def advance(self, before: Mark | None, after: Mark) -> Mark | None:
        """Move the mark, if it is where it was thought to be (None: if there is none). The mark that is there then."""

    async def close(self) -> None:
        """Let go of connections."""
