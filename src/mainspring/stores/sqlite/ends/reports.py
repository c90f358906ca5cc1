"""What workers report: the end of attempts, in batches of few statements; and claims given back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Amendment, Event, Report
from mainspring.core.runs.outcome import Next, attempt_outcome, settle
from mainspring.core.states import CANCELLED, PENDING, SUCCEEDED, State
from mainspring.store import Verdict
from mainspring.stores.rows.text import clean
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import (
    Ended,
    EndedRow,
    SucceededRow,
    follow,
    leave_gates,
    move_succeeded,
    move_to_history,
    unattempted,
)
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "work")
_END = load_queries("sqlite", "endings")
_RUNS = load_queries("sqlite", "runs")
_FEW = 10
"""A batch of at most this many reports counts as quick work."""
_encode = msgspec.json.Encoder().encode


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A running run, as far as its end concerns. Those on whose end nothing hangs are mostly read without the rest."""

    seq: int
    id: str
    token: int
    namespace: str
    task: str
    worker: str
    attempt: int
    started_at: Instant | None
    whole: int = 0
    """Whether the rest was read."""
    losses: int = 0
    options: str = "{}"
    cancel_requested_at: Instant | None = None
    cancel_reason: str = ""
    job_id: str | None = None
    job: str | None = None
    fire_at: Instant | None = None
    region: str = ""
    idx: int = 0
    dependants: int = 0
    lines: int = 0
    gates: str | None = None

    @property
    def matters(self) -> bool:
        """Whether its end affects anything else: gates, lines, dependants, the ledger."""
        return bool(self.job_id or self.dependants or self.lines or self.gates)

    @property
    def cancel(self) -> str | None:
        """The reason of a request to cancel, if there is one."""
        return None if self.cancel_requested_at is None else self.cancel_reason or "cancelled"


_read_held = msgspec.json.Decoder(list[Held]).decode
_read_gates = msgspec.json.Decoder(list[str]).decode


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


def load_held(tx: Transaction, run_ids: Sequence[str], *, whole: bool = False) -> dict[str, Held]:
    """Those of the runs that are running; the `whole` of each also where nothing hangs on its end."""
    ids = _encode(run_ids).decode()
    return {run.id: run for run in _read_held(tx.execute(_Q["running"], (ids, whole)).fetchone()[0])}


def _report(tx: Transaction, reports: Sequence[Report]) -> list[Verdict]:
    held = load_held(tx, [report.run_id for report in reports])
    verdicts: list[Verdict] = []
    endings, accepted = Endings(tx), set()
    for report in reports:
        run, claim = held.get(report.run_id), (report.run_id, report.token)
        if run is None or run.token != report.token or claim in accepted:
            repeated = claim in accepted or tx.execute(_Q["was_reported"], claim).fetchone()
            verdicts.append("repeated" if repeated else "stale")
            continue
        accepted.add(claim)
        verdicts.append("accepted")
        if report.state == SUCCEEDED and not (run.whole or report.reason or report.error):
            endings.succeed(run, report)
        else:
            verdict = Next(report.state, report.reason, report.delay)
            endings.add(run, settle(verdict, run.cancel), report)
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
        self._freed: list[tuple[str, str]] = []

    def succeed(self, run: Held, report: Report) -> None:
        """What `add` does, with no more than is needed for what happens most: a success on which nothing hangs."""
        now = self._tx.now
        started_at, finished_at = report.started_at or run.started_at, report.finished_at or now
        self._succeeded.append((run.seq, started_at, finished_at, clean(report.result)))
        duration = None if started_at is None else finished_at - started_at
        self._tx.events.append(
            Event("run.succeeded", now, run.namespace, run.id, None, None, run.task, run.worker, None, run.attempt + 1,
                  "", duration)
        )  # fmt: skip

    def add(self, run: Held, verdict: Next, report: Report, *, losses: int = 0) -> None:
        """The attempt ended as `report` says, and the run goes where `verdict` says."""
        tx, state = self._tx, verdict.state
        reason, result, error = clean(verdict.reason), clean(report.result), clean(report.error)
        started_at, finished_at = report.started_at or run.started_at, report.finished_at or tx.now
        row = (run.seq, state, attempt_outcome(state, report.outcome), reason, started_at, finished_at, result, error,
               1, losses)  # fmt: skip
        if state != SUCCEEDED:  # The run's history shows an attempt that succeeded.
            self._unsuccessful.append(row)
        if state == PENDING:
            self._delays.append((reason, tx.now + verdict.delay, 1, losses, run.seq))
            if run.gates:
                self._freed.append((run.namespace, run.gates))
            kind = "run.lost" if losses else "run.retrying"
        else:
            self._finished.append(row)
            if run.matters:
                self._ended.append(_ended(run, state, reason))
            kind = "run." + state
        duration = None if started_at is None else finished_at - started_at
        tx.events.append(
            Event(kind, tx.now, run.namespace, run.id, run.job_id, run.job, run.task, run.worker, run.fire_at,
                  run.attempt + 1, reason, duration)
        )  # fmt: skip

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


def _ended(run: Held, state: State, reason: str) -> Ended:
    return Ended(
        run.id,
        run.namespace,
        state,
        reason,
        run.job_id,
        run.fire_at,
        run.region,
        run.idx,
        run.dependants,
        run.lines,
        run.gates,
        True,
        run.options,
    )


def _hand_back(tx: Transaction, claims: Sequence[tuple[str, int]]) -> int:
    held = load_held(tx, [run_id for run_id, _ in claims])
    ended, count = [], 0
    for run_id, token in dict.fromkeys(claims):
        run = held.get(run_id)
        if run is None or run.token != token:
            continue
        count += 1
        if run.cancel is not None:
            move_to_history(tx, [unattempted(tx, run.seq, Next(CANCELLED, run.cancel))])
            ended.append(_ended(run, CANCELLED, run.cancel))
        else:
            tx.execute(_END["back_to_pending"], (f"handed back by {run.worker}", tx.now, 0, 0, run.seq))
            if run.gates:
                leave_gates(tx, run.namespace, run.gates, held=True)
        kind = "run.cancelled" if run.cancel is not None else "run.handed_back"
        tx.events.append(Event(kind, tx.now, run.namespace, run_id, run.job_id, run.job, run.task, run.worker))
        tx.changed = True
    follow(tx, ended)
    return count


def _amend(tx: Transaction, amendments: Sequence[Amendment]) -> int:
    held = load_held(tx, [each.run_id for each in amendments])
    count = _hand_back(tx, [(each.run_id, each.token) for each in amendments])
    for each in amendments:
        run = held.get(each.run_id)
        if run is None or run.token != each.token or run.cancel is not None:
            continue
        gates = None
        if each.gate is not None:
            tx.execute(_RUNS["save_gate"], (run.namespace, each.gate.name, each.gate.capacity))
            gates = _encode(sorted({*_read_gates(run.gates or "[]"), each.gate.name})).decode()
        due_at = tx.now + each.delay
        tx.execute(_Q["amend"], (clean(each.reason), each.options, each.priority, gates, due_at, run.seq))
    return count
