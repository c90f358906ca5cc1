"""Publishes what is submitted at once, so that its worker need not wait for the dispatcher."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from mainspring.broker import Broker, Notice
from mainspring.clock import Clock
from mainspring.core.model import NewRun
from mainspring.errors import BrokerUnavailable, StoreError
from mainspring.services.breaker import CircuitBreaker
from mainspring.services.broker_metrics import measured_publish
from mainspring.store import Store

MOST: Final = 100
"""A submission of more runs is not published run by run."""
FIRST: Final = 20
"""Of such a submission, this many of each queue, region and priority are published, saying that there are more: as many
workers are woken at once, and find the rest in the store. The dispatcher wakes the others."""
HINT_S: Final = 0.1
"""Delay before listeners to the store hear of what was published: at once, they would compete with the worker that
starts it."""


class Announcer:
    """Listens to the submissions of a store (`store.SubmissionListener`). The submitter does not wait for the broker,
    and does not learn if it does not answer: the dispatcher publishes again."""

    def __init__(self, store: Store, broker: Broker, clock: Clock) -> None:
        self._store = store
        self._broker = broker
        self._clock = clock
        self._local = threading.local()

    def accepted(self, runs: Sequence[NewRun]) -> None:
        """See `store.SubmissionListener`."""
        now = self._store.now()
        due = [run for run in runs if run.due_at <= now and not (run.after or run.lines)]
        if due:
            self._publisher().publish([_notice_of(run) for run in due] if len(due) <= MOST else _first_of_each(due))
        if not due or len(due) > MOST:
            self._store.announce()

    async def close(self) -> None:
        """Publish what is left, and close the broker."""
        await self._publisher().finish()
        await self._broker.close()

    def _publisher(self) -> _Publisher:
        """One for each thread, since a breaker belongs to one."""
        publisher: _Publisher | None = getattr(self._local, "publisher", None)
        if publisher is None:
            breaker = CircuitBreaker(self._store, self._clock, "")
            publisher = self._local.publisher = _Publisher(self._broker, breaker, self._store, self._clock)
        return publisher


def _notice_of(run: NewRun) -> Notice:
    place = (run.namespace, run.queue, run.region)
    return Notice(run.id, 0, *place, run.priority, run.due_at, order_key=run.key or run.job_id or "")


def _first_of_each(runs: Sequence[NewRun]) -> list[Notice]:
    """Notices of the first runs of each place and priority, those of more than these saying so."""
    groups: dict[tuple[str, str, str, int], list[NewRun]] = {}
    for run in runs:
        groups.setdefault((run.namespace, run.queue, run.region, run.priority), []).append(run)
    return [
        _notice_of(run).with_more() if len(group) > FIRST else _notice_of(run)
        for group in groups.values()
        for run in group[:FIRST]
    ]


class _Publisher:
    """What is submitted while a call of the broker is under way is published together, next."""

    def __init__(self, broker: Broker, breaker: CircuitBreaker, store: Store, clock: Clock) -> None:
        self._broker = broker
        self._breaker = breaker
        self._store = store
        self._clock = clock
        self._due: list[Notice] = []
        self._publishing: asyncio.Task[None] | None = None
        self._hinting: asyncio.Task[None] | None = None

    def publish(self, due: Sequence[Notice]) -> None:
        self._due += due
        if not _is_under_way(self._publishing):
            self._publishing = asyncio.get_running_loop().create_task(self._publish())

    async def finish(self) -> None:
        """Wait for what is under way: this process may be about to end."""
        if self._publishing is not None and _is_under_way(self._publishing):
            await asyncio.wait([self._publishing])
        if self._hinting is not None and _is_under_way(self._hinting):
            self._hinting.cancel()
            self._hint()

    async def _publish(self) -> None:
        while self._due:
            due, self._due = self._due, []
            try:
                await self._breaker.call(partial(measured_publish, self._broker, due, self._store.metrics, self._clock))
            except BrokerUnavailable:
                self._hint()
                continue
            if not _is_under_way(self._hinting):
                self._hinting = asyncio.get_running_loop().create_task(self._hint_later())

    async def _hint_later(self) -> None:
        await self._clock.sleep(HINT_S)
        self._hint()

    def _hint(self) -> None:
        with suppress(StoreError):  # The store may have been closed meanwhile.
            self._store.announce()


def _is_under_way(task: asyncio.Task[None] | None) -> bool:
    """On this loop: a loop that has ended took its tasks with it."""
    return task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop()
