"""Reports the results of attempts to the store, in batches, and passes on the output of running ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.model import Report, Worker
from mainspring.core.runs.fitting import find_fit, judge_unfit
from mainspring.services.activity import Activity
from mainspring.services.chores.alerter import expect_alerts
from mainspring.services.loop import Loop, log
from mainspring.services.worker.claims import Claims
from mainspring.services.worker.runner import Runner, conclude
from mainspring.settings import Settings
from mainspring.store import Store

T = TypeVar("T")

OUTPUT_S = 0.2
"""How long a line of output may wait before it is in the store."""
IDLE_S = 5.0


class Reporter(Loop):
    """Reports a lone result at once. While more runs are about to end, gathers their results for a few milliseconds."""

    name = "reporter"

    def __init__(
        self,
        store: Store,
        runner: Runner,
        claims: Claims,
        on_room: Callable[[], None],
        settings: Settings,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._runner = runner
        self._claims = claims
        self._on_room = on_room
        self._flush_s = settings.flush / SECOND
        self._flush_limit = settings.flush_limit
        self.stale = 0
        self._expecting = False
        self._dead_after = settings.worker_dead_after
        self._patience = settings.unfit_wait
        self.on_aside: Callable[[str], None] = lambda _: None
        """Called with the name of a task for which the code of this worker is too old."""
        self.activity: Activity | None = None
        """Counts what the store accepted, if anything listens."""
        self.on_alerts: Callable[[], None] = lambda: None
        """Called when a run first names a recipient of alerts."""

    async def turn(self) -> float:
        runner = self._runner
        if 0 < len(runner.done) < min(len(self._claims), self._flush_limit):
            await self.clock.sleep(self._flush_s)
        if runner.names_alert and not self._expecting:
            # Before the first such failure is reported, so that the alerter looks for it.
            await expect_alerts(self._store)
            self._expecting = True
            self.on_alerts()
        if runner.unfit:
            await self._judge_unfit()
        with _taken(runner.done, self._flush_limit) as reports:
            await self._pass_on()  # First, so that all output is in the store when the end is.
            if reports:
                await self._report(reports)
        await self._hand_back()
        await self._amend()
        if runner.done or runner.lines or runner.returned or runner.unfit or runner.amended:
            return 0.0
        return OUTPUT_S if len(self._claims) else IDLE_S

    async def _report(self, reports: Sequence[Report]) -> None:
        """A report without an acknowledgement is repeated: the store recognizes it."""
        self._claims.note(reports)
        self._on_room()  # The length of runs decides how many to claim, even before the store has these reports.
        verdicts = await self._store.report(reports)
        for report, verdict in zip(reports, verdicts, strict=True):
            if verdict == "stale":
                self.stale += 1
                log.warning(
                    "run %s: the store refused the result, because its claim had passed to another worker",
                    report.run_id,
                )
        if self.activity is not None:
            self.activity.ended(reports, verdicts, self._claims.attempt_of)
        self._claims.remove([(report.run_id, report.token) for report in reports])
        self._on_room()

    async def _pass_on(self) -> None:
        """Write all output so far, in pieces, so that one run with much output does not delay the others."""
        lines, marks, limit = self._runner.lines, self._runner.marks, self._flush_limit
        for _ in range(0, max(len(lines), len(marks)), limit):
            with _taken(lines, limit) as some_lines, _taken(marks, limit) as some_marks:
                await self._store.record(some_lines, some_marks)

    async def _hand_back(self) -> None:
        returned = self._runner.returned
        if returned:
            with _taken(returned, len(returned)) as claims:
                count = await self._store.hand_back(claims)
            if self.activity is not None:
                attempts = [self._claims.attempt_of(run_id) for run_id, _ in claims]
                self.activity.handed_back([attempt for attempt in attempts if attempt is not None])
            self._claims.remove(claims)
            self._claims.run_s = None  # These could not start: runs take longer than they did.
            self._on_room()
            log.info("%d runs handed back", count)

    async def _judge_unfit(self) -> None:
        """Runs whose arguments this worker's code does not know have not failed: other workers may know them."""
        runner, known = self._runner, dict[str, list[Worker]]()
        while runner.unfit:
            attempt, outcome = runner.unfit[0]
            claim = attempt.claim
            if claim.task not in known:
                known[claim.task] = await self._store.announced(claim.namespace, claim.task)
            now, own = self._store.now(), runner.notices[claim.task]
            fit = find_fit(known[claim.task], own, claim.args, now - self._dead_after)
            problem = outcome.failure.message if outcome.failure is not None else ""
            verdict = judge_unfit(claim, problem, now, self._patience, others_fit=fit)
            runner.unfit.popleft()
            if verdict.step_aside:
                self.on_aside(claim.task)
            if verdict.amendment is not None:
                runner.amended.append(verdict.amendment)
            else:
                runner.done.append(conclude(attempt, outcome, now))

    async def _amend(self) -> None:
        amended = self._runner.amended
        if amended:
            with _taken(amended, self._flush_limit) as amendments:
                await self._store.amend(amendments)
            self._claims.remove([(each.run_id, each.token) for each in amendments])
            self._on_room()

    @property
    def idle(self) -> bool:
        """Whether everything has been reported."""
        runner = self._runner
        given = runner.done or runner.returned or runner.amended or runner.unfit
        return not (given or runner.lines or runner.marks or not self._resting.is_set())


@contextmanager
def _taken(queue: deque[T], limit: int) -> Iterator[list[T]]:
    """Take the first items of a queue; they return to it if the body fails."""
    taken = [queue.popleft() for _ in range(min(len(queue), limit))]
    try:
        yield taken
    except BaseException:
        queue.extendleft(reversed(taken))
        raise
