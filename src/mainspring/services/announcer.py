"""Whoever submits a run that is due tells the broker at once: its worker need not wait for the dispatcher."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, cast

from mainspring.broker import Broker, Notice
from mainspring.clock import Clock
from mainspring.core.model import NewRun
from mainspring.errors import BrokerUnavailable, StoreError
from mainspring.process.metrics import Figures
from mainspring.services.breaker import Switch
from mainspring.store import Audit, Store

MOST = 1_000
"""Of more that are submitted at once, the dispatcher tells the rest when it is their turn."""
HINT_S: Final = 0.1
"""So long after the broker was told, those who listen to the store hear of it too: at once, they would only be in the
way of the worker that begins with it."""


class HeraldedStore(Protocol):
    """A store that leaves it to another to tell of submissions. Only stores on a server do."""

    def send_herald(self, herald: Callable[[Sequence[NewRun]], None]) -> None:
        """Call `herald`, on the loop of whoever submits, with the runs of each submission that adds any, as soon as
        they can be claimed: before `submit` returns, and maybe before they are durable (a claim makes them so).
        Listeners to changes need not be told of them then, but by `announce`."""

    def announce(self) -> None:
        """Call listeners to changes, here and elsewhere, soon."""


class Announced:
    """A store that tells the broker of what it accepts. All else is the store's own. The caller does not wait for the
    broker, and is not told if that does not answer: the dispatcher says it again."""

    def __init__(self, store: Store, broker: Broker, clock: Clock, figures: Figures | None = None) -> None:
        self._store = store
        self._broker = broker
        self._clock = clock
        self._figures = figures
        self._local = threading.local()
        # By attribute: since Python 3.12 `isinstance` of a protocol does not see what a wrapper passes on.
        self._hints = cast(HeraldedStore, store) if hasattr(store, "send_herald") else None
        self.now = store.now
        if self._hints is not None:
            self._hints.send_herald(self._tell)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        ids = await self._store.submit(runs, audit=audit)
        if self._hints is None:
            self._tell(runs)
        return ids

    async def close(self) -> None:
        await self._teller().finish()
        await self._store.close()
        await self._broker.close()

    def _tell(self, runs: Sequence[NewRun]) -> None:
        now = self._store.now()
        due = [
            Notice(
                *(run.id, 0, run.namespace, run.queue, run.region, run.priority, run.due_at),
                order_key=run.key or run.job_id or "",
            )
            for run in runs[:MOST]
            if run.due_at <= now and not (run.after or run.lines)
        ]
        if due:
            self._teller().tell(due)
        elif self._hints is not None:
            self._hints.announce()

    def _teller(self) -> _Teller:
        """One for each thread: a breaker is no place for several."""
        teller: _Teller | None = getattr(self._local, "teller", None)
        if teller is None:
            switch = Switch(self._store, self._clock, "", figures=self._figures)
            teller = self._local.teller = _Teller(self._broker, switch, self._hints, self._clock)
        return teller


class _Teller:
    """What is submitted while the broker is being told is told together, next. `hints` is the store, if that leaves it
    to this to tell its listeners."""

    def __init__(self, broker: Broker, switch: Switch, hints: HeraldedStore | None, clock: Clock) -> None:
        self._broker = broker
        self._switch = switch
        self._hints = hints
        self._clock = clock
        self._due: list[Notice] = []
        self._telling: asyncio.Task[None] | None = None
        self._hinting: asyncio.Task[None] | None = None

    def tell(self, due: Sequence[Notice]) -> None:
        self._due += due
        if not _is_under_way(self._telling):
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def finish(self) -> None:
        """Nobody may be left to tell it later."""
        if self._telling is not None and _is_under_way(self._telling):
            await asyncio.wait([self._telling])
        if self._hinting is not None and _is_under_way(self._hinting):
            self._hinting.cancel()
            self._hint()

    async def _tell(self) -> None:
        while self._due:
            due, self._due = self._due, []
            try:
                await self._switch.call(partial(self._broker.publish, due))
            except BrokerUnavailable:
                self._hint()
                continue
            if self._hints is not None and not _is_under_way(self._hinting):
                self._hinting = asyncio.get_running_loop().create_task(self._hint_later())

    async def _hint_later(self) -> None:
        await self._clock.sleep(HINT_S)
        self._hint()

    def _hint(self) -> None:
        if self._hints is not None:
            with suppress(StoreError):  # It has been closed, and nobody is left who could be told.
                self._hints.announce()


def _is_under_way(task: asyncio.Task[None] | None) -> bool:
    """On this loop: one that has ended took its tasks with it."""
    return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()


def announced(store: Store, broker: Broker, clock: Clock, figures: Figures | None = None) -> Store:
    """The same store, whose submissions are told to a broker."""
    return cast(Store, Announced(store, broker, clock, figures))
