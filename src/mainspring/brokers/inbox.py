"""Deliveries that have arrived at a subscription, and that its worker has not asked for yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from mainspring.broker import Delivery

KEPT_S: Final = 0.05
"""How long a delivery waits for its worker to ask. A worker that does not has other work; another may be idle."""


class Inbox:
    """Best first. `on_arrival` is called for each delivery, `on_stale` once some have waited for too long."""

    def __init__(self, on_arrival: Callable[[], None], on_stale: Callable[[], None] | None = None) -> None:
        self._on_arrival = on_arrival
        self._on_stale = on_stale
        self._waiting: list[tuple[int, int, int, Delivery]] = []
        """Rank, number, priority, delivery."""
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, delivery: Delivery, priority: int, rank: int | None = None) -> None:
        """Add a delivery. It is taken by its rank, which is its priority unless given, then in order of arrival."""
        self._count += 1
        self._waiting.append((priority if rank is None else rank, self._count, priority, delivery))
        if self._timer is None and self._on_stale is not None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._complain)
        self._on_arrival()

    def take(self, limit: int, priorities: Sequence[int]) -> list[Delivery]:
        """The best of these priorities."""
        if not self._waiting or limit <= 0:
            return []
        self._waiting.sort(key=_order)
        taken: list[tuple[int, int, int, Delivery]] = []
        kept: list[tuple[int, int, int, Delivery]] = []
        for entry in self._waiting:
            (taken if len(taken) < limit and entry[2] in priorities else kept).append(entry)
        self._waiting = kept
        if not kept:
            self._rest()
        return [entry[3] for entry in taken]

    def drop(self, unwanted: Callable[[Delivery], bool] | None = None) -> list[Delivery]:
        """Take out all deliveries, or those that are unwanted."""
        dropped = [entry[3] for entry in self._waiting if unwanted is None or unwanted(entry[3])]
        self._waiting = [entry for entry in self._waiting if unwanted is not None and not unwanted(entry[3])]
        if not self._waiting:
            self._rest()
        return dropped

    def _complain(self) -> None:
        self._timer = None
        if self._waiting and self._on_stale is not None:
            self._on_stale()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _order(entry: tuple[int, int, int, Delivery]) -> tuple[int, int]:
    return entry[0], entry[1]
