"""The state in which a world ends, read from the store into the history: jobs, the ledger, runs, attempts."""

from __future__ import annotations

from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import EARLIEST, LATEST
from mainspring.core.model import Job
from mainspring.core.runs.regions import home_of
from mainspring.core.runs.tallies import OUTCOMES, Tally
from mainspring.core.states import FINAL
from mainspring.services.chores.tally_keeper import TallyKeeper
from mainspring.store import RunFilter, Store
from mainspring.testing.simulation.load.workload import NAMESPACE
from mainspring.testing.simulation.ports.scribe import Scribe, as_json

_ALL = 1_000_000
_OF_RUNS = [outcome for outcome in OUTCOMES if outcome in FINAL]


async def record_end(store: Store, scribe: Scribe, clock: Clock) -> None:
    """Write all of it down."""
    for job in await store.list_jobs(NAMESPACE, limit=_ALL):
        scribe.write("job", "end", clock, job_id=job.id, job=job.name, data=as_json(job))
        await _record_firings(store, scribe, clock, job)
    for run in reversed(await store.list_runs(RunFilter(NAMESPACE, limit=_ALL))):
        scribe.write(
            "run", "end", clock, run=run.id, state=run.state, job_id=run.job_id, fire_at=run.fire_at,
            region=home_of(run.region, run.options), idx=run.idx, data=as_json(run),
        )  # fmt: skip
        for attempt in await store.list_attempts(run.id):
            scribe.write(
                "attempt", "end", clock, run=run.id, attempt=attempt.attempt, token=attempt.token,
                worker=attempt.worker, state=attempt.outcome, data=as_json(attempt),
            )  # fmt: skip


async def record_tallies(store: Store, scribe: Scribe, clock: Clock) -> None:
    """Count the events that are left, all of which are numbered, and write down what the tallies say."""
    keeper = TallyKeeper(store, lambda: True, clock, Random(0))
    before = -1
    while (counted := await store.tallied() or 0) != before:
        before = counted
        await keeper.finish()
    total = Tally({}, {}, {})
    for _, tally in await store.list_tallies(NAMESPACE, "all", EARLIEST, LATEST, limit=_ALL):
        total.add(tally)
    for outcome in OUTCOMES:
        scribe.write("tally", "end", clock, name=outcome, count=total.outcomes.get(outcome, 0))
    queues = {run.queue: Tally({}, {}, {}) for run in await store.list_runs(RunFilter(NAMESPACE, limit=_ALL))}
    for key, tally in await store.list_tallies(NAMESPACE, "queue", EARLIEST, LATEST, limit=_ALL):
        queues.setdefault(key.name, Tally({}, {}, {})).add(tally)
    for queue, tally in sorted(queues.items()):
        scribe.write("tally", "end", clock, key=queue, name="accepted", count=tally.accepted)
        for outcome in _OF_RUNS:
            scribe.write("tally", "end", clock, key=queue, name=outcome, count=tally.outcomes.get(outcome, 0))


async def _record_firings(store: Store, scribe: Scribe, clock: Clock, job: Job) -> None:
    for firing in reversed(await store.list_firings(job.id, limit=_ALL)):
        scribe.write(
            "firing", "end", clock, job_id=job.id, fire_at=firing.fire_at, region=firing.region, idx=firing.idx,
            kind=firing.kind, state=firing.outcome, run=firing.run_id, last_at=firing.last_at, count=firing.count,
            reason=firing.reason,
        )  # fmt: skip
