"""Writing firings: rows of the ledger, and the runs of those that run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

import msgspec

from mainspring.core.instants import Instant, format_instant
from mainspring.core.model import FiringKind, FiringOutcome, Job, NewRun
from mainspring.core.planning.plans import PlannedFiring, Refuse, Replace, admit
from mainspring.core.states import RUNNING
from mainspring.stores.rows.job_rows import firing_event
from mainspring.stores.rows.planned import Recorded
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import cancel_run
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.submissions.intake import insert_runs

_Q = load_queries("sqlite", "firings")


class Recorder:
    """Writes the firings of one transaction: their rows at once, their runs together at the end.

    An instant that the ledger has already is left as it is, and has no second run.
    """

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._runs: list[NewRun] = []
        self._collected: set[str] = set()
        self._rows = 0

    def record(
        self, job: Job, firings: Sequence[PlannedFiring], kind: FiringKind, request_id: str | None = None
    ) -> Recorded:
        """Write a job's firings, those without runs first."""
        instants = runs = 0
        if idle := [firing for firing in firings if firing.outcome != "fired"]:
            self._record_idle(job, idle, kind)
        for firing in firings:
            if firing.outcome == "fired":
                rows = self._rows
                runs += self._fire(job, firing, kind, request_id)
                instants += self._rows > rows
        return Recorded(instants, runs)

    def flush(self) -> None:
        """Insert the runs collected so far."""
        if self._runs:
            insert_runs(self._tx, self._runs)
        self._runs = []
        self._collected.clear()

    def _record_idle(self, job: Job, firings: Sequence[PlannedFiring], kind: FiringKind) -> None:
        region, now = job.policy.regions[0], self._tx.now
        rows = [
            (job.id, it.fire_at, region, 0, kind, it.outcome, it.reason, None, None, it.last_at, it.count, now, now)
            for it in firings
        ]
        if self._tx.executemany(_Q["record"], rows).rowcount:
            first = firings[0]
            # 0 stands for uncounted, as in the ledger.
            count = 0 if any(firing.count == 0 for firing in firings) else sum(firing.count for firing in firings)
            self._report(first.outcome, job, first.fire_at, first.reason, count)

    def _report(self, outcome: FiringOutcome, job: Job, fire_at: Instant, reason: str, count: int) -> None:
        self._tx.events.append(firing_event(self._tx.now, outcome, job, fire_at, reason, count))

    def _fire(self, job: Job, firing: PlannedFiring, kind: FiringKind, request_id: str | None) -> int:
        if job.policy.overlap in ("allow", "queue"):
            runs = self._write_rows(firing.runs, kind, request_id)
        else:
            runs = []
            for region, group in groupby(firing.runs, attrgetter("region")):
                runs += self._fire_in_region(job, region, list(group), kind, request_id)
        if runs:
            self._runs += runs
            self._collected.add(job.id)
            self._report("fired", job, firing.fire_at, "", len(runs))
        return len(runs)

    def _fire_in_region(
        self, job: Job, region: str, runs: list[NewRun], kind: FiringKind, request_id: str | None
    ) -> list[NewRun]:
        if job.id in self._collected:
            self.flush()  # An earlier firing of the same batch counts as well.
        unfinished = [row[0] for row in self._tx.execute(_Q["unfinished"], (job.id, region))]
        verdict = admit(job, unfinished)
        if isinstance(verdict, Refuse):
            refused = self._write_rows(runs, kind, request_id, verdict)
            if refused:
                self._report("skipped", job, runs[0].fire_at or 0, verdict.reason, len(refused))
            return []
        recorded = self._write_rows(runs, kind, request_id)
        return self._replace(verdict, recorded) if recorded and isinstance(verdict, Replace) else recorded

    def _write_rows(
        self, runs: Sequence[NewRun], kind: FiringKind, request_id: str | None, refusal: Refuse | None = None
    ) -> list[NewRun]:
        """Write the rows of runs that are created or refused; returns those whose instant was not in the ledger
        before."""
        execute, record, now = self._tx.execute, _Q["record"], self._tx.now
        fresh = []
        for run in runs:
            end = ("fired", "", run.id) if refusal is None else ("skipped", refusal.reason, None)
            row = (run.job_id, run.fire_at, run.region, run.idx, kind, *end, request_id, None, 1, now,
                   None if refusal is None else now)  # fmt: skip
            if execute(record, row).rowcount:
                fresh.append(run)
        self._rows += len(fresh)
        return fresh

    def _replace(self, verdict: Replace, runs: Sequence[NewRun]) -> list[NewRun]:
        """Cancel what has not ended; what is running has to end before its replacement may start."""
        reason = f"overlap=replace: replaced by the firing of {format_instant(runs[0].fire_at or 0)}"
        states = {run_id: cancel_run(self._tx, run_id, reason) for run_id in verdict.run_ids}
        running = tuple(run_id for run_id, state in states.items() if state == RUNNING)
        return [msgspec.structs.replace(run, after=running, on_failure="run") for run in runs]
