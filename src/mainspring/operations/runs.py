"""What can be done with runs. A run is named by its id; NotFound if there is none, or if it is no longer kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Unpack

import msgspec

from mainspring.core.answers import DELAYS
from mainspring.core.ids import LENGTH, encode_bits, encode_time
from mainspring.core.instants import SECOND, format_instant, from_datetime, parse_duration, to_datetime
from mainspring.core.model import Event, KeptOptions, NewRun, Run
from mainspring.core.runs.retry import Length
from mainspring.core.runs.spending import spend_time
from mainspring.core.states import FAILED, FINAL, SUCCEEDED, UNFINISHED, State
from mainspring.errors import Conflict, InvalidInput, NotFound, RunFailed, RunGone, WaitTimeout
from mainspring.operations import records
from mainspring.operations.context import InContext
from mainspring.operations.filters import RunFilters
from mainspring.operations.jobs.options import RunWords, read_words
from mainspring.operations.paging import walk
from mainspring.operations.submission import (
    Recipe,
    accepted,
    check_one_run,
    check_repeatable,
    make_recipe,
    repeat_run,
    submit_runs,
)
from mainspring.operations.values.from_rows import (
    attempt_record,
    explained,
    line_records,
    run_fields,
    run_record,
    run_row,
    spent_records,
)
from mainspring.operations.views.explain import explain_run, find_ids
from mainspring.store import Audit, RunFilter

LINES_AT_ONCE = 1_000
RERUN_PAGE = 500
MOST_COUNTED = 10_000
MOST_SEARCHED = 10_000
"""In the ledgers of this many jobs a run that is no longer kept is looked for."""
"""Runs are counted up to this number."""


class Runs(InContext):
    """`app.runs`, and what `/v1/runs` and `mainspring run` do."""

    async def _stored(self, run_id: str) -> Run:
        return await (await self._context.open()).get_run(self._context.namespace, run_id)

    def _record(self, run: Run) -> records.Run:
        return run_record(run, self._context.read)

    async def submit(
        self, task: str, args: Mapping[str, object] | None = None, **words: Unpack[RunWords]
    ) -> records.NewRun:
        """Submit a run: durable once this returns. For the options see `RunWords`."""
        recipe = await self._recipe(task, words)
        text = self._context.encode_args(task, args or {})
        return await self.accept(recipe, text)

    async def submit_many(
        self, task: str, calls: Iterable[Mapping[str, object]], **words: Unpack[RunWords]
    ) -> Sequence[str]:
        """Submit a run for each of these arguments: all are accepted, or none. Their ids."""
        recipe = await self._recipe(task, words)
        texts = [self._context.encode_args(task, args) for args in calls]
        if len(texts) > 1:
            check_one_run(recipe.model, f"would stand for {len(texts)} runs at once", "submit them one by one")
        store = await self._context.open()
        runs = recipe.runs(self._context.new_ids(len(texts)), texts, self._context.namespace, store.now())
        return await self.accept_all(runs, recipe.connection)

    async def _recipe(self, task: str, words: RunWords) -> Recipe:
        values = read_words(words, RunWords, "a submission")
        return make_recipe(task, await self._context.defaults(task, values), values)

    async def accept(self, recipe: Recipe, args: str) -> records.NewRun:
        """Accept a new run with these arguments. The audit trail notes one run with the run itself."""
        context, store, connection = self._context, await self._context.open(), recipe.connection
        run = recipe.run(context.new_ids(1)[0], args, context.namespace, store.now())
        await context.admit("runs", 1)
        if context.actor is not None:
            run = msgspec.structs.replace(run, noted_for=context.actor.subject, request_id=context.actor.request_id)
        (run_id,) = await submit_runs(store, [run], connection)
        # Inside the caller's own transaction the run cannot be read yet; a run that waits for nothing is pending.
        waits = run.after or run.lines or run.idempotency_key is not None
        joined = msgspec.structs.replace(run, id=run_id)
        stored = await self._stored(run_id) if waits and connection is None else accepted(joined)
        return records.NewRun(**run_fields(stored, context.read))

    async def accept_all(self, runs: Sequence[NewRun], connection: Any = None) -> Sequence[str]:
        """Accept new runs, all or none. Their ids."""
        if not runs:
            return []
        context, store = self._context, await self._context.open()
        await context.admit("runs", len(runs))
        said = {"count": len(runs), "first": runs[0].id, "last": runs[-1].id}
        audit = context.audit("run.submit_batch", f"runs:{len(runs)}", None, lambda ids: said)
        return await submit_runs(store, runs, connection, audit)

    async def get(self, run_id: str) -> records.RunStory:
        """A run, and what keeps it from running. RunGone if it is no longer kept, and its firing is."""
        try:
            run = await self._stored(run_id)
        except NotFound:
            if (gone := await self._gone(run_id)) is None:
                raise
            raise gone from None
        causes = explained(await explain_run(self._context, run), run.namespace)
        store = await self._context.open()
        attempts = await store.list_attempts(run.id) if run.attempt or run.state in FINAL else []
        spent = spent_records(spend_time(run, attempts, store.now()))
        return records.RunStory(**run_fields(run, self._context.read), **causes, spent=spent)

    async def _gone(self, run_id: str) -> RunGone | None:
        """What the ledger knows of a run that is not kept."""
        store = await self._context.open()
        if len(run_id) != LENGTH:
            return None
        found = await store.firing_of_run(self._context.namespace, run_id, MOST_SEARCHED)
        if found is None:
            return None
        job, firing = found
        why = f" ({firing.reason})" if firing.reason else ""
        instant = format_instant(firing.fire_at)
        text = f"run {run_id} is no longer kept: the firing of job {job} for {instant} is {firing.outcome}{why}"
        return RunGone(text, job, to_datetime(firing.fire_at), firing.outcome, firing.reason)

    async def find(self, part: str, limit: int = 2) -> Sequence[records.Run]:
        """The runs whose ids, or their short forms, begin with a text."""
        found = await find_ids(await self._context.open(), self._context.namespace, part, limit)
        return [self._record(await self._stored(run_id)) for run_id in found]

    def list(
        self, *, error: str | None = None, limit: int | None = None, **filters: Unpack[RunFilters]
    ) -> AsyncGenerator[records.Run, None]:
        """Runs, newest first: those that the filters fit (`RunFilters`), those that failed with an `error` group."""
        return walk(lambda place, size: self.page(error=error, before=place, limit=size, **filters), limit)

    async def page(
        self,
        *,
        error: str | None = None,
        rows: bool = False,
        before: str | None = None,
        limit: int = 50,
        **filters: Unpack[RunFilters],
    ) -> records.Page[records.Run]:
        """One page of runs, newest first, those before an id. As `rows` they have no payloads."""
        runs = await self.stored_page(error=error, before=before, limit=limit + 1, **filters)
        read = self._context.read
        following = runs[limit - 1].id if len(runs) > limit else None
        listed: list[records.Run] = [run_row(run, read) if rows else run_record(run, read) for run in runs[:limit]]
        return records.Page(listed, following)

    async def stored_page(
        self, *, error: str | None = None, before: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]
    ) -> Sequence[Run]:
        """The newest runs that a filter fits, as they are stored. Those of an error group are looked through in pages
        where another filter narrows them, `MOST_COUNTED` at most."""
        store, where = await self._context.open(), self._filter(filters, before, limit)
        if error is None:
            return await store.list_runs(where)
        found, place, seen = list[Run](), where.before, 0
        while len(found) < limit and seen < MOST_COUNTED:
            page = await store.runs_of_error(where.namespace, error, since=where.since, before=place, limit=limit)
            found += [run for run in page if _fits(run, where)]
            seen, place = seen + len(page), page[-1].id if page else place
            if len(page) < limit:
                break
        return found[:limit]

    async def count(self, **filters: Unpack[RunFilters]) -> records.Count:
        """How many runs `list` would give, counted up to 10,000."""
        store = await self._context.open()
        count = await store.count_matching(self._filter(filters, None, MOST_COUNTED))
        return records.Count(count, count >= MOST_COUNTED)

    def _filter(self, filters: RunFilters, before: str | None, limit: int) -> RunFilter:
        named: dict[str, Any] = dict(filters)
        since, until = named.pop("since", None), named.pop("until", None)
        first = None if since is None else encode_time(from_datetime(since, "since"))
        if until is not None:
            bound = encode_time(from_datetime(until, "until"))
            before = bound if before is None else min(before, bound)
        named["states"] = tuple(named.get("states", ()))
        return RunFilter(self._context.namespace, **named, before=before, limit=limit, since=first)

    def dead_letters(
        self, *, job: str | None = None, task: str | None = None, tag: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[records.Run, None]:
        """Runs that failed for good, newest first."""
        return self.list(states=(FAILED,), job=job, task=task, tag=tag, limit=limit)

    async def attempts(self, run_id: str) -> Sequence[records.Attempt]:
        """The attempts of a run that have ended, in order."""
        run, store = await self._stored(run_id), await self._context.open()
        return [attempt_record(each, self._context.read) for each in await store.list_attempts(run.id)]

    async def logs(
        self, run_id: str, *, follow: bool = False, tail: int | None = None, after: int = 0
    ) -> AsyncGenerator[records.Line, None]:
        """What a run wrote beyond line `after`, all attempts together. `tail` limits it to the last lines. With
        `follow`, also what it writes from now on, until it has ended."""
        kept: Sequence[records.Line] = []
        while True:
            # The state first: everything that a run wrote is stored before its end is.
            ended = (await self._stored(run_id)).state in FINAL or not follow
            page = await self.lines(run_id, after=after, limit=LINES_AT_ONCE)
            kept = [*kept, *page][-tail:] if tail else []
            for line in () if tail else page:
                yield line
            after = page[-1].number if page else after
            if len(page) == LINES_AT_ONCE:
                continue
            if ended or not await self._context.follower.more_lines(run_id, after):
                break
        for line in kept:
            yield line

    async def lines(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int = LINES_AT_ONCE
    ) -> Sequence[records.Line]:
        """One page of what a run wrote, the lines beyond a number; the last of those before a number."""
        store = await self._context.open()
        return line_records(await store.list_logs(run_id, after=after, before=before, limit=limit))

    async def poll(self, run_id: str, timeout: Length) -> records.Run:
        """The run once it has ended, or as it is after the timeout."""
        seconds = parse_duration(timeout, "timeout") / SECOND
        run = await self._stored(run_id)
        if run.state not in FINAL and seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    run = await self._context.host.waiting.until_ended(run_id)
            except TimeoutError:
                run = await self._stored(run_id)
        return self._record(run)

    async def wait(self, run_id: str, timeout: Length | None = None) -> records.Run:
        """The run once it has ended; WaitTimeout if that takes longer. The run itself goes on."""
        if timeout is None:
            await self._stored(run_id)
            return self._record(await self._context.host.waiting.until_ended(run_id))
        run = await self.poll(run_id, timeout)
        if run.state not in FINAL:
            raise still_running(run, timeout)
        return run

    async def result(self, run_id: str, timeout: Length | None = None) -> Any:
        """What the run returned; RunFailed if it ended otherwise, WaitTimeout if it has not ended in time."""
        return result_of(await self.wait(run_id, timeout))

    async def cancel(self, run_id: str, reason: str = "") -> State:
        """Cancel a run that waits, or ask a running one to stop; the state it is then in. Conflict if it has ended."""
        context, store = self._context, await self._context.open()
        run = await self._stored(run_id)
        why = reason or f"cancelled by {context.subject or context.by}"
        audit: Audit[State] | None = context.audit(
            "run.cancel", f"run:{run.id}", {"state": run.state}, lambda state: {"state": state, "reason": why}
        )
        return await store.request_cancel(context.namespace, run.id, why, audit=audit)

    async def cancel_all(
        self, *, job: str | None = None, task: str | None = None, tag: str | None = None, reason: str = ""
    ) -> int:
        """Cancel all unfinished runs of a job, a task or a tag, the newest first: what waits for others does not start
        meanwhile. How many were cancelled, or asked to stop."""
        if job is None and task is None and tag is None:
            raise InvalidInput("tag", tag, "selects every run", "name a job, a task or a tag")
        cancelled, unfinished = 0, tuple(sorted(UNFINISHED))
        async for run in self.list(states=unfinished, job=job, task=task, tag=tag):
            with suppress(Conflict, NotFound):  # It has ended meanwhile.
                await self.cancel(run.run_id, reason)
                cancelled += 1
        return cancelled

    async def retry(self, run_id: str, reason: str = "") -> records.Run:
        """Try once more what has ended without success: a new run of the same work. Conflict otherwise."""
        context, store = self._context, await self._context.open()
        old = await self._stored(run_id)
        check_repeatable(old)
        await context.admit("runs", 1)
        (new_id,) = context.new_ids(1)
        again = await self.repeat(old, new_id)
        audit: Audit[list[str]] | None = context.audit(
            "run.retry", f"run:{old.id}", {"state": old.state}, lambda ids: {"retried_as": new_id}
        )
        await store.submit([again], audit=audit)
        if reason:
            event = Event("run.noted", store.now(), old.namespace, new_id, old.job_id, old.job, old.task, reason=reason)
            await store.record_events([event])
        return self._record(await self._stored(new_id))

    async def repeat(self, old: Run, new_id: str) -> NewRun:
        """A new run of the same work, not yet submitted."""
        usual = await self._context.defaults(old.task, ())
        return await repeat_run(await self._context.open(), old, new_id, usual, self._context.subject)

    async def rerun(
        self,
        *,
        run_ids: Collection[str] = (),
        job: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        limit: int = 1_000,
        dry_run: bool = False,
    ) -> records.Rerun:
        """Run failed runs again: these, or all of a job, a task or a tag. Each at most once, however often this is
        asked for."""
        context, store = self._context, await self._context.open()
        chosen, refused = await self._choose(run_ids)
        if job or task or tag:
            chosen = [*chosen, *await self._failed(job, task, tag, limit - len(chosen))]
        chosen = chosen[:limit]
        again = {run.id: rerun_id(run) for run in chosen}
        if chosen and not dry_run:
            await context.admit("runs", len(chosen))
            audit: Audit[list[str]] | None = context.audit("run.rerun", f"runs:{len(chosen)}", None, lambda ids: again)
            await store.submit([await self.repeat(run, again[run.id]) for run in chosen], audit=audit)
        return records.Rerun(len(again), again, refused)

    async def _choose(self, run_ids: Collection[str]) -> tuple[Sequence[Run], dict[str, str]]:
        """The runs that can be run again, and why the others cannot."""
        runs, refused = list[Run](), dict[str, str]()
        for run_id in dict.fromkeys(run_ids):
            try:
                run = await self._stored(run_id)
                check_repeatable(run)
                runs.append(run)
            except (NotFound, Conflict) as error:
                refused[run_id] = str(error)
        return runs, refused

    async def _failed(self, job: str | None, task: str | None, tag: str | None, limit: int) -> Sequence[Run]:
        store, runs = await self._context.open(), list[Run]()
        while len(runs) < limit:
            size = min(RERUN_PAGE, limit - len(runs))
            before = runs[-1].id if runs else None
            page = await store.list_runs(
                RunFilter(self._context.namespace, (FAILED,), job, task, tag, before=before, limit=size)
            )
            runs += page
            if len(page) < size:
                break
        return runs


def rerun_id(run: Run) -> str:
    """An id derived from the failed run, so that the same run cannot be run again twice."""
    number = int.from_bytes(blake2b(f"rerun\0{run.id}".encode(), digest_size=10).digest(), "big")
    return encode_time(run.finished_at or run.created_at) + encode_bits(number, 16)


def _fits(run: Run, where: RunFilter) -> bool:
    """Whether a finished run fits a filter."""
    named = ((where.job, run.job), (where.task, run.task), (where.queue, run.queue), (where.region, run.region))
    if where.worker is not None or any(wanted not in (None, value) for wanted, value in named):
        return False
    options = msgspec.json.decode(run.options, type=KeptOptions)
    if where.tag is not None and where.tag not in options.tags:
        return False
    if where.submitted_by not in (None, options.submitted_by):
        return False
    began = run.due_at if run.started_at is None else run.started_at
    if where.late is not None and began - run.due_at < DELAYS[where.late]:
        return False
    if where.took is not None and (run.finished_at or began) - began < DELAYS[where.took]:
        return False
    return where.key in (None, run.key) and (not where.states or run.state in where.states)


def still_running(run: records.Run, timeout: Length) -> WaitTimeout:
    """The error of a wait that has ended before the run."""
    return WaitTimeout(
        f"run {run.run_id} is still {run.state} after {timeout}, and goes on. "
        f"`mainspring run show {run.run_id}` says why"
    )


def result_of(run: records.Run) -> Any:
    """The result of a run that has ended; RunFailed if it did not succeed."""
    if run.state != SUCCEEDED:
        raise RunFailed(run.run_id, run.state, run.reason)
    return run.result
