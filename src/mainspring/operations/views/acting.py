"""Actions on many runs or jobs: those that are named, or all that a filter fits.

A call does at most 1,000, and takes at most two seconds: `next` in its answer says where to go on. The audit trail has
one row per call, written before the first change, so no change is without it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from mainspring.core.model import Run
from mainspring.core.states import FAILED, FINAL, STATES, State
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.operations.context import Context, InContext
from mainspring.operations.jobs.jobs import Jobs
from mainspring.operations.runs import Runs, rerun_id
from mainspring.operations.submission import check_repeatable
from mainspring.operations.views.records import ActedJobs, ActedRuns, JobAction, RunAction

MOST: Final = 1_000
"""How many runs or jobs one call acts on."""
LONGEST_S: Final = 2.0
SAMPLE: Final = 20
AT_ONCE: Final = 100
"""How many runs are submitted again in one transaction."""
_UNFINISHED: Final = tuple(state for state in STATES if state not in FINAL)


class Acting(InContext):
    """What `/v1/runs:act`, `/v1/jobs:act` and `mainspring run act` do."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._runs = Runs(context)
        self._jobs = Jobs(context)

    async def runs(
        self,
        action: RunAction,
        *,
        run_ids: Sequence[str] = (),
        states: Sequence[State] = (),
        error: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = MOST,
        before: str | None = None,
        dry_run: bool = False,
        reason: str = "",
        **named: str | None,
    ) -> ActedRuns:
        """Cancel or retry these runs, or those that a filter fits (`job`, `task`, `tag`, `queue`, `worker`, `error`).
        A failed run is retried at most once by this, however often it is asked for."""
        words: dict[str, Any] = {**named, "error": error, "since": since, "until": until}
        if not run_ids and not states and not any(words.values()):
            raise InvalidInput("run_ids", [], "is missing", "name runs, or select them by a filter")
        words["states"] = tuple(states) or (_UNFINISHED if action == "cancel" else (FAILED,))
        if run_ids:
            wanted = sorted({each for each in run_ids if before is None or each < before}, reverse=True)
            found, refused = await self._named(action, wanted[:limit])
            looked_at, more = wanted[:limit], len(wanted) > limit
        else:
            page = await self._runs.stored_page(**words, before=before, limit=limit + 1)
            looked_at, more = [run.id for run in page[:limit]], len(page) > limit
            found, refused = _actionable(action, page[:limit])
        if dry_run:
            del words["error"]  # It cannot be counted.
            count = len(looked_at) if run_ids or error else (await self._runs.count(**words)).count
            sample = {run.id: run.state for run in found[:SAMPLE]}
            return ActedRuns(action=action, dry_run=True, matched=count, done=0, runs=dict(sample), refused=refused,
                             next=None)  # fmt: skip
        await self._note(f"run.{action}_many", f"runs:{len(found)}", [run.id for run in found], reason)
        act = self._cancel if action == "cancel" else self._retry
        done, stopped = await act(found, reason, refused)
        last = stopped or (looked_at[-1] if more and looked_at else None)
        matched = len(looked_at) if stopped is None else len(done) + len(refused)
        return ActedRuns(action=action, dry_run=False, matched=matched, done=len(done), runs=done, refused=refused,
                         next=last)  # fmt: skip

    async def _named(self, action: RunAction, run_ids: Sequence[str]) -> tuple[list[Run], dict[str, str]]:
        store, found, refused = await self._context.open(), list[Run](), dict[str, str]()
        for run_id in run_ids:
            try:
                found.append(await store.get_run(self._context.namespace, run_id))
            except NotFound as error:
                refused[run_id] = str(error)
        actionable, ended = _actionable(action, found)
        return actionable, refused | ended

    async def _cancel(
        self, runs: Sequence[Run], reason: str, refused: dict[str, str]
    ) -> tuple[dict[str, str], str | None]:
        """What became of each; and the last that was reached, if time was up."""
        context, store, done = self._context, await self._context.open(), dict[str, str]()
        why, until = reason or f"cancelled by {context.subject or context.by}", time.monotonic() + LONGEST_S
        for number, run in enumerate(runs):
            try:
                done[run.id] = await store.request_cancel(context.namespace, run.id, why)
            except (NotFound, Conflict) as error:
                refused[run.id] = str(error)
            if time.monotonic() > until and number < len(runs) - 1:
                return done, run.id
        return done, None

    async def _retry(
        self, runs: Sequence[Run], reason: str, refused: dict[str, str]
    ) -> tuple[dict[str, str], str | None]:
        store, done, until = await self._context.open(), dict[str, str](), time.monotonic() + LONGEST_S
        for first in range(0, len(runs), AT_ONCE):
            some = runs[first : first + AT_ONCE]
            await self._context.admit("runs", len(some))
            again = {run.id: rerun_id(run) for run in some}
            await store.submit([await self._runs.repeat(run, again[run.id]) for run in some])
            done |= again
            if time.monotonic() > until and first + AT_ONCE < len(runs):
                return done, some[-1].id
        return done, None

    async def jobs(
        self,
        action: JobAction,
        *,
        names: Sequence[str] = (),
        limit: int = MOST,
        after: str | None = None,
        dry_run: bool = False,
        reason: str = "",
        **words: Any,
    ) -> ActedJobs:
        """Pause, resume or trigger these jobs, or those that a filter fits (`app`, `task`, `tag`, `queue`, `q`,
        `state`)."""
        if not names and not any(words.values()):
            raise InvalidInput("jobs", [], "is missing", "name jobs, or select them by a filter")
        refused: dict[str, str] = {}
        if names:
            wanted = sorted({each for each in names if after is None or each > after})
            chosen, following = wanted[:limit], wanted[limit - 1] if len(wanted) > limit else None
        else:
            page = await self._jobs.page(**words, rows=True, after=after, limit=limit)
            chosen, following = [job.name for job in page.items], page.next
        if dry_run:
            return ActedJobs(action=action, dry_run=True, matched=len(chosen), done=0, jobs=chosen, refused={},
                             next=following)  # fmt: skip
        await self._note(f"job.{action}_many", f"jobs:{len(chosen)}", chosen, reason)
        done, stopped = await self._each_job(action, chosen, reason, refused)
        return ActedJobs(action=action, dry_run=False, matched=len(done) + len(refused), done=len(done), jobs=done,
                         refused=refused, next=stopped or following)  # fmt: skip

    async def _each_job(
        self, action: JobAction, names: Sequence[str], reason: str, refused: dict[str, str]
    ) -> tuple[list[str], str | None]:
        done, until = list[str](), time.monotonic() + LONGEST_S
        for number, name in enumerate(names):
            try:
                if action == "trigger":
                    await self._jobs.trigger(name, reason=reason)
                else:
                    await (self._jobs.pause if action == "pause" else self._jobs.resume)(name, reason=reason)
                done.append(name)
            except (NotFound, Conflict) as error:
                refused[name] = str(error)
            if time.monotonic() > until and number < len(names) - 1:
                return done, name
        return done, None

    async def _note(self, action: str, target: str, which: Sequence[str], reason: str) -> None:
        audit = self._context.audit(action, target, None, lambda _: {"reason": reason, "which": list(which)})
        if audit is not None and which:
            await (await self._context.open()).note_changes(audit(None))


def _actionable(action: RunAction, runs: Sequence[Run]) -> tuple[list[Run], dict[str, str]]:
    """The runs that the action may be tried on, and why the others are refused."""
    found, refused = list[Run](), dict[str, str]()
    for run in runs:
        try:
            if action == "retry":
                check_repeatable(run)
            found.append(run)
        except Conflict as error:
            refused[run.id] = str(error)
    return found, refused
