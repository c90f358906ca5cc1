"""Tells the store what attempts came to, in batches; and passes on what running ones say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TypeVar

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.model import Report
from mainspring.services.crew import Crew
from mainspring.services.held import Held
from mainspring.services.loop import Loop, log
from mainspring.settings import Settings
from mainspring.store import WorkStore

T = TypeVar("T")

TALK_S = 0.2
"""How long a line of output may wait before it can be read elsewhere."""
IDLE_S = 5.0


class Reporter(Loop):
    """A lone result is reported at once; while more are about to end, they are gathered for a few milliseconds."""

    name = "reporter"

    def __init__(
        self,
        store: WorkStore,
        crew: Crew,
        held: Held,
        on_room: Callable[[], None],
        settings: Settings,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._crew = crew
        self._held = held
        self._on_room = on_room
        self._flush_s = settings.flush / SECOND
        self._flush_limit = settings.flush_limit
        self._reports: list[Report] = []
        self.stale = 0

    async def turn(self) -> float:
        await self._pass_on()
        if not self._reports:
            if 0 < len(self._crew.done) < min(len(self._held), self._flush_limit):
                await self.clock.sleep(self._flush_s)
            self._reports = _take(self._crew.done, self._flush_limit)
        if self._reports:
            await self._report()
        if self._crew.done:
            return 0.0
        return TALK_S if len(self._held) else IDLE_S

    async def _report(self) -> None:
        """What was not acknowledged stays, and is told again: the store knows a repeated report."""
        verdicts = await self._store.report(self._reports)
        for report, verdict in zip(self._reports, verdicts, strict=True):
            if verdict == "stale":
                self.stale += 1
                log.warning("run %s: the result came after its claim had passed to another; refused", report.run_id)
        self._held.remove([(report.run_id, report.token) for report in self._reports])
        self._held.measure()
        self._reports = []
        self._on_room()

    async def _pass_on(self) -> None:
        lines, marks = _take(self._crew.lines, self._flush_limit), _take(self._crew.marks, self._flush_limit)
        if not lines and not marks:
            return
        try:
            await self._store.record(lines, marks)
        except BaseException:
            self._crew.lines.extendleft(reversed(lines))
            raise

    @property
    def idle(self) -> bool:
        """Whether everything has been told."""
        return not (self._reports or self._crew.done or self._crew.lines or self._crew.marks)


def _take(queue: deque[T], limit: int) -> list[T]:
    return [queue.popleft() for _ in range(min(len(queue), limit))]
