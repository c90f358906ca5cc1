"""`app.runs`: the runs of a store, with typed handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Firing, Run
from mainspring.core.states import SUCCEEDED
from mainspring.errors import RunFailed
from mainspring.executor import current_run
from mainspring.operations import records
from mainspring.operations.context import Context
from mainspring.operations.jobs.options import RunWords, check_name
from mainspring.operations.runs import Runs
from mainspring.operations.submission import Recipe
from mainspring.operations.values.from_rows import run_record
from mainspring.sdk.handle import RunHandle
from mainspring.store import RunFilter, Store

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring
    from mainspring.sdk.task import Task

P = ParamSpec("P")
R = TypeVar("R")

MOST_ROWS = 100_000
"""The most runs of a firing: 10,000 completions, in several regions."""


class AppRuns(Runs):
    """What `operations.runs.Runs` does, for the runs of an app."""

    def __init__(self, app: Mainspring) -> None:
        super().__init__(Context(app))
        self._app = app

    @overload
    def handle(self, run_id: str, task: Task[P, R]) -> RunHandle[R]: ...
    @overload
    def handle(self, run_id: str, task: None = None) -> RunHandle[Any]: ...
    def handle(self, run_id: str, task: Task[..., Any] | None = None) -> RunHandle[Any]:
        """The handle of a run that this or another program submitted. With its task, the result has the task's type.

        Nothing is looked up: NotFound is raised when the handle is first asked for something.
        """
        decode = msgspec.json.decode if task is None else task.decode_result
        return RunHandle(self._app, check_name("run_id", run_id), decode, accepted=False)

    async def upstream(self) -> list[records.Run]:
        """In a task: the runs that the current run waited for, in the order in which its submitter named them. In the
        run of a job that follows other jobs: the runs of the firings that it follows, job by job."""
        return [run_record(run) for run in await self._upstream()]

    async def upstream_results(self, task: Task[..., Any] | None) -> list[Any]:
        """What they returned; those of one task, with its type. RunFailed if one of them did not succeed."""
        decode = msgspec.json.decode if task is None else task.decode_result
        results = []
        for run in await self._upstream():
            if task is None or run.task == task.name:
                if run.state != SUCCEEDED:
                    raise RunFailed(run.id, run.state, run.reason)
                results.append(decode("null" if run.result is None else run.result))
        return results

    async def _upstream(self) -> list[Run]:
        current, store = current_run(), await self._app.open()
        rows = [row for job_id, fire_at in current.after_firings for row in await _ledger(store, job_id, fire_at)]
        ids = [*current.after, *(row.run_id for row in rows if row.run_id is not None)]
        ended = {run.id: run for run in await store.finished(ids)} if ids else {}
        found = [ended.get(each) or await store.get_run(current.namespace, each) for each in ids]
        repeated = {row.run_id for row in rows if row.outcome == SUCCEEDED}
        return [await _repeat_of(store, run) if run.id in repeated and run.state != SUCCEEDED else run for run in found]

    async def _recipe(self, task: str, words: RunWords) -> Recipe:
        recipe = await super()._recipe(task, words)
        options = self._app.hooks.carry(recipe.model.options, task, 1)
        return msgspec.structs.replace(recipe, model=msgspec.structs.replace(recipe.model, options=options))


async def _ledger(store: Store, job_id: str, fire_at: Instant) -> list[Firing]:
    """The rows of one firing, by region and index."""
    rows = await store.list_firings(job_id, since=fire_at, before=fire_at + 1, limit=MOST_ROWS)
    return sorted(rows, key=lambda row: (row.region, row.idx))


async def _repeat_of(store: Store, run: Run) -> Run:
    """The run that succeeded in the place of one that did not: retried by hand, it is another run of its firing."""
    where = RunFilter(namespace=run.namespace, job=run.job, states=(SUCCEEDED,), limit=1_000)
    place = (run.job_id, run.fire_at, run.idx)
    repeats = [each for each in await store.list_runs(where) if (each.job_id, each.fire_at, each.idx) == place]
    return repeats[0] if repeats else run
