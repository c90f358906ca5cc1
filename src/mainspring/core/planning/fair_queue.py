"""A queue whose groups take turns: what one group asks for does not delay the others.

Deficit round robin. At its turn a group may spend a quantum; what an item costs is known only once it has been looked
at, so a group may overdraw, and then passes until its turns have paid for it. Every operation costs the same however
many items wait; only debts cost a step for each quantum.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from mainspring.core.instants import Instant

T = TypeVar("T")

QUANTUM: Final = 100
MOST_DEBTS: Final = 10_000
"""Debts of groups that wait for nothing are remembered up to this number."""


class FairQueue(Generic[T]):
    """Items by group, first in first out within a group. A group can be held: it has no turns until an instant."""

    def __init__(self) -> None:
        self._items: dict[str, deque[T]] = {}
        self._turns: deque[str] = deque()
        self._credit: dict[str, int] = {}
        self._held_until: dict[str, Instant] = {}

    def push(self, group: str, item: T) -> None:
        """Add an item behind the others of its group."""
        self._of(group).append(item)

    def push_front(self, group: str, item: T) -> None:
        """Put an item back: it is the next of its group."""
        self._of(group).appendleft(item)

    def pop(self, now: Instant) -> T | None:
        """The next item; None if every group is empty or held."""
        passed = 0
        while passed < len(self._turns):
            group = self._turns[0]
            if self.is_held(group, now):
                self._turns.rotate(-1)
                passed += 1
            elif self._credit.get(group, 0) <= 0:
                self._credit[group] = self._credit.get(group, 0) + QUANTUM
                self._turns.rotate(-1)
                passed = 0
            else:
                return self._take(group)
        return None

    def charge(self, group: str, cost: int) -> None:
        """Charge a group for an item."""
        self._credit[group] = self._credit.get(group, 0) - cost
        if len(self._credit) > MOST_DEBTS + len(self._items):
            self._credit = {name: credit for name, credit in self._credit.items() if name in self._items}

    def hold(self, group: str, until: Instant) -> None:
        """Give a group no turn before an instant."""
        self._held_until[group] = until

    def is_held(self, group: str, now: Instant) -> bool:
        """Whether a group has to wait."""
        return self._held_until.get(group, now) > now

    def next_at(self, now: Instant) -> Instant | None:
        """When `pop` will find something: now, when the first hold of a group that waits ends, or never."""
        return min((max(self._held_until.get(group, now), now) for group in self._items), default=None)

    def clear(self) -> None:
        """Forget the items and the holds; debts stay."""
        self._items.clear()
        self._turns.clear()
        self._held_until.clear()

    def __contains__(self, group: str) -> bool:
        return group in self._items

    def _of(self, group: str) -> deque[T]:
        items = self._items.get(group)
        if items is None:
            items = self._items[group] = deque()
            self._turns.append(group)
        return items

    def _take(self, group: str) -> T:
        """Take the next item of the group whose turn it is."""
        self._held_until.pop(group, None)
        items = self._items[group]
        item = items.popleft()
        if not items:
            del self._items[group]
            self._turns.popleft()
            # Turns are not saved up; debts are kept, so that a group of one expensive item cannot escape them.
            if self._credit.get(group, 0) >= 0:
                self._credit.pop(group, None)
        return item
