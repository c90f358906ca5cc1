"""What belongs to a run or to a job: what it waits for, what waits for it, what it repeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from mainspring.core.model import Firing, Run
from mainspring.core.states import FINAL
from mainspring.operations.context import InContext, if_found
from mainspring.operations.records import ListedRun
from mainspring.operations.runs import rerun_id
from mainspring.operations.values.from_rows import moment, run_row
from mainspring.operations.views.records import JobRelations, LinePlace, RelatedJob, RunRelations
from mainspring.store import Store

MOST: Final = 200
LOOKED_BACK: Final = 5
"""How many rows of a ledger are looked at for one that has ended."""
LONGEST_CHAIN: Final = 50
"""How many retries of retries are followed in each direction."""


class Relations(InContext):
    """What `/v1/runs/ID/relations` and `/v1/jobs/ID/relations` show."""

    async def of_run(self, run_id: str) -> RunRelations:
        """What belongs to a run."""
        store = await self._context.open()
        run = await store.get_run(self._context.namespace, run_id)
        unfinished = run.state not in FINAL
        lines = await store.lines_of(run.id)
        return RunRelations(
            upstream=await self._rows(store, (await store.upstream_runs(run.id))[:MOST] if unfinished else ()),
            downstream=await self._rows(store, await store.dependants(run.id, MOST)),
            siblings=await self._rows(store, await self._siblings(store, run)),
            retries=await self._retries(store, run),
            lines=[LinePlace(each.name, each.capacity, each.length, each.head) for each in lines],
            gate=run.blocked_on,
        )

    async def _rows(self, store: Store, run_ids: Iterable[str]) -> list[ListedRun]:
        found = []
        for run_id in run_ids:
            run = await self._find(store, run_id)
            if run is not None:
                found.append(run_row(run, self._context.read))
        return found

    async def _find(self, store: Store, run_id: str) -> Run | None:
        return await if_found(store.get_run(self._context.namespace, run_id))

    async def _siblings(self, store: Store, run: Run) -> Sequence[str]:
        """The other runs of the same firing: its regions and indexes."""
        if run.job_id is None or run.fire_at is None:
            return ()
        rows = await store.list_firings(run.job_id, since=run.fire_at, before=run.fire_at + 1, limit=MOST + 1)
        return [row.run_id for row in rows if row.run_id is not None and row.run_id != run.id][:MOST]

    async def _retries(self, store: Store, run: Run) -> list[ListedRun]:
        """The runs that it repeats, oldest first, and then those that repeat it: by ids that follow from its own."""
        chain, earlier, later = list[Run](), run, run
        while earlier.retry_of is not None and len(chain) < LONGEST_CHAIN:
            found = await self._find(store, earlier.retry_of)
            if found is None:
                break
            chain.insert(0, found)
            earlier = found
        while later.state in FINAL and len(chain) < 2 * LONGEST_CHAIN:
            found = await self._find(store, rerun_id(later))
            if found is None:
                break
            chain.append(found)
            later = found
        return [run_row(each, self._context.read) for each in chain]

    async def of_job(self, job: str) -> JobRelations:
        """The jobs before and after a job."""
        store = await self._context.open()
        found = await store.get_job(self._context.namespace, job)
        before = [
            RelatedJob(edge.upstream, "after", moment(edge.latest_at), edge.latest_outcome)
            if edge.latest_at
            else RelatedJob(edge.upstream, "after")
            for edge in await store.list_edges(found.id)
        ]
        before += await self._related(store, list(found.policy.dependencies), "dependency")
        return JobRelations(
            before[:MOST], await self._related(store, await store.dependent_jobs(found.id, MOST), "after")
        )

    async def _related(
        self, store: Store, names: Sequence[str], how: Literal["after", "dependency"]
    ) -> list[RelatedJob]:
        """Jobs by name, each with its newest firing that ended."""
        known = {job.name: job.id for job in await store.find_jobs(self._context.namespace, names)} if names else {}
        latest = dict[str, Firing]()
        for row in await store.newest_firings([*known.values()], LOOKED_BACK) if known else ():
            if row.outcome != "fired":
                latest.setdefault(row.job_id, row)

        def related(name: str) -> RelatedJob:
            row = latest.get(known.get(name, ""))
            return RelatedJob(name, how) if row is None else RelatedJob(name, how, moment(row.fire_at), row.outcome)

        return [related(name) for name in names]
