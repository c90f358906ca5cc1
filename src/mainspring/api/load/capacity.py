"""Capacity: how many requests are served at once. Further requests are refused immediately instead of waiting in a
growing queue. No subject or namespace can take the last slots from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeVar

from mainspring.api.problems import Problem, retry_after

K = TypeVar("K")
Kind = Literal["reading", "working", "waiting"]
"""A request whose body is still arriving, one that is being served, and one that waits on purpose."""
Owner = tuple[str, str]
"""The namespace and the subject of a request."""


class Share(NamedTuple):
    """How many slots one owner may hold, as a multiple of the free slots. The bound shrinks as slots fill up: it always
    leaves some for an owner that holds none, and one owner alone still gets most of them. With a multiple of 1 an owner
    gets half of the slots, with 4 four fifths.
    """

    subject: int
    namespace: int


SHARES: dict[Kind, Share] = {"reading": Share(9, 19), "working": Share(9, 19), "waiting": Share(1, 4)}
"""Short requests come in bursts and end soon, so an owner gets nearly all slots; a long poll holds one for minutes."""
_BUSY: dict[Kind, str] = {
    "reading": "bodies are arriving",
    "working": "requests are being worked on",
    "waiting": "long polls and streams are open",
}


class Slot(NamedTuple):
    """What a request holds."""

    kind: Kind
    owner: Owner | None
    """None for a local caller, which has the server to itself."""


class Capacity:
    """Counts slots by kind, namespace and subject."""

    def __init__(self, requests: int, watchers: int) -> None:
        self._limits: dict[Kind, int] = {"reading": requests, "working": requests, "waiting": watchers}
        self.busy: dict[Kind, int] = {"reading": 0, "working": 0, "waiting": 0}
        self._subjects: Counter[tuple[Kind, Owner]] = Counter()
        self._namespaces: Counter[tuple[Kind, str]] = Counter()
        self.refused: Counter[Kind] = Counter()

    @contextmanager
    def enter(self, kind: Kind, owner: Owner | None) -> Iterator[None]:
        """Hold a slot for the duration of a block; Problem if none is free."""
        place = self.take(kind, owner)
        try:
            yield
        finally:
            self.leave(place)

    def take(self, kind: Kind, owner: Owner | None) -> Slot:
        """Take a slot; Problem if none is free for this owner."""
        if why := self._why_not(kind, owner):
            self.refused[kind] += 1
            raise Problem("overloaded", why, remedy="try again soon", headers=retry_after(1))
        self.busy[kind] += 1
        if owner is not None:
            self._subjects[kind, owner] += 1
            self._namespaces[kind, owner[0]] += 1
        return Slot(kind, owner)

    def _why_not(self, kind: Kind, owner: Owner | None) -> str:
        free = self._limits[kind] - self.busy[kind]
        if free <= 0:
            return f"{self._limits[kind]} {_BUSY[kind]} already"
        if owner is None:
            return ""
        share, (namespace, subject) = SHARES[kind], owner
        if (held := self._subjects[kind, owner]) >= share.subject * free:
            return f"{held} {_BUSY[kind]} already for {subject}"
        if (held := self._namespaces[kind, namespace]) >= share.namespace * free:
            return f"{held} {_BUSY[kind]} already for namespace {namespace}"
        return ""

    def leave(self, place: Slot) -> None:
        """Release a slot."""
        kind, owner = place
        self.busy[kind] -= 1
        if owner is not None:
            _take_one(self._subjects, (kind, owner))
            _take_one(self._namespaces, (kind, owner[0]))


def _take_one(counter: Counter[K], key: K) -> None:
    """Decrement a count, and remove it at zero: the number of subjects over time is unbounded."""
    if counter[key] > 1:
        counter[key] -= 1
    else:
        del counter[key]
