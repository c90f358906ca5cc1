"""Runs and workers behind a database, as commands see them; and the whole of such a scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Unpack

from mainspring.cli.backends.stored_care import StoredAudit, StoredCalendars, StoredEvents
from mainspring.cli.backends.stored_jobs import StoredJobs, shown
from mainspring.core.ids import encode_time
from mainspring.core.instants import SECOND, Instant, from_datetime, parse_duration
from mainspring.core.model import LogLine, Run
from mainspring.core.runs.retry import Length
from mainspring.core.states import FINAL, State
from mainspring.errors import NotFound
from mainspring.operations import records
from mainspring.operations.explain import ask_to_drain, explain_run, find_ids, look_around, note_run, select_runs
from mainspring.operations.options import RunWords
from mainspring.operations.views import attempt_view, log_view, run_view, worker_view
from mainspring.sdk.app import Mainspring
from mainspring.store import RunFilter

LOOK_S = 0.2
"""How often to look at a run that is being watched."""
PAGE = 1_000


class StoredRuns:
    """Fulfils `scheduler.Runs`."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def submit(
        self, task: str, args: Mapping[str, object] | None = None, **words: Unpack[RunWords]
    ) -> records.Run:
        """See `scheduler.Runs`."""
        handle = await self._app.submit(task, args, **words)
        return _shown(await self._app.get_run(handle.id))

    async def get(self, run_id: str) -> records.RunStory:
        """See `scheduler.Runs`."""
        run = await self._app.get_run(run_id)
        return shown({**run_view(run), "why": await explain_run(self._app, run)}, records.RunStory)

    async def find(self, part: str, limit: int = 2) -> Sequence[records.Run]:
        """See `scheduler.Runs`."""
        found = await find_ids(await self._app.open(), self._app.settings.namespace, part, limit)
        return [_shown(await self._app.get_run(run_id)) for run_id in found]

    async def list(
        self,
        *,
        states: Sequence[State] = (),
        job: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        queue: str | None = None,
        worker: str | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[records.Run, None]:
        """See `scheduler.Runs`."""
        oldest = None if since is None else encode_time(from_datetime(since))
        where = RunFilter(
            self._app.settings.namespace, tuple(states), job, task, tag, queue=queue, worker=worker, since=oldest
        )
        async for run in select_runs(await self._app.open(), where, limit):
            yield _shown(run)

    async def attempts(self, run_id: str) -> Sequence[records.Attempt]:
        """See `scheduler.Runs`."""
        store = await self._app.open()
        return [shown(attempt_view(each), records.Attempt) for each in await store.list_attempts(run_id)]

    async def logs(
        self, run_id: str, *, follow: bool = False, tail: int | None = None
    ) -> AsyncGenerator[records.Line, None]:
        """See `scheduler.Runs`."""
        store, after = await self._app.open(), 0
        kept: list[tuple[int, LogLine]] = []
        while True:
            # Before the lines: what a run wrote is stored by the time that its end is.
            ended = not follow or (await self._app.get_run(run_id)).state in FINAL
            page = await store.list_logs(run_id, after=after, limit=PAGE)
            kept = [*kept, *page][-tail:] if tail else []
            for number, line in [] if tail else page:
                yield _line(number, line)
            after = page[-1][0] if page else after
            if len(page) < PAGE:
                if ended:
                    break
                await asyncio.sleep(LOOK_S)
        for number, line in kept:
            yield _line(number, line)

    async def poll(self, run_id: str, timeout: Length) -> records.Run:
        """See `scheduler.Runs`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + parse_duration(timeout, "timeout") / SECOND
        while True:
            run = await self._app.get_run(run_id)
            left = deadline - loop.time()
            if run.state in FINAL or left <= 0:
                return _shown(run)
            await asyncio.sleep(min(LOOK_S, left))

    async def cancel(self, run_id: str, reason: str = "") -> State:
        """See `scheduler.Runs`."""
        return await self._app.cancel(run_id, reason or "cancelled by hand")

    async def retry(self, run_id: str, reason: str = "") -> records.Run:
        """See `scheduler.Runs`."""
        old = await self._app.get_run(run_id)
        handle = await self._app.retry(run_id)
        await note_run(await self._app.open(), old, handle.id, reason)
        return _shown(await self._app.get_run(handle.id))


def _shown(run: Run) -> records.Run:
    return shown(run_view(run), records.Run)


def _line(number: int, line: LogLine) -> records.Line:
    return shown({"number": number, **log_view(line)}, records.Line)


class StoredWorkers:
    """Fulfils `scheduler.Workers`."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def list(self) -> list[records.Worker]:
        """See `scheduler.Workers`."""
        crowd = await look_around(self._app)
        return [shown(worker_view(each, crowd.state_of(each)), records.Worker) for each in crowd.workers]

    async def drain(self, worker_id: str, reason: str = "") -> records.Worker:
        """See `scheduler.Workers`."""
        crowd = await look_around(self._app)
        worker = next((each for each in crowd.workers if each.id == worker_id), None)
        if worker is None:
            raise NotFound(f"there is no worker {worker_id!r}")
        asked = await ask_to_drain(await self._app.open(), crowd, worker)
        return shown(worker_view(asked, asked.state), records.Worker)


class Stored:
    """Fulfils `scheduler.Scheduler` with the store of an app."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.jobs = StoredJobs(app)
        self.runs = StoredRuns(app)
        self.workers = StoredWorkers(app)
        self.calendars = StoredCalendars(app)
        self.events = StoredEvents(app)
        self.audit = StoredAudit(app)
        self._now = app.clock.now

    async def open(self) -> None:
        """Open the store."""
        self._now = (await self.app.open()).now

    def now(self) -> Instant:
        """The store's clock; until it is open, this machine's."""
        return self._now()

    async def close(self) -> None:
        """Let go of the store."""
        await self.app.close()
