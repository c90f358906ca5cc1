"""Writing firings: rows of the ledger, and the runs of those that run; few statements for many jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Generic, TypeVar

import msgspec

from mainspring.core.instants import Instant, format_instant
from mainspring.core.model import Job, NewRun
from mainspring.core.planning.backfill import in_turn
from mainspring.core.planning.plans import PlannedFiring, Refuse, Replace, admit
from mainspring.core.states import RUNNING, State
from mainspring.stores.rows.job_rows import check_editable, firing_event
from mainspring.stores.rows.planned import Entry, Recorded
from mainspring.stores.rows.transaction import Transaction

Tx = TypeVar("Tx", bound=Transaction)
FiringRow = tuple[object, ...]
"""Its key (job, instant, region, index), kind, outcome, reason, run, request, last instant, count, and when it was made
and finished."""
FiringKeys = Set[tuple[object, ...]]
_Place = tuple[str, str]
"""A job in a region: there overlap is judged."""
_Verdicts = dict[_Place, Refuse | Replace]


class StoredFirings(ABC, Generic[Tx]):
    """Writes the firings of jobs that are held: no other transaction judges their overlap meanwhile."""

    _firings: Mapping[str, str]

    @abstractmethod
    async def _hold(self, tx: Tx, ids: Collection[str]) -> list[Job]:
        """These jobs as they are now: no other transaction fires or changes them until this one has ended."""

    @abstractmethod
    async def _write_firings(self, tx: Tx, rows: Sequence[FiringRow]) -> FiringKeys:
        """Insert rows of the ledger; the keys of those whose instant had none."""

    @abstractmethod
    async def _insert_runs(self, tx: Tx, runs: Sequence[NewRun]) -> None:
        """Accept runs, in this order."""

    @abstractmethod
    async def _cancel_run(self, tx: Tx, run_id: str, reason: str) -> State | None:
        """Cancel a run that has not started, or ask for the end of one that runs; None if it has ended."""

    async def _record(self, tx: Tx, entries: Sequence[Entry]) -> list[Recorded]:
        """Write firings, and insert the runs of those that run. An instant that the ledger has already is left as it
        is, and has no second run."""
        found = [Recorded(0, 0)] * len(entries)
        waiting = list(enumerate(entries))
        while waiting:
            # A firing whose overlap is judged has to wait until the one before it is written.
            heads = [(n, entry._replace(firings=_first(entry))) for n, entry in waiting]
            for (n, _), each in zip(heads, await self._record_round(tx, [entry for _, entry in heads]), strict=True):
                found[n] = Recorded(found[n].instants + each.instants, found[n].runs + each.runs)
            waiting = [(n, entry._replace(firings=entry.firings[len(_first(entry)) :])) for n, entry in waiting]
            waiting = [(n, entry) for n, entry in waiting if entry.firings]
        return found

    async def _record_round(self, tx: Tx, entries: Sequence[Entry]) -> list[Recorded]:
        verdicts = await self._judge_overlap(tx, entries)
        rows: list[FiringRow] = []
        for entry in entries:
            rows += _idle_rows(entry, tx.now)
            for run in [run for firing in entry.firings if firing.outcome == "fired" for run in firing.runs]:
                verdict = verdicts.get((entry.job.id, run.region))
                rows.append(_row(entry, run, verdict if isinstance(verdict, Refuse) else None, tx.now))
        fresh = await self._write_firings(tx, rows) if rows else set()
        found: list[Recorded] = []
        runs: list[NewRun] = []
        for entry in entries:
            _report_idle(tx, entry, fresh)
            instants, before = 0, len(runs)
            for firing in entry.firings:
                if firing.outcome == "fired":
                    written = [run for run in firing.runs if _key(run) in fresh]
                    instants += bool(written)
                    runs += await self._admit(tx, entry.job, firing, written, verdicts)
            found.append(Recorded(instants, len(runs) - before))
        if runs:
            await self._insert_runs(tx, runs)
        return found

    async def _judge_overlap(self, tx: Tx, entries: Sequence[Entry]) -> _Verdicts:
        """The jobs and regions with unfinished runs, which overlap with new firings."""
        judged = [entry.job for entry in entries if not _may_overlap(entry.job)]
        unfinished = await self._unfinished(tx, judged) if judged else {}
        verdicts = {
            (job.id, region): admit(job, unfinished[job.id, region])
            for job in judged
            for region in job.policy.regions
            if (job.id, region) in unfinished
        }
        return {place: verdict for place, verdict in verdicts.items() if isinstance(verdict, Refuse | Replace)}

    async def _unfinished(self, tx: Tx, jobs: Sequence[Job]) -> dict[_Place, list[str]]:
        """The runs of jobs that have not ended, by job and region."""
        found: dict[_Place, list[str]] = defaultdict(list)
        for job_id, region, run_id in await tx.fetch(self._firings["unfinished"], tx.list_of([job.id for job in jobs])):
            found[job_id, region].append(run_id)
        return found

    async def _admit(
        self, tx: Tx, job: Job, firing: PlannedFiring, written: Sequence[NewRun], verdicts: _Verdicts
    ) -> list[NewRun]:
        """The runs of one firing that are allowed, from those whose rows are new; and its events."""
        runs: list[NewRun] = []
        by_region: dict[str, list[NewRun]] = defaultdict(list)
        for run in written:
            by_region[run.region].append(run)
        for region, group in by_region.items():
            match verdicts.get((job.id, region)):
                case Refuse(reason):
                    tx.events.append(firing_event(tx.now, "skipped", job, firing.fire_at, reason, len(group)))
                case Replace(run_ids):
                    runs += await self._replace(tx, run_ids, group)
                case None:
                    runs += group
        if runs:
            tx.events.append(firing_event(tx.now, "fired", job, firing.fire_at, "", len(runs)))
        return runs

    async def _replace(self, tx: Tx, run_ids: Sequence[str], runs: Sequence[NewRun]) -> list[NewRun]:
        """Cancel what has not ended; what is running has to end before its replacement may start."""
        reason = f"overlap=replace: replaced by the firing of {format_instant(runs[0].fire_at or 0)}"
        states = {run_id: await self._cancel_run(tx, run_id, reason) for run_id in run_ids}
        running = tuple(run_id for run_id, state in states.items() if state == RUNNING)
        return [msgspec.structs.replace(run, after=running, on_failure="run") for run in runs]

    async def _backfill(self, tx: Tx, job: Job, firings: Sequence[PlannedFiring]) -> list[str]:
        """Fire past instants that had no run when they were due: see `store.JobStore.backfill`."""
        check_editable(next(iter(await self._hold(tx, [job.id])), None), job, job.version)
        instants = tx.list_of([firing.fire_at for firing in firings])
        await tx.run(self._firings["recede"], job.id, instants)
        await tx.run(self._firings["make_room"], job.id, instants)
        runs = [run for firing in firings for run in firing.runs]
        entry = Entry(job, firings, "backfill")
        written = await self._write_firings(tx, [_row(entry, run, None, tx.now) for run in runs]) if runs else set()
        fresh = [run for run in runs if _key(run) in written]
        counts: dict[Instant, int] = defaultdict(int)
        for run in fresh:
            counts[run.fire_at or 0] += 1
        tx.events += [firing_event(tx.now, "fired", job, instant, "", count) for instant, count in counts.items()]
        if fresh:
            unfinished = {region: ids for (_, region), ids in (await self._unfinished(tx, [job])).items()}
            await self._insert_runs(tx, in_turn(job, fresh, unfinished))
        return [run.id for run in fresh]


def _first(entry: Entry) -> Sequence[PlannedFiring]:
    """As many of the firings as may be written together."""
    if _may_overlap(entry.job):
        return entry.firings
    fired = [n for n, firing in enumerate(entry.firings) if firing.outcome == "fired"]
    return entry.firings[: fired[1]] if len(fired) > 1 else entry.firings


def _may_overlap(job: Job) -> bool:
    return job.policy.overlap in ("allow", "queue")


def _key(run: NewRun) -> FiringRow:
    return (run.job_id or "", run.fire_at or 0, run.region, run.idx)


def _idle_rows(entry: Entry, now: Instant) -> list[FiringRow]:
    """The instants without runs."""
    job, region, kind = entry.job.id, entry.job.policy.regions[0], entry.kind
    return [
        (job, it.fire_at, region, 0, kind, it.outcome, it.reason, None, None, it.last_at, it.count, now, now)
        for it in entry.firings
        if it.outcome != "fired"
    ]


def _row(entry: Entry, run: NewRun, refusal: Refuse | None, now: Instant) -> FiringRow:
    """One region and index of an instant that runs, or is refused."""
    if refusal is None:
        return (*_key(run), entry.kind, "fired", "", run.id, entry.request_id, None, 1, now, None)
    return (*_key(run), entry.kind, "skipped", refusal.reason, None, entry.request_id, None, 1, now, now)


def _report_idle(tx: Transaction, entry: Entry, fresh: FiringKeys) -> None:
    region = entry.job.policy.regions[0]
    idle = [firing for firing in entry.firings if firing.outcome != "fired"]
    if any((entry.job.id, firing.fire_at, region, 0) in fresh for firing in idle):
        first = idle[0]
        # 0 stands for uncounted, as in the ledger.
        count = 0 if any(firing.count == 0 for firing in idle) else sum(firing.count for firing in idle)
        tx.events.append(firing_event(tx.now, first.outcome, entry.job, first.fire_at, first.reason, count))
