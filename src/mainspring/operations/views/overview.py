"""The state of a namespace in one answer: the leader, the backlog, what needs attention, what runs, what comes next.

Everything is read by an index and up to a bound, so the answer costs the same at a million runs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import get_args

import msgspec

from mainspring.core.answers import PausedQueue
from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY
from mainspring.core.load.leadership import LEASE
from mainspring.core.model import Firing, Job, Run, TermRecord
from mainspring.core.runs.why import Crowd
from mainspring.core.states import BLOCKED, FAILED, PENDING, RUNNING, SUCCEEDED, State
from mainspring.operations.context import InContext
from mainspring.operations.values.from_rows import in_namespace, job_row, moment, moment_or_none, run_row
from mainspring.operations.views import overview_records
from mainspring.operations.views.explain import look_around
from mainspring.store import Backlog, RunFilter, Store

MOST_COUNTED = 10_000
"""Each count ends here: this number stands for that many or more."""
MOST_SHOWN = 20
"""How many running runs and upcoming jobs the overview lists."""
MOST_LOOKED_AT = 200
"""How many recent failures and paused jobs are looked at for what needs attention."""
LOOKED_BACK = 10
"""How many rows of a job's ledger are looked at: more failures in a row than this are not counted."""
LATEST_TERMS = 100
"""How many of the latest terms are looked at for one that lasts."""
Missed = Sequence[tuple[str, Firing]]
_Waiting = tuple[list[Backlog], list[Run], list[PausedQueue], list[Job], list[Run], list[Job]]
OFTEN_OF_LATEST = 3
OFTEN_IN_A_DAY = 5
"""A job whose latest firing went well needs attention if this many of the latest rows of its ledger, or this many of
its runs of the last day, have failed."""
_STRENGTH = get_args(overview_records.AttentionKind)


class Overview(InContext):
    """What `/v1/overview` shows."""

    async def show(self) -> overview_records.Overview:
        """How the namespace stands now."""
        store = await self._context.open()
        # Four questions at a time: one after the other, the answer takes as long as all of them together.
        (
            (crowd, leader, is_led),
            (missed, troubled),
            counted,
            (backlog, pending, queues, paused, running, upcoming),
        ) = await asyncio.gather(
            self._leadership(store), self._trouble(store), self._counted(store), self._waiting(store)
        )
        attention = [
            *_cluster_troubles(crowd, led=is_led),
            *_unserved_queues(backlog, crowd),
            *_unknown_tasks([run for run in pending if run.due_at <= store.now()], crowd),
            *(_paused_queue(each) for each in queues),
            *troubled,
            *(_paused(job) for job in paused),
        ]
        namespace = self._context.namespace
        attention = [msgspec.structs.replace(each, remedy=in_namespace(each.remedy, namespace)) for each in attention]
        read = self._context.read
        return overview_records.Overview(
            at=moment(store.now()),
            leader=leader,
            workers=_workers(crowd),
            counts=_counts(counted, backlog, missed),
            oldest_due=moment_or_none(min((each.oldest_at for each in backlog), default=None)),
            attention=sorted(attention, key=lambda each: _STRENGTH.index(each.kind)),
            running=[run_row(run, read) for run in running],
            next=[job_row(job, read) for job in upcoming],
        )

    async def _leadership(self, store: Store) -> tuple[Crowd, overview_records.Leader | None, bool]:
        """The workers, the leader, and whether firings are planned at all."""
        crowd, leader = await look_around(self._context, self._context.namespace), await self._leader(store)
        return crowd, leader, leader is not None or await self._is_led_by_all(store)

    async def _trouble(self, store: Store) -> tuple[Missed, Sequence[overview_records.Attention]]:
        """The instants that were missed in the last day, and the jobs that are in trouble."""
        missed = await store.missed_firings(self._context.namespace, store.now() - DAY, MOST_COUNTED)
        failed = await store.list_runs(self._of_last_day(store, FAILED, MOST_LOOKED_AT))
        return missed, await self._troubled_jobs(store, missed, failed)

    async def _waiting(self, store: Store) -> _Waiting:
        """What is due, which queues and jobs are paused, what runs, and what comes next."""
        namespace = self._context.namespace
        backlog = [each for each in await store.backlog(MOST_COUNTED) if each.namespace == namespace and each.count]
        newest = RunFilter(namespace, (PENDING,), limit=MOST_LOOKED_AT)
        return (
            backlog,
            await store.list_runs(newest) if backlog else [],
            await store.paused_queues(namespace),
            await store.ordered_jobs(namespace, "paused", limit=MOST_LOOKED_AT),
            await store.list_runs(RunFilter(namespace, (RUNNING,), limit=MOST_SHOWN)),
            await store.ordered_jobs(namespace, "next", limit=MOST_SHOWN),
        )

    async def _leader(self, store: Store) -> overview_records.Leader | None:
        """The owner of the newest term that lasts. A lease in the store shows at once that it has no holder."""
        terms = [term for term in await store.terms(None, LATEST_TERMS) if _is_of_scheduler(term)]
        lasting = next((term for term in terms if term.ended_at is None), None)
        if lasting is None or (self._context.settings.lease is None and not await store.holders(LEASE)):
            return None
        return overview_records.Leader(lasting.owner, lasting.number, moment(lasting.began_at))

    async def _is_led_by_all(self, store: Store) -> bool:
        """Whether nodes plan without a leader."""
        return any(node.is_alive(store.now()) and node.coordination != "leader" for node in await store.nodes())

    async def _counted(self, store: Store) -> dict[State, int]:
        """Runs by state: those that wait, and those that succeeded or failed in the last day."""
        waiting: tuple[State, ...] = (BLOCKED, PENDING)
        ended: tuple[State, ...] = (SUCCEEDED, FAILED)
        filters = [RunFilter(self._context.namespace, (state,), limit=MOST_COUNTED) for state in waiting]
        filters += [self._of_last_day(store, state, MOST_COUNTED) for state in ended]
        return dict(zip((*waiting, *ended), await store.count_each(filters), strict=True))

    def _of_last_day(self, store: Store, state: State, limit: int) -> RunFilter:
        return RunFilter(self._context.namespace, (state,), limit=limit, since=encode_time(store.now() - DAY))

    async def _troubled_jobs(
        self, store: Store, missed: Missed, failed: Sequence[Run]
    ) -> Sequence[overview_records.Attention]:
        """The jobs whose latest firing that ended has failed or was missed, of those that had one in the last day; and
        those that fail often."""
        namespace = self._context.namespace
        names = {run.job: None for run in failed if run.job is not None} | dict.fromkeys(name for name, _ in missed)
        jobs = {job.id: job for job in await store.find_jobs(namespace, list(names)[:MOST_LOOKED_AT])} if names else {}
        ledgers: dict[str, list[Firing]] = {job_id: [] for job_id in jobs}
        for row in await store.newest_firings(list(jobs), LOOKED_BACK) if jobs else ():
            if row.outcome != "fired":
                ledgers[row.job_id].append(row)
        often = Counter(run.job for run in failed)
        found = (
            _trouble_of(jobs[job_id], rows) or _failing(jobs[job_id], rows, often[jobs[job_id].name])
            for job_id, rows in ledgers.items()
        )
        return [each for each in found if each is not None]


def _counts(counted: Mapping[State, int], backlog: Sequence[Backlog], missed: Missed) -> overview_records.RunCounts:
    due = min(sum(each.count for each in backlog), MOST_COUNTED)
    return overview_records.RunCounts(
        due=due,
        blocked=counted[BLOCKED],
        later=max(counted[PENDING] - due, 0),
        succeeded=counted[SUCCEEDED],
        failed=counted[FAILED],
        missed=min(sum(max(each.count, 1) for _, each in missed), MOST_COUNTED),
    )


def _is_of_scheduler(term: TermRecord) -> bool:
    return term.name == LEASE or term.name.startswith(f"{LEASE}:")


def _workers(crowd: Crowd) -> overview_records.Fleet:
    living = crowd.living()
    active = [each for each in living if each.state == "active"]
    return overview_records.Fleet(
        active=len(active),
        known=len(crowd.workers),
        running=sum(each.running for each in living),
        slots=sum(each.concurrency for each in active),
    )


def _cluster_troubles(crowd: Crowd, *, led: bool) -> Iterable[overview_records.Attention]:
    if not led:
        text = "No scheduler leads, so no job fires."
        remedy = "Start one with `mainspring server`, or `mainspring up`."
        yield overview_records.Attention(kind="no-leader", state="failed", name="scheduler", text=text, remedy=remedy)
    if not crowd.living():
        last = max((each.heartbeat_at for each in crowd.workers), default=None)
        remedy = "Start one with `mainspring worker APP`, or `mainspring up`."
        yield overview_records.Attention(
            kind="no-worker",
            state="failed",
            name="workers",
            text="No worker is running.",
            remedy=remedy,
            since=moment_or_none(last),
        )


def _unserved_queues(backlog: Sequence[Backlog], crowd: Crowd) -> Iterable[overview_records.Attention]:
    """Queues with due runs that no worker serves. Where no worker runs at all, that is said once."""
    living = crowd.living()
    served = {queue for each in living for queue in each.queues}
    for queue in dict.fromkeys(each.queue for each in backlog if living and each.queue not in served):
        own = [each for each in backlog if each.queue == queue]
        count = min(sum(each.count for each in own), MOST_COUNTED)
        yield overview_records.Attention(
            kind="queue-unserved",
            state="held",
            name=queue,
            text=f"{count} due runs wait in queue {queue}, and no worker serves it.",
            remedy=f"Start one with `mainspring worker APP --queue {queue}`.",
            since=moment(min(each.oldest_at for each in own)),
            queue=queue,
        )


def _unknown_tasks(due: Sequence[Run], crowd: Crowd) -> Iterable[overview_records.Attention]:
    """Tasks of which runs are due in a queue whose workers do not know them, by the newest runs that wait."""
    known: dict[str, set[str]] = {}
    for worker in crowd.living():
        for queue in worker.queues:
            known.setdefault(queue, set()).update(worker.tasks)
    waiting: dict[tuple[str, str], list[Run]] = {}
    for run in due:
        if run.queue in known and run.task not in known[run.queue]:
            waiting.setdefault((run.queue, run.task), []).append(run)
    for (queue, task), runs in waiting.items():
        count = f"{len(runs)} or more" if len(due) >= MOST_LOOKED_AT else f"{len(runs)}"
        wait = "run waits" if count == "1" else "runs wait"
        yield overview_records.Attention(
            kind="task-unknown",
            state="held",
            name=task,
            text=f"{count} due {wait} in queue {queue}, and no worker of it knows task {task}.",
            remedy=f"Start a worker with an app that has it: `mainspring worker APP --queue {queue}`.",
            since=moment(min(run.due_at for run in runs)),
            queue=queue,
        )


def _trouble_of(job: Job, ledger: Sequence[Firing]) -> overview_records.Attention | None:
    """What is wrong with a job by its ledger, newest row first: the stretch of failed or missed rows that it ends with.
    A paused job is listed as such."""
    if not ledger or ledger[0].outcome not in ("failed", "missed") or job.paused_at is not None:
        return None
    newest = ledger[0]
    stretch = list(takewhile(lambda row: row.outcome == newest.outcome, ledger))
    count = sum(max(row.count, 1) for row in stretch)
    more = " or more" if len(stretch) == LOOKED_BACK else ""
    times = "once" if count == 1 else f"{count}{more} times in a row"
    reason = f": {newest.reason}" if newest.reason else ""
    failed = newest.outcome == "failed"
    retry = f"`mainspring run retry {newest.run_id}`" if newest.run_id else f"`mainspring job trigger {job.name}`"
    return overview_records.Attention(
        kind="job-failed" if failed else "job-missed",
        state="failed" if failed else "missed",
        name=job.name,
        text=f"It {'failed' if failed else 'was missed'} {times}{reason}",
        remedy=f"Run it again with {retry}." if failed else f"Fire it with `mainspring job backfill {job.name}`.",
        since=moment(stretch[-1].fire_at),
        job=job.name,
        run_id=newest.run_id,
    )


def _failing(job: Job, ledger: Sequence[Firing], in_a_day: int) -> overview_records.Attention | None:
    """What is wrong with a job whose latest firing went well: that it fails often."""
    rows = [row for row in ledger if row.outcome == "failed"]
    if job.paused_at is not None or (len(rows) < OFTEN_OF_LATEST and in_a_day < OFTEN_IN_A_DAY):
        return None
    if len(rows) >= OFTEN_OF_LATEST:
        text = f"It failed {len(rows)} of its last {len(ledger)} times: {rows[0].reason}".rstrip(": ")
    else:
        text = f"It failed {in_a_day} times in the last 24 hours."
    return overview_records.Attention(
        kind="job-failing",
        state="failed",
        name=job.name,
        text=text,
        remedy=f"Look at its failures with `mainspring run dead-letters --job {job.name}`.",
        since=moment(rows[-1].fire_at) if rows else None,
        job=job.name,
        run_id=rows[0].run_id if rows else None,
    )


def _paused_queue(paused: PausedQueue) -> overview_records.Attention:
    why = f" ({paused.reason})" if paused.reason else ""
    return overview_records.Attention(
        kind="queue-paused",
        state="paused",
        name=paused.queue,
        text=f"Queue {paused.queue} is paused{why}: no worker takes its runs.",
        remedy=f"Resume it with `mainspring queues --resume {paused.queue}`.",
        since=moment(paused.paused_at),
        queue=paused.queue,
    )


def _paused(job: Job) -> overview_records.Attention:
    why = f" ({job.paused_why})" if job.paused_why else ""
    return overview_records.Attention(
        kind="job-paused",
        state="paused",
        name=job.name,
        text=f"It is paused{why}.",
        remedy=f"Resume it with `mainspring job resume {job.name}`.",
        since=moment_or_none(job.paused_at),
        job=job.name,
    )
