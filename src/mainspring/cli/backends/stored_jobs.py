"""Jobs behind a database, as commands see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar, Unpack

import msgspec

from mainspring.cli.runs.arguments import encode_args
from mainspring.core.instants import from_datetime
from mainspring.core.model import Job, RunOptions
from mainspring.core.planning.firing_limits import check_firings
from mainspring.core.runs.retry import Retry, RetryPolicy
from mainspring.core.schedules.triggers import Trigger
from mainspring.core.tasks.specs import check_spec
from mainspring.operations import records
from mainspring.operations.backfill import survey
from mainspring.operations.explain import explain_job, last_firings, last_run, note_jobs, select_jobs
from mainspring.operations.forecast import forecast, forecast_view
from mainspring.operations.options import JobWords, read_policy, read_words
from mainspring.operations.views import View, firing_view, job_view, progress_view
from mainspring.sdk.app import Mainspring

T = TypeVar("T")
Words = dict[str, Any]

_EMPTY: Words = {"tags": (), "calendars": ()}
"""What is left of options that are taken away; None of all others."""
_OWN = ("queue", "priority", "key", "limit")
_PAGE = 1_000


def shown(view: View, shape: type[T]) -> T:
    """What is shown to programs, typed."""
    return msgspec.json.decode(msgspec.json.encode(view), type=shape)


class StoredJobs:
    """Fulfils `scheduler.Jobs`."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def _get(self, job: str) -> Job:
        return await (await self._app.open()).get_job(self._app.settings.namespace, job)

    async def list(
        self, *, app: str | None = None, tag: str | None = None, last: bool = False
    ) -> AsyncGenerator[records.ListedJob, None]:
        """See `scheduler.Jobs`."""
        jobs = await select_jobs(self._app, app, tag)
        ledgers = await last_firings(self._app, jobs) if last else {}
        for job in jobs:
            newest = ledgers.get(job.id)
            more = {"last": None if newest is None else firing_view(newest)} if last else {}
            yield shown({**job_view(job), **more}, records.ListedJob)

    async def get(self, job: str) -> records.JobStory:
        """See `scheduler.Jobs`."""
        found = await self._get(job)
        progress = progress_view(await last_run(self._app, found))
        return shown({**job_view(found), **progress, "why": await explain_job(self._app, found)}, records.JobStory)

    async def next(self, job: str, count: int = 10, zone: str | None = None) -> Sequence[records.FireTime]:
        """See `scheduler.Jobs`."""
        found, store = await self._get(job), await self._app.open()
        seen = forecast(found, await store.list_calendars(found.namespace), store.now(), count, zone)
        return [shown(view, records.FireTime) for view in forecast_view(seen)]

    async def firings(self, job: str, limit: int | None = None) -> AsyncGenerator[records.Firing, None]:
        """See `scheduler.Jobs`."""
        found, store = await self._get(job), await self._app.open()
        for firing in await store.list_firings(found.id, limit=_PAGE if limit is None else limit):
            yield shown(firing_view(firing), records.Firing)

    async def create(
        self,
        name: str,
        trigger: Trigger,
        *,
        task: str,
        args: Mapping[str, object] | None = None,
        **words: Unpack[JobWords],
    ) -> records.Job:
        """See `scheduler.Jobs`."""
        return shown(job_view(await self._app.add_job(name, trigger, task=task, args=args, **words)), records.Job)

    async def edit(
        self,
        job: str,
        *,
        trigger: Trigger | None = None,
        task: str | None = None,
        args: Mapping[str, object] | None = None,
        retries: int | None = None,
        retry_policy: RetryPolicy | None = None,
        clear: Collection[str] = (),
        version: int | None = None,
        **words: Unpack[JobWords],
    ) -> records.Job:
        """See `scheduler.Jobs`."""
        store, stored = await self._app.open(), await self._get(job)
        values = {**read_words(words, JobWords, "a job"), **{name: _EMPTY.get(name) for name in clear}}
        if retries is not None or retry_policy is not None:
            values["retry"] = _with_retries(stored.options.retry, retries, retry_policy)
        wanted = _with_values(stored, values)
        if trigger is not None:
            wanted = msgspec.structs.replace(wanted, trigger=trigger)
        if args is not None or task not in (None, stored.task):
            check_spec(task or stored.task, args or {})
            text = encode_args(args or {}, self._app.settings.payload_limit)
            wanted = msgspec.structs.replace(wanted, task=task or stored.task, args=text)
        check_firings(wanted, self._app.settings.firing_rate_of(wanted.namespace))
        edited = await store.edit_job(wanted, stored.version if version is None else version)
        return shown(job_view(edited), records.Job)

    async def pause(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """See `scheduler.Jobs`. All or none."""
        return [shown(job_view(job), records.Job) for job in await self._app.pause(*jobs, reason=reason)]

    async def resume(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """See `scheduler.Jobs`. All or none."""
        resumed = await self._app.resume(*jobs)
        await note_jobs(await self._app.open(), resumed, reason)
        return [shown(job_view(job), records.Job) for job in resumed]

    async def remove(self, job: str, *, reason: str = "") -> None:
        """See `scheduler.Jobs`."""
        store, stored = await self._app.open(), await self._get(job)
        await store.remove_job(stored.namespace, stored.name)
        await note_jobs(store, [stored], reason)

    async def trigger(self, job: str, request_id: str | None = None) -> records.Firing:
        """See `scheduler.Jobs`."""
        return shown(firing_view(await self._app.trigger(job, request_id)), records.Firing)

    async def backfill(
        self, job: str, since: datetime, until: datetime, *, limit: int = 100, dry_run: bool = False, reason: str = ""
    ) -> records.Backfill:
        """See `scheduler.Jobs`."""
        store, stored = await self._app.open(), await self._get(job)
        remembered = self._app.settings.keep_firings
        found = await survey(store, stored, from_datetime(since), from_datetime(until), limit, remembered)
        made = found.lacking()
        if made and not dry_run:
            made = frozenset(await store.backfill(stored, found.wanted()))
            await note_jobs(store, [stored], reason)
        return shown(found.view(made, dry_run=dry_run), records.Backfill)

    async def sync(self, app: Mainspring) -> records.Synced:
        """See `scheduler.Jobs`."""
        return shown(msgspec.structs.asdict(await app.sync_jobs()), records.Synced)


def _with_values(job: Job, values: Words) -> Job:
    policy = read_policy(msgspec.structs.asdict(job.policy) | values)
    options = {name: values[name] for name in RunOptions.__struct_fields__ if name in values}
    own = {name: values[name] for name in _OWN if name in values}
    if job.options.said is not None:
        options["said"] = tuple(sorted({*job.options.said, *values}))
    return msgspec.structs.replace(job, policy=policy, options=msgspec.structs.replace(job.options, **options), **own)


def _with_retries(retry: Retry, retries: int | None, policy: RetryPolicy | None) -> Retry:
    """Only the number changes, or only how long to wait: after which errors, and how far waits are spread, stays."""
    anew = msgspec.to_builtins(Retry(retry.retries if retries is None else retries, policy=policy))
    changed = ("retries", "delays", "factor", "cap") if policy is not None else ("retries",)
    return msgspec.convert({**msgspec.to_builtins(retry), **{name: anew[name] for name in changed}}, Retry)
