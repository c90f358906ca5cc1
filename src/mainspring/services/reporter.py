"""Tells the store what attempts came to, in batches; and passes on what running ones say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.model import Report
from mainspring.services.alerter import expect_alerts
from mainspring.services.crew import Crew
from mainspring.services.held import Held
from mainspring.services.loop import Loop, log
from mainspring.settings import Settings
from mainspring.store import Store

T = TypeVar("T")

TALK_S = 0.2
"""How long a line of output may wait before it can be read elsewhere."""
IDLE_S = 5.0


class Reporter(Loop):
    """A lone result is reported at once; while more are about to end, they are gathered for a few milliseconds."""

    name = "reporter"

    def __init__(
        self,
        store: Store,
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
        self.stale = 0
        self._expecting = False
        self.on_alerts: Callable[[], None] = lambda: None
        """Called when somebody is to be told of failures, for the first time here."""

    async def turn(self) -> float:
        crew = self._crew
        if 0 < len(crew.done) < min(len(self._held), self._flush_limit):
            await self.clock.sleep(self._flush_s)
        if crew.names_alert and not self._expecting:
            # Before the first failure of them is reported, so that whoever leads will look for it.
            await expect_alerts(self._store)
            self._expecting = True
            self.on_alerts()
        with _taken(crew.done, self._flush_limit) as reports:
            await self._pass_on()  # First, so that whoever sees the end of a run sees all that it wrote.
            if reports:
                await self._report(reports)
        await self._hand_back()
        if crew.done or crew.lines or crew.returned:
            return 0.0
        return TALK_S if len(self._held) else IDLE_S

    async def _report(self, reports: Sequence[Report]) -> None:
        """What was not acknowledged is told again: the store knows a repeated report."""
        self._held.note(reports)
        self._on_room()  # How long runs are says how many may be claimed, also before the store has heard of these.
        verdicts = await self._store.report(reports)
        for report, verdict in zip(reports, verdicts, strict=True):
            if verdict == "stale":
                self.stale += 1
                log.warning("run %s: the result came after its claim had passed to another; refused", report.run_id)
        self._held.remove([(report.run_id, report.token) for report in reports])
        self._on_room()

    async def _pass_on(self) -> None:
        """All that has been said until now, in pieces, so that a talkative run does not keep others from the store."""
        lines, marks, limit = self._crew.lines, self._crew.marks, self._flush_limit
        for _ in range(0, max(len(lines), len(marks)), limit):
            with _taken(lines, limit) as some_lines, _taken(marks, limit) as some_marks:
                await self._store.record(some_lines, some_marks)

    async def _hand_back(self) -> None:
        returned = self._crew.returned
        if returned:
            with _taken(returned, len(returned)) as claims:
                count = await self._store.hand_back(claims)
            self._held.remove(claims)
            self._held.run_s = None  # What went back could not start: runs are longer than they were.
            self._on_room()
            log.info("%d runs handed back", count)

    @property
    def idle(self) -> bool:
        """Whether everything has been told."""
        crew = self._crew
        return not (crew.done or crew.returned or crew.lines or crew.marks or not self._resting.is_set())


@contextmanager
def _taken(queue: deque[T], limit: int) -> Iterator[list[T]]:
    """The first of a queue; they come back if they could not be told."""
    taken = [queue.popleft() for _ in range(min(len(queue), limit))]
    try:
        yield taken
    except BaseException:
        queue.extendleft(reversed(taken))
        raise
