"""Writing firings: rows of the ledger, and the runs of those that run; few statements for many jobs.

The writer of a job's firings locks its row: no other transaction judges its overlap meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from mainspring.core.instants import Instant, format_instant
from mainspring.core.model import Job, NewRun
from mainspring.core.planning.plans import PlannedFiring, Refuse, Replace, admit
from mainspring.core.states import RUNNING
from mainspring.stores.postgres.ends.endings import cancel_run
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.postgres.submissions.intake import insert_runs
from mainspring.stores.rows.job_rows import firing_event
from mainspring.stores.rows.planned import Entry, Recorded
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "firings")

_Key = tuple[str, Instant, str, int]
"""What makes a row of the ledger: job, instant, region, index."""
_Place = tuple[str, str]
"""A job in a region: there overlap is judged."""
_Verdicts = dict[_Place, Refuse | Replace]


async def record(tx: Transaction, entries: Sequence[Entry]) -> list[Recorded]:
    """Write firings, and insert the runs of those that run. An instant that the ledger has already is left as it is,
    and has no second run."""
    found = [Recorded(0, 0)] * len(entries)
    waiting = list(enumerate(entries))
    while waiting:
        # A firing whose overlap is judged has to wait until the one before it is written.
        heads = [(n, entry._replace(firings=_first(entry))) for n, entry in waiting]
        for (n, _), each in zip(heads, await _record_round(tx, [entry for _, entry in heads]), strict=True):
            found[n] = Recorded(found[n].instants + each.instants, found[n].runs + each.runs)
        waiting = [(n, entry._replace(firings=entry.firings[len(_first(entry)) :])) for n, entry in waiting]
        waiting = [(n, entry) for n, entry in waiting if entry.firings]
    return found


def _first(entry: Entry) -> Sequence[PlannedFiring]:
    """As many of the firings as may be written together."""
    if _may_overlap(entry.job):
        return entry.firings
    fired = [n for n, firing in enumerate(entry.firings) if firing.outcome == "fired"]
    return entry.firings[: fired[1]] if len(fired) > 1 else entry.firings


def _may_overlap(job: Job) -> bool:
    return job.policy.overlap in ("allow", "queue")


class _Rows:
    """Rows of the ledger that are about to be written."""

    def __init__(self, now: Instant) -> None:
        self._now = now
        self._rows: list[tuple[object, ...]] = []

    def add_idle(self, entry: Entry, firing: PlannedFiring) -> None:
        """An instant without runs."""
        key = (entry.job.id, firing.fire_at, entry.job.policy.regions[0], 0)
        end = (firing.outcome, firing.reason, None, None, firing.last_at, firing.count, self._now, self._now)
        self._rows.append((*key, entry.kind, *end))

    def add_run(self, entry: Entry, run: NewRun, refusal: Refuse | None) -> None:
        """One region and index of an instant that runs, or is refused."""
        end: tuple[object, ...]
        if refusal is None:
            end = ("fired", "", run.id, entry.request_id, None, 1, self._now, None)
        else:
            end = ("skipped", refusal.reason, None, entry.request_id, None, 1, self._now, self._now)
        self._rows.append((*_key(run), entry.kind, *end))

    async def write(self, tx: Transaction) -> set[_Key]:
        """Insert them; those that are new to the ledger."""
        if not self._rows:
            return set()
        columns = [list(column) for column in zip(*self._rows, strict=True)]
        return {tuple(row) for row in await tx.fetch(_Q["record"], *columns)}


def _key(run: NewRun) -> _Key:
    return (run.job_id or "", run.fire_at or 0, run.region, run.idx)


async def _record_round(tx: Transaction, entries: Sequence[Entry]) -> list[Recorded]:
    verdicts = await _judge_overlap(tx, entries)
    rows = _Rows(tx.now)
    for entry in entries:
        for firing in entry.firings:
            if firing.outcome != "fired":
                rows.add_idle(entry, firing)
            for run in firing.runs if firing.outcome == "fired" else ():
                verdict = verdicts.get((entry.job.id, run.region))
                rows.add_run(entry, run, verdict if isinstance(verdict, Refuse) else None)
    fresh = await rows.write(tx)
    found: list[Recorded] = []
    runs: list[NewRun] = []
    for entry in entries:
        _report_idle(tx, entry, fresh)
        instants, before = 0, len(runs)
        for firing in entry.firings:
            if firing.outcome == "fired":
                written = [run for run in firing.runs if _key(run) in fresh]
                instants += bool(written)
                runs += await _admit(tx, entry.job, firing, written, verdicts)
        found.append(Recorded(instants, len(runs) - before))
    if runs:
        await insert_runs(tx, runs)
    return found


async def _judge_overlap(tx: Transaction, entries: Sequence[Entry]) -> _Verdicts:
    """The jobs and regions with unfinished runs, which overlap with new firings."""
    judged = [entry.job for entry in entries if not _may_overlap(entry.job)]
    if not judged:
        return {}
    unfinished: dict[_Place, list[str]] = defaultdict(list)
    for job_id, region, run_id in await tx.fetch(_Q["unfinished"], [job.id for job in judged]):
        unfinished[job_id, region].append(run_id)
    verdicts = {
        (job.id, region): admit(job, unfinished[job.id, region])
        for job in judged
        for region in job.policy.regions
        if (job.id, region) in unfinished
    }
    return {place: verdict for place, verdict in verdicts.items() if isinstance(verdict, Refuse | Replace)}


async def _admit(
    tx: Transaction,
    job: Job,
    firing: PlannedFiring,
    written: Sequence[NewRun],
    verdicts: _Verdicts,
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
                runs += await _replace(tx, run_ids, group)
            case None:
                runs += group
    if runs:
        tx.events.append(firing_event(tx.now, "fired", job, firing.fire_at, "", len(runs)))
    return runs


async def _replace(tx: Transaction, run_ids: Sequence[str], runs: Sequence[NewRun]) -> list[NewRun]:
    """Cancel what has not ended; what is running has to end before its replacement may start."""
    reason = f"overlap=replace: replaced by the firing of {format_instant(runs[0].fire_at or 0)}"
    states = {run_id: await cancel_run(tx, run_id, reason) for run_id in run_ids}
    running = tuple(run_id for run_id, state in states.items() if state == RUNNING)
    return [msgspec.structs.replace(run, after=running, on_failure="run") for run in runs]


def _report_idle(tx: Transaction, entry: Entry, fresh: set[_Key]) -> None:
    region = entry.job.policy.regions[0]
    idle = [firing for firing in entry.firings if firing.outcome != "fired"]
    if any((entry.job.id, firing.fire_at, region, 0) in fresh for firing in idle):
        first = idle[0]
        # 0 stands for uncounted, as in the ledger.
        count = 0 if any(firing.count == 0 for firing in idle) else sum(firing.count for firing in idle)
        tx.events.append(firing_event(tx.now, first.outcome, entry.job, first.fire_at, first.reason, count))
