"""What workers report: the end of attempts, in batches of few statements; and claims given back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Amendment, Report
from mainspring.core.runs.outcome import (
    ClaimedRun,
    Ended,
    Next,
    Token,
    accepted_reports,
    after_hand_back,
    after_report,
    attempt_outcome,
    end_attempt,
    ended,
    still_claimed,
    unattempted,
)
from mainspring.core.states import CANCELLED, PENDING
from mainspring.core.text import clean
from mainspring.errors import Unstorable
from mainspring.store import Verdict
from mainspring.stores.postgres.claims.gates import leave_gates, need_gates
from mainspring.stores.postgres.claims.lines import lock_lines_of
from mainspring.stores.postgres.ends.endings import EndedRow, follow, move_to_history
from mainspring.stores.postgres.history.days import not_before
from mainspring.stores.postgres.server.database import Database, Record, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "endings")
_WORK = load_queries("postgres", "work")
_encode = msgspec.json.Encoder().encode

CAREFUL = 20
"""After a batch of mostly special runs, this many batches skip the short path."""
Pending = tuple[str, str, Duration, int, int]
"""Id, reason, delay, attempts and losses to add."""


class Reports:
    """The reporting half of `store.WorkStore`."""

    _db: Database

    _careful = 0
    """How many more batches are not worth a look whether nothing else depends on the ends of their runs."""

    async def report(self, reports: Sequence[Report]) -> list[Verdict]:
        try:
            ended = await self._end_plain(reports)
            rest = [report for report in reports if report.run_id not in ended]
            others = iter(await self._db.write(lambda tx: _report(tx, rest)) if rest else ())
            return ["accepted" if report.run_id in ended else next(others) for report in reports]
        except Unstorable:
            if len(reports) == 1:
                raise
        half = len(reports) // 2  # Halved until the bad one stands alone.
        return await self.report(reports[:half]) + await self.report(reports[half:])

    async def _end_plain(self, reports: Sequence[Report]) -> set[str]:
        """One round trip for the ends of runs on which nothing else depends; returns their ids."""
        tokens = {report.run_id: report.token for report in reports if report.state != PENDING}
        if self._careful or len(tokens) < len(reports) or not reports:
            self._careful = max(self._careful - 1, 0)
            return set()
        now = self._db.clock.now()
        columns = zip(*[_plain_row(report, now) for report in reports], strict=True)
        rows = await self._db.alone(_Q["end_plain"], *columns, now, _encode(tokens).decode())
        if 2 * len(rows) < len(reports):
            self._careful = CAREFUL
        return {row[0] for row in rows}

    async def hand_back(self, claims: Sequence[tuple[str, int]]) -> int:
        return await self._db.write(lambda tx: hand_back(tx, claims)) if claims else 0

    async def amend(self, amendments: Sequence[Amendment]) -> int:
        return await self._db.write(lambda tx: _amend(tx, amendments)) if amendments else 0


async def load_claimed(tx: Transaction, run_ids: Sequence[str]) -> dict[str, ClaimedRun]:
    """The runs that are still running, locked in order of id. Runs in lines come last, because the locks of their lines
    have to be taken first."""
    claimed = _by_id(await tx.fetch(_Q["lock_running"], run_ids))
    rest = [run_id for run_id in run_ids if run_id not in claimed]
    if rest and await lock_lines_of(tx, rest):
        claimed |= _by_id(await tx.fetch(_Q["lock_running_in_lines"], rest))
    return claimed


def _by_id(rows: Sequence[Record]) -> dict[str, ClaimedRun]:
    return {run.id: run for run in (ClaimedRun(*row) for row in rows)}


def _plain_row(report: Report, now: Instant) -> tuple[object, ...]:
    return (
        *(report.run_id, report.state, attempt_outcome(report.state, report.outcome), clean(report.reason)),
        *(report.started_at, report.finished_at or now, clean(report.result), clean(report.error)),
    )


async def _report(tx: Transaction, reports: Sequence[Report]) -> list[Verdict]:
    claimed = await load_claimed(tx, [report.run_id for report in reports])
    endings = Endings(tx)
    known: set[Token] = set()
    refused: list[str] = []
    accepted = accepted_reports(reports, claimed)
    for report, run in zip(reports, accepted, strict=True):
        if run is None:
            refused.append(report.run_id)
            continue
        known.add((run.id, run.token))
        endings.add(run, after_report(report, run), report)
    if refused:
        known |= await _reported(tx, list(dict.fromkeys(refused)))
    await endings.apply()
    return [
        "accepted" if run is not None else "repeated" if (report.run_id, report.token) in known else "stale"
        for report, run in zip(reports, accepted, strict=True)
    ]


async def _reported(tx: Transaction, ids: Sequence[str]) -> set[Token]:
    """The attempts of these runs that were reported before."""
    return {(row[0], row[1]) for row in await tx.fetch(_Q["reported"], ids, not_before(ids, tx.now))}


class Endings:
    """The ends of attempts, gathered so that each statement is executed once for all of them."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._finished: list[EndedRow] = []
        self._attempts: list[tuple[object, ...]] = []
        self._pending: list[Pending] = []
        self._ended: list[Ended] = []
        self._freed: list[tuple[str, Sequence[str], bool]] = []

    def add(self, run: ClaimedRun, verdict: Next, report: Report, *, losses: int = 0) -> None:
        """The attempt ended as `report` says, and the run goes where `verdict` says."""
        columns, event = end_attempt(run, verdict, report, self._tx.now, losses=losses)
        self._tx.events.append(event)
        if columns.state != PENDING:
            self._finished.append((run.id, *columns))
            if run.matters:
                self._ended.append(ended(run, columns.state, columns.reason))
            return
        times = (columns.started_at, columns.finished_at)
        self._attempts.append(
            (run.id, run.attempt + 1, run.token, run.worker, columns.outcome, *times, columns.reason, columns.error)
        )
        self._pending.append((run.id, columns.reason, verdict.delay, 1, losses))
        if run.gates:
            self._freed.append((run.namespace, run.gates, True))

    async def apply(self) -> None:
        """Write it all."""
        tx = self._tx
        if self._attempts:
            await tx.run(_Q["add_attempts"], *zip(*self._attempts, strict=True))
        if self._finished:
            await move_to_history(tx, self._finished)
        if self._pending:
            await back_to_pending(tx, self._pending)
        if self._freed:
            await leave_gates(tx, self._freed)
        await follow(tx, self._ended)


async def back_to_pending(tx: Transaction, rows: Sequence[Pending]) -> None:
    """Running runs that are locked go back to the queue."""
    await tx.run(_Q["back_to_pending"], *zip(*rows, strict=True), tx.given)
    tx.changed = True


async def hand_back(tx: Transaction, claims: Sequence[Token]) -> int:
    """Give back the claims that are still valid; returns how many."""
    runs = still_claimed(claims, await load_claimed(tx, [run_id for run_id, _ in claims]))
    cancelled: dict[str, Ended] = {}
    returned: dict[str, Pending] = {}
    for run in runs:
        verdict, event = after_hand_back(run, tx.now)
        tx.events.append(event)
        if verdict.state == CANCELLED:
            cancelled[run.id] = ended(run, verdict.state, verdict.reason)
        else:
            returned[run.id] = (run.id, verdict.reason, 0, 0, 0)
    if cancelled:
        rows = [(run.id, *unattempted(Next(run.state, run.reason), tx.now)) for run in cancelled.values()]
        await move_to_history(tx, rows)
    if returned:
        await back_to_pending(tx, list(returned.values()))
        await leave_gates(tx, [(run.namespace, run.gates, True) for run in runs if run.gates and run.id in returned])
    await follow(tx, list(cancelled.values()))
    return len(runs)


async def _amend(tx: Transaction, amendments: Sequence[Amendment]) -> int:
    wanted = {(each.run_id, each.token): each for each in amendments}
    runs = still_claimed(wanted, await load_claimed(tx, [run_id for run_id, _ in wanted]))
    count = await hand_back(tx, list(wanted))
    kept = [(run, wanted[run.id, run.token]) for run in runs if run.cancel is None]
    if kept:
        await need_gates(tx, [(run.namespace, each.gate) for run, each in kept if each.gate is not None])
        rows = [
            (each.run_id, clean(each.reason), each.options, each.priority, each.gate and each.gate.name, each.delay)
            for _, each in kept
        ]
        await tx.run(_WORK["amend"], *zip(*rows, strict=True), tx.given)
    return count
