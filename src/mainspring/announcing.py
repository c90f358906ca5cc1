"""Whoever submits a run that is due tells the broker at once: its worker need not wait for the dispatcher."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from mainspring.broker import Broker, Notice
from mainspring.clock import Clock
from mainspring.core.model import NewRun
from mainspring.errors import BrokerUnavailable
from mainspring.services.switch import Switch
from mainspring.store import Change, Store

MOST = 1_000
"""Of more that are submitted at once, the dispatcher tells the rest when it is their turn."""


class Announced:
    """A store that tells the broker of what it accepts. All else is the store's own. The caller does not wait for the
    broker, and is not told if that does not answer: the dispatcher says it again."""

    def __init__(self, store: Store, broker: Broker, clock: Clock) -> None:
        self._store = store
        self._broker = broker
        self._clock = clock
        self._local = threading.local()
        self.now = store.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def attested(self, tell: Callable[[Any], Sequence[Change]]) -> Store:
        return cast(Store, Announced(self._store.attested(tell), self._broker, self._clock))

    async def submit(self, runs: Sequence[NewRun]) -> list[str]:
        ids = await self._store.submit(runs)
        now = self._store.now()
        due = [
            Notice(run.id, 0, run.namespace, run.queue, run.region, run.priority, run.due_at)
            for run in runs[:MOST]
            if run.due_at <= now and not (run.after or run.lines)
        ]
        if due:
            self._teller().tell(due)
        return ids

    async def close(self) -> None:
        await self._store.close()
        await self._broker.close()

    def _teller(self) -> _Teller:
        """One for each thread: a breaker is no place for several."""
        teller: _Teller | None = getattr(self._local, "teller", None)
        if teller is None:
            teller = self._local.teller = _Teller(self._broker, Switch(self._store, self._clock, ""))
        return teller


class _Teller:
    """What is submitted while the broker is being told is told together, next."""

    def __init__(self, broker: Broker, switch: Switch) -> None:
        self._broker = broker
        self._switch = switch
        self._due: list[Notice] = []
        self._telling: asyncio.Task[None] | None = None

    def tell(self, due: Sequence[Notice]) -> None:
        self._due += due
        loop, telling = asyncio.get_running_loop(), self._telling
        if telling is None or telling.done() or telling.get_loop() is not loop:
            self._telling = loop.create_task(self._tell())

    async def _tell(self) -> None:
        while self._due:
            due, self._due = self._due, []
            try:
                await self._switch.call(partial(self._broker.publish, due))
            except BrokerUnavailable:
                continue


def announced(store: Store, broker: Broker, clock: Clock) -> Store:
    """The same store, whose submissions are told to a broker."""
    return cast(Store, Announced(store, broker, clock))
