"""What a job would do over a span of time: the rows that its ledger would have, with their reasons.

The decisions are those of the engine: `plan` says which instants fire, `admit` what overlap means, `after_failure`
what follows a timeout. Simulated are the clock, outages of the scheduler, and how long runs take. Workers are always
free, and no run fails unless it takes longer than its timeout.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec

from mainspring.core.instants import Duration, Instant, format_instant
from mainspring.core.model import FiringOutcome, Gate, Job, NewRun, RunOptions
from mainspring.core.planning.firing_limits import Bounds
from mainspring.core.planning.plans import Calendars, PlannedFiring, Refuse, Replace, admit, next_fire_at, plan
from mainspring.core.runs.outcome import Next, after_failure, deadline_of, ends_with_run, out_of_time, overrun, too_late
from mainspring.core.schedules.triggers import AfterTrigger, EveryTrigger
from mainspring.core.states import FAILED, PENDING

MOST_ROWS: Final = 10_000
MOST_ATTEMPTS: Final = 100
"""A run is not retried more often than this: its policy may allow millions."""
_FAILURE: Final = ("TimeoutError", "OSError", "Exception")

Took = Callable[[Instant], Duration]
"""How long a run of an instant takes."""


class Outage(NamedTuple):
    """A period in which nothing plans. What runs goes on."""

    begin: Instant
    end: Instant


class PredictedFiring(msgspec.Struct):
    """A row of the ledger to be, and when its run would start and end."""

    fire_at: Instant
    outcome: FiringOutcome
    reason: str = ""
    region: str = ""
    idx: int = 0
    last_at: Instant | None = None
    count: int = 1
    run_id: str | None = None
    attempts: int = 0
    due_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None


class Prediction(NamedTuple):
    """What a job would do, in order of time; and whether that was cut short."""

    rows: Sequence[PredictedFiring]
    partial: bool

    def most_at_once(self) -> int:
        """The most runs that would be executed at the same time."""
        ends: list[Instant] = []
        most = 0
        for row in sorted(
            (row for row in self.rows if row.started_at is not None), key=lambda row: row.started_at or 0
        ):
            while ends and ends[0] <= (row.started_at or 0):
                heappop(ends)
            heappush(ends, row.finished_at or 0)
            most = max(most, len(ends))
        return most

    def longest_wait(self) -> Duration:
        """The longest time that a run would wait at a gate or in a line."""
        return max(((row.started_at or 0) - (row.due_at or 0) for row in self.rows if row.started_at), default=0)


def simulate(
    job: Job,
    calendars: Calendars,
    first: Instant,
    last: Instant,
    took: Took,
    outages: Sequence[Outage] = (),
    unfinished: Sequence[PredictedFiring] = (),
    enough: Callable[[], bool] = lambda: False,
) -> Prediction:
    """What a job would do from `first` to before `last`. `unfinished` are runs that have started before and end later
    than that."""
    if isinstance(job.trigger, AfterTrigger):
        return Prediction((), partial=False)
    world = _World(_begun(job, first, calendars), took, list(unfinished))
    now = first
    while (due := world.job.next_fire_at) is not None and due < last:
        now = max(now, _planned_at(due, outages))
        if now >= last:
            break
        made = plan(world.job, now, calendars, Bounds())
        world.forget_finished(now)
        for firing in made.firings:
            world.add(firing, now)
        fired = sum(each.outcome == "fired" for each in made.firings)
        world.job = msgspec.structs.replace(
            world.job, next_fire_at=made.next_fire_at, fired=world.job.fired + fired, last_fire_at=due
        )
        if len(world.rows) >= MOST_ROWS or enough():
            return Prediction(world.rows[:MOST_ROWS], partial=True)
    return Prediction(world.rows, partial=False)


def _begun(job: Job, first: Instant, calendars: Calendars) -> Job:
    """The job as if it had existed before the span, active and due in it. An interval keeps its phase."""
    created = job.created_at
    if isinstance(job.trigger, EveryTrigger) and created >= first:
        created -= ((created - first) // job.trigger.period + 1) * job.trigger.period
    begun = msgspec.structs.replace(job, created_at=created, paused_at=None, paused_why="")
    return msgspec.structs.replace(begun, next_fire_at=next_fire_at(begun, first - 1, calendars))


def _planned_at(due: Instant, outages: Iterable[Outage]) -> Instant:
    """When an instant is planned: at once, or when the outages end that cover it."""
    for outage in sorted(outages):
        if outage.begin <= due < outage.end:
            due = outage.end
    return due


class _World:
    """The runs of one job so far."""

    def __init__(self, job: Job, took: Took, unfinished: list[PredictedFiring]) -> None:
        self.job = job
        self.rows: list[PredictedFiring] = []
        self._took = took
        self._open: defaultdict[str, list[PredictedFiring]] = defaultdict(list)
        self._ends: defaultdict[str, list[Instant]] = defaultdict(list)
        """When the runs in each gate leave it."""
        for run in unfinished:
            self._open[run.region].append(run)

    def forget_finished(self, now: Instant) -> None:
        """Called before each plan. The runs of one plan are written together: none ends before the last is written."""
        for region, rows in self._open.items():
            self._open[region] = [row for row in rows if (row.finished_at or 0) > now]

    def add(self, firing: PlannedFiring, now: Instant) -> None:
        """Write the rows of a firing that is planned now."""
        if firing.outcome != "fired":
            row = PredictedFiring(firing.fire_at, firing.outcome, firing.reason, self.job.policy.regions[0])
            self.rows.append(msgspec.structs.replace(row, last_at=firing.last_at, count=firing.count))
            return
        for region, group in groupby(firing.runs, attrgetter("region")):
            self._fire(region, list(group), now)

    def _fire(self, region: str, runs: Sequence[NewRun], now: Instant) -> None:
        verdict = admit(self.job, [row.run_id or "" for row in self._open[region]])
        if isinstance(verdict, Refuse):
            self.rows += [PredictedFiring(run.fire_at or 0, "skipped", verdict.reason, region, run.idx) for run in runs]
            return
        if isinstance(verdict, Replace):
            self._cancel(region, runs[0], now)
        for run in runs:
            row = self._run(run, now)
            self.rows.append(row)
            self._open[region].append(row)

    def _cancel(self, region: str, run: NewRun, now: Instant) -> None:
        for row in self._open[region]:
            row.outcome = "cancelled"
            row.reason = f"overlap=replace: replaced by the firing of {format_instant(run.fire_at or 0)}"
            row.finished_at = now
            if row.due_at == now:
                row.started_at, row.attempts = None, 0  # It was written in the same plan.
        self._open[region] = []
        self._ends.clear()

    def _run(self, run: NewRun, now: Instant) -> PredictedFiring:
        gates, due = (*run.gates, *run.lines), max(run.due_at, now)
        start = max([due, *(self._free_at(gate) for gate in gates)])
        row = PredictedFiring(run.fire_at or 0, "succeeded", region=run.region, idx=run.idx, run_id=run.id, due_at=due)
        if run.expires_at is not None and start > run.expires_at:
            row.outcome, row.reason, row.finished_at = "skipped", too_late(run.expires_at).reason, run.expires_at
            return row
        options = msgspec.json.decode(run.options, type=RunOptions)
        if options.give_up_at is not None and start >= options.give_up_at:
            row.outcome, row.finished_at = "failed", options.give_up_at
            row.reason = out_of_time(0, None, run.options).reason
            return row
        row.started_at = start
        self._execute(row, run, options, start)
        for gate in gates:
            heappush(self._ends[gate.name], row.finished_at or start)
        return row

    def _free_at(self, gate: Gate) -> Instant:
        """When the next run may pass a gate. Its places are taken in order, so that those left first come free."""
        ends, free_at = self._ends[gate.name], 0
        while len(ends) >= gate.capacity:
            free_at = heappop(ends)
        return free_at

    def _execute(self, row: PredictedFiring, run: NewRun, options: RunOptions, start: Instant) -> None:
        """Let a run take its time; one that takes longer than its timeout is retried as its policy says."""
        length = self._took(row.fire_at)
        while (end := deadline_of(options, start)) is not None and start + length > end:
            summary, end = f"TimeoutError: {overrun(options, start)}", max(start, end)
            following = after_failure(run.id, row.attempts, 0, options, summary, _FAILURE, end)
            if ends_with_run(options, start):
                following = Next(FAILED, summary)
            row.attempts += 1
            if following.state != PENDING or row.attempts == MOST_ATTEMPTS:
                row.outcome, row.reason, row.finished_at = "failed", following.reason, end
                return
            start = end + following.delay
        row.attempts += 1
        row.finished_at = start + length
