"""What workers report: the end of attempts, in batches of few statements; and claims given back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.model import Amendment, Event, Report, named_queue
from mainspring.core.runs.outcome import (
    ClaimedRun,
    Ended,
    Next,
    Token,
    accepted_reports,
    after_hand_back,
    after_report,
    end_attempt,
    ended,
    still_claimed,
    unattempted,
)
from mainspring.core.states import CANCELLED, PENDING, SUCCEEDED
from mainspring.core.text import clean
from mainspring.store import Verdict
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import (
    EndedRow,
    SucceededRow,
    follow,
    leave_gates,
    move_succeeded,
    move_to_history,
)
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "work")
_END = load_queries("sqlite", "endings")
_RUNS = load_queries("sqlite", "runs")
_FEW = 10
"""Up to this number of reports count as quick work."""
_encode = msgspec.json.Encoder().encode


_read_claimed = msgspec.json.Decoder(list[ClaimedRun]).decode


class Reports:
    """The reporting half of `store.WorkStore`."""

    _db: Database

    async def report(self, reports: Sequence[Report]) -> list[Verdict]:
        return await self._db.write(lambda tx: _report(tx, reports), quick=len(reports) <= _FEW)

    async def hand_back(self, claims: Sequence[tuple[str, int]]) -> int:
        return await self._db.write(lambda tx: _hand_back(tx, claims), promised=False)

    async def amend(self, amendments: Sequence[Amendment]) -> int:
        # As durable as a submission: what is forgotten here would be done without its limit.
        return await self._db.write(lambda tx: _amend(tx, amendments))


def load_claimed(tx: Transaction, run_ids: Sequence[str], *, whole: bool = False) -> dict[str, ClaimedRun]:
    """The runs that are still running. With `whole`, the whole row of each even if nothing depends on its end."""
    ids = _encode(run_ids).decode()
    return {run.id: run for run in _read_claimed(tx.execute(_Q["running"], (ids, whole)).fetchone()[0])}


def _report(tx: Transaction, reports: Sequence[Report]) -> list[Verdict]:
    claimed = load_claimed(tx, [report.run_id for report in reports])
    verdicts: list[Verdict] = []
    endings, accepted = Endings(tx), set()
    for report, run in zip(reports, accepted_reports(reports, claimed), strict=True):
        claim = (report.run_id, report.token)
        if run is None:
            repeated = claim in accepted or tx.execute(_Q["was_reported"], claim).fetchone()
            verdicts.append("repeated" if repeated else "stale")
            continue
        accepted.add(claim)
        verdicts.append("accepted")
        if report.state == SUCCEEDED and not (run.options or report.reason or report.error):
            endings.succeed(run, report)
        else:
            endings.add(run, after_report(report, run), report)
    endings.apply()
    return verdicts


class Endings:
    """The ends of attempts, gathered so that each statement is executed once for all of them."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._succeeded: list[SucceededRow] = []
        self._finished: list[EndedRow] = []
        self._unsuccessful: list[EndedRow] = []
        self._delays: list[tuple[object, ...]] = []
        self._ended: list[Ended] = []
        self._freed: list[tuple[str, Sequence[str]]] = []

    def succeed(self, run: ClaimedRun, report: Report) -> None:
        """What `add` does, with no more than is needed for what happens most: a success on which nothing depends."""
        now = self._tx.now
        started_at, finished_at = report.started_at or run.started_at, report.finished_at or now
        self._succeeded.append((run.seq, started_at, finished_at, clean(report.result)))
        duration = None if started_at is None else finished_at - started_at
        self._tx.events.append(
            Event("run.succeeded", now, run.namespace, run.id, None, None, run.task, run.worker, None, run.attempt + 1,
                  "", duration, queue=named_queue(run.queue))
        )  # fmt: skip

    def add(self, run: ClaimedRun, verdict: Next, report: Report, *, losses: int = 0) -> None:
        """The attempt ended as `report` says, and the run goes where `verdict` says."""
        columns, event = end_attempt(run, verdict, report, self._tx.now, losses=losses)
        self._tx.events.append(event)
        row = (run.seq, *columns)
        if columns.state != SUCCEEDED:  # The run's history shows an attempt that succeeded.
            self._unsuccessful.append(row)
        if columns.state != PENDING:
            self._finished.append(row)
            if run.matters:
                self._ended.append(ended(run, columns.state, columns.reason))
            return
        self._delays.append((columns.reason, self._tx.now + verdict.delay, 1, losses, run.seq))
        if run.gates:
            self._freed.append((run.namespace, run.gates))

    def apply(self) -> None:
        """Write it all."""
        tx = self._tx
        tx.bulk(_END["add_attempts"], self._unsuccessful)
        if self._succeeded:
            move_succeeded(tx, self._succeeded)
        if self._finished:
            move_to_history(tx, self._finished)
        if self._delays:
            tx.executemany(_END["back_to_pending"], self._delays)
            tx.changed = True
        for namespace, gates in self._freed:
            leave_gates(tx, namespace, gates, held=True)
        follow(tx, self._ended)


def _hand_back(tx: Transaction, claims: Sequence[Token]) -> int:
    runs = still_claimed(claims, load_claimed(tx, [run_id for run_id, _ in claims]))
    cancelled = []
    for run in runs:
        verdict, event = after_hand_back(run, tx.now)
        tx.events.append(event)
        if verdict.state == CANCELLED:
            move_to_history(tx, [(run.seq, *unattempted(verdict, tx.now))])
            cancelled.append(ended(run, verdict.state, verdict.reason))
            continue
        tx.execute(_END["back_to_pending"], (verdict.reason, tx.now, 0, 0, run.seq))
        if run.gates:
            leave_gates(tx, run.namespace, run.gates, held=True)
    tx.changed = tx.changed or bool(runs)
    follow(tx, cancelled)
    return len(runs)


def _amend(tx: Transaction, amendments: Sequence[Amendment]) -> int:
    wanted = {(each.run_id, each.token): each for each in amendments}
    runs = still_claimed(wanted, load_claimed(tx, [run_id for run_id, _ in wanted]))
    count = _hand_back(tx, list(wanted))
    for run in runs:
        if run.cancel is not None:
            continue
        each, gates = wanted[run.id, run.token], None
        if each.gate is not None:
            tx.execute(_RUNS["save_gate"], (run.namespace, each.gate.name, each.gate.capacity))
            gates = _encode(sorted({*(run.gates or ()), each.gate.name})).decode()
        due_at = tx.now + each.delay
        tx.execute(_Q["amend"], (clean(each.reason), each.options, each.priority, gates, due_at, run.seq))
    return count
