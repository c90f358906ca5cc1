"""What a history says about one run: everything that happened to it, by the token under which it happened."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import NewRun, Run, RunOptions
from mainspring.core.states import FINAL
from mainspring.testing.checking.stories.reading import carried, earliest
from mainspring.testing.history import Record

_new_run = msgspec.json.Decoder(NewRun).decode
_run = msgspec.json.Decoder(Run).decode
_options = msgspec.json.Decoder(RunOptions).decode


class Turn:
    """All that happened under one token of a run."""

    __slots__ = ("claims", "ends", "handbacks", "prolonged", "reports", "starts", "token", "until")

    def __init__(self, token: int) -> None:
        self.token = token
        self.claims: tuple[Record, ...] = ()
        self.starts: tuple[Record, ...] = ()
        self.ends: tuple[Record, ...] = ()
        self.reports: tuple[Record, ...] = ()
        self.handbacks: tuple[Record, ...] = ()
        self.until: Instant = 0
        """The claim did not run out before this."""
        self.prolonged: Record | None = None
        """What says so."""

    def prolong(self, record: Record) -> None:
        """It was given, or renewed."""
        if record.until is not None and record.until > self.until:
            self.until, self.prolonged = record.until, record

    @property
    def accepted(self) -> Record | None:
        """The first report that was acknowledged."""
        for report in self.reports:
            if report.outcome == "ok":
                return report
        return None

    @property
    def released(self) -> Instant:
        """Until here the claim surely stood.

        It ends by a report, by being given back, or by running out. Reports and returns that were not acknowledged may
        have come to nothing, and one that was acknowledged may repeat one that was not.
        """
        reported = [earliest(report) for report in self.reports if report.outcome != "refused"]
        if self.accepted is not None:
            return min(reported)
        return min([self.until, *reported, *map(earliest, self.handbacks)])

    def proof(self) -> tuple[Record | None, ...]:
        """What shows that the claim stood from when it was given until `released`."""
        return (*self.claims[:1], self.accepted or self.prolonged)


class RunStory:
    """All that happened to one run."""

    __slots__ = ("_accepting", "attempts", "cancels", "claimed", "id", "row", "run", "submits", "turns")

    def __init__(self, run_id: str) -> None:
        self.id = run_id
        self.turns: dict[int, Turn] = {}
        """By token, in order."""
        self.claimed: list[Turn] = []
        """Those whose claim is known."""
        self.submits: tuple[Record, ...] = ()
        self.cancels: tuple[Record, ...] = ()
        self.attempts: tuple[Record, ...] = ()
        """As they were remembered at the end, in order."""
        self.row: Record | None = None
        """The run at the end."""
        self.run: Run | None = None
        self._accepting: tuple[Record, NewRun] | None = None

    def turn(self, token: int) -> Turn:
        """What happened under a token."""
        turn = self.turns.get(token)
        if turn is None:
            turn = self.turns[token] = Turn(token)
        return turn

    def sort(self) -> None:
        """All has been read: put it in order."""
        if len(self.turns) > 1:
            self.turns = dict(sorted(self.turns.items()))
        if len(self.attempts) > 1:
            self.attempts = tuple(sorted(self.attempts, key=lambda record: record.attempt or 0))
        self.claimed = [turn for turn in self.turns.values() if turn.claims]

    def end(self, record: Record) -> None:
        """The run as it was at the end."""
        self.row, self.run = record, carried(record, _run)

    @property
    def has_ended(self) -> bool:
        """Whether it was in a final state at the end."""
        return self.run is not None and self.run.state in FINAL

    @property
    def acknowledged(self) -> Record | None:
        """The first submission of it that was answered."""
        return next((record for record in self.submits if record.outcome == "ok"), None)

    @property
    def accepting(self) -> tuple[Record, NewRun] | None:
        """The submission that made the run; None for one of a firing.

        A later one with the same idempotency key asks for another run, and is answered with this one.
        """
        if self._accepting is None and self.submits:
            asked = ((record, carried(record, _new_run)) for record in self.submits if record.outcome != "refused")
            self._accepting = next((each for each in asked if each[1].id == self.id), None)
        return self._accepting

    @property
    def new(self) -> NewRun | None:
        """The run as it was submitted; None for one of a firing."""
        return None if self.accepting is None else self.accepting[1]

    @property
    def known(self) -> Run | NewRun | None:
        """What kind of run it is, if the history shows it."""
        return self.run or self.new

    @property
    def source(self) -> Record | None:
        """The record that says what is `known`."""
        return self.row or (None if self.accepting is None else self.accepting[0])

    @property
    def options(self) -> RunOptions | None:
        """How it was to be executed."""
        known = self.known
        return None if known is None else _options_of(known.options)

    @property
    def settled(self) -> Record | None:
        """The first acknowledged report of a final state."""
        for turn in self.turns.values():
            for report in turn.reports:
                if report.outcome == "ok" and report.state in FINAL:
                    return report
        return None


@lru_cache(maxsize=4096)
def _options_of(text: str) -> RunOptions:
    """Most runs share their options with many others: read them once."""
    return _options(text)
