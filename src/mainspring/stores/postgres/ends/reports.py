"""What workers report: the end of attempts, in batches of few statements; and claims given back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Amendment, Event, Report
from mainspring.core.runs.outcome import Next, attempt_outcome, settle
from mainspring.core.states import CANCELLED, PENDING, State
from mainspring.errors import Unstorable
from mainspring.store import Verdict
from mainspring.stores.postgres.claims.gates import leave_gates, need_gates
from mainspring.stores.postgres.claims.lines import lock_lines_of
from mainspring.stores.postgres.ends.endings import Ended, EndedRow, follow, move_to_history, unattempted
from mainspring.stores.postgres.history.days import not_before
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.rows.text import clean
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "endings")
_WORK = load_queries("postgres", "work")
_encode = msgspec.json.Encoder().encode

CAREFUL = 20
"""After a batch of mostly special runs, this many batches take the long path directly."""
Pending = tuple[str, str, Duration, int, int]
"""Id, reason, delay, attempts and losses to add."""


class Held(NamedTuple):
    """A running run, locked, as far as its end concerns."""

    id: str
    token: int
    namespace: str
    task: str
    worker: str
    cancel_requested_at: Instant | None
    cancel_reason: str
    job_id: str | None
    job: str | None
    fire_at: Instant | None
    region: str
    idx: int
    dependants: bool
    lines: int
    gates: Sequence[str] | None
    attempt: int
    losses: int
    options: str
    started_at: Instant | None

    @property
    def matters(self) -> bool:
        """Whether its end affects anything else: gates, lines, dependants, the ledger."""
        return bool(self.job_id or self.dependants or self.lines or self.gates)

    @property
    def cancel(self) -> str | None:
        """The reason of a request to cancel, if there is one."""
        return None if self.cancel_requested_at is None else self.cancel_reason or "cancelled"


class Reports:
    """The reporting half of `store.WorkStore`."""

    _db: Database

    _careful = 0
    """For this many further batches the short path is not tried: most runs of the last one had dependants or gates."""

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
        return await self._db.write(lambda tx: hand_back(tx, list(dict.fromkeys(claims)))) if claims else 0

    async def amend(self, amendments: Sequence[Amendment]) -> int:
        return await self._db.write(lambda tx: _amend(tx, amendments)) if amendments else 0


async def load_held(tx: Transaction, run_ids: Sequence[str]) -> dict[str, Held]:
    """Those of the runs that are running, locked in order of id. Those that stand in lines come after the others,
    because the locks of their lines have to be taken first."""
    rows = await tx.fetch(_Q["lock_running"], run_ids)
    held = {row[0]: Held(*row) for row in rows}
    rest = [run_id for run_id in run_ids if run_id not in held]
    if rest and await lock_lines_of(tx, rest):
        held.update({row[0]: Held(*row) for row in await tx.fetch(_Q["lock_running_in_lines"], rest)})
    return held


def _plain_row(report: Report, now: Instant) -> tuple[object, ...]:
    return (
        *(report.run_id, report.state, attempt_outcome(report.state, report.outcome), clean(report.reason)),
        *(report.started_at, report.finished_at or now, clean(report.result), clean(report.error)),
    )


async def _report(tx: Transaction, reports: Sequence[Report]) -> list[Verdict]:
    held = await load_held(tx, [report.run_id for report in reports])
    endings = Endings(tx)
    accepted: set[int] = set()
    claims: set[tuple[str, int]] = set()
    for number, report in enumerate(reports):
        run, claim = held.get(report.run_id), (report.run_id, report.token)
        if run is None or run.token != report.token or claim in claims:
            continue
        accepted.add(number)
        claims.add(claim)
        endings.add(run, settle(Next(report.state, report.reason, report.delay), run.cancel), report)
    known = claims if len(accepted) == len(reports) else claims | await _reported(tx, reports, accepted)
    await endings.apply()
    verdicts: list[Verdict] = ["repeated" if (each.run_id, each.token) in known else "stale" for each in reports]
    for number in accepted:
        verdicts[number] = "accepted"
    return verdicts


async def _reported(tx: Transaction, reports: Sequence[Report], accepted: set[int]) -> set[tuple[str, int]]:
    """Which of the attempts that cannot be accepted were reported before."""
    ids = list({report.run_id for number, report in enumerate(reports) if number not in accepted})
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

    def add(self, run: Held, verdict: Next, report: Report, *, losses: int = 0) -> None:
        """The attempt ended as `report` says, and the run goes where `verdict` says."""
        tx, state = self._tx, verdict.state
        reason, result, error = clean(verdict.reason), clean(report.result), clean(report.error)
        started_at, finished_at = report.started_at or run.started_at, report.finished_at or tx.now
        outcome = attempt_outcome(state, report.outcome)
        if state == PENDING:
            attempt = (run.attempt + 1, run.token, run.worker, outcome, started_at, finished_at, reason, error)
            self._attempts.append((run.id, *attempt))
            self._pending.append((run.id, reason, verdict.delay, 1, losses))
            if run.gates:
                self._freed.append((run.namespace, run.gates, True))
            kind = "run.lost" if losses else "run.retrying"
        else:
            self._finished.append((run.id, state, outcome, reason, started_at, finished_at, result, error, 1, losses))
            if run.matters:
                self._ended.append(_ended(run, state, reason))
            kind = "run." + state
        duration = None if started_at is None else finished_at - started_at
        tx.events.append(
            Event(kind, tx.now, run.namespace, run.id, run.job_id, run.job, run.task, run.worker, run.fire_at,
                  run.attempt + 1, reason, duration)
        )  # fmt: skip

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


def _ended(run: Held, state: State, reason: str) -> Ended:
    return Ended(run.id, run.namespace, state, reason, run.job_id, run.fire_at, run.region, run.idx, run.dependants,
                 run.lines, run.gates, True, run.options)  # fmt: skip


async def hand_back(tx: Transaction, claims: Sequence[tuple[str, int]]) -> int:
    """Give claims back, those that still hold; how many."""
    held = await load_held(tx, [run_id for run_id, _ in claims])
    runs = [held[run_id] for run_id, token in claims if run_id in held and held[run_id].token == token]
    cancelled = [run for run in runs if run.cancel is not None]
    returned = [run for run in runs if run.cancel is None]
    if cancelled:
        await move_to_history(tx, [unattempted(tx, run.id, Next(CANCELLED, run.cancel or "")) for run in cancelled])
    if returned:
        await back_to_pending(tx, [(run.id, f"handed back by {run.worker}", 0, 0, 0) for run in returned])
        await leave_gates(tx, [(run.namespace, run.gates, True) for run in returned if run.gates])
    for run in runs:
        kind = "run.handed_back" if run.cancel is None else "run.cancelled"
        tx.events.append(Event(kind, tx.now, run.namespace, run.id, run.job_id, run.job, run.task, run.worker))
    await follow(tx, [_ended(run, CANCELLED, run.cancel or "") for run in cancelled])
    return len(runs)


async def _amend(tx: Transaction, amendments: Sequence[Amendment]) -> int:
    wanted = {(each.run_id, each.token): each for each in amendments}
    held = await load_held(tx, [run_id for run_id, _ in wanted])
    count = await hand_back(tx, list(wanted))
    kept = [
        each
        for each in wanted.values()
        if each.run_id in held and held[each.run_id].token == each.token and held[each.run_id].cancel is None
    ]
    if kept:
        await need_gates(tx, [(held[each.run_id].namespace, each.gate) for each in kept if each.gate is not None])
        rows = [
            (each.run_id, clean(each.reason), each.options, each.priority, each.gate and each.gate.name, each.delay)
            for each in kept
        ]
        await tx.run(_WORK["amend"], *zip(*rows, strict=True), tx.given)
    return count
