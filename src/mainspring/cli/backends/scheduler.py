"""What commands ask of a scheduler, be it behind a database (`stored_jobs`, `stored_runs`) or behind a server
(`mainspring.Client`). Answers are what the API shows, so that a command looks the same against both."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, Unpack

from mainspring.core.instants import Instant
from mainspring.core.runs.retry import Length, RetryPolicy
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import Trigger
from mainspring.core.states import State
from mainspring.operations import records
from mainspring.operations.options import JobWords, RunWords
from mainspring.sdk.app import Mainspring


class Jobs(Protocol):
    """Jobs, by name or id: NotFound if there is none."""

    def list(
        self, *, app: str | None = None, tag: str | None = None, last: bool = False
    ) -> AsyncGenerator[records.ListedJob, None]:
        """In order of name; with `last`, each with the newest row of its ledger."""

    async def get(self, job: str) -> records.JobStory:
        """A job, and what keeps it from firing."""

    async def next(self, job: str, count: int = 10, zone: str | None = None) -> Sequence[records.FireTime]:
        """When it will fire."""

    def firings(self, job: str, limit: int | None = None) -> AsyncGenerator[records.Firing, None]:
        """Its ledger, newest first."""

    async def create(
        self,
        name: str,
        trigger: Trigger,
        *,
        task: str,
        args: Mapping[str, object] | None = None,
        **words: Unpack[JobWords],
    ) -> records.Job:
        """Store a new one. Conflict if there is one of that name."""

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
        """Change what is named. Conflict if it is no longer of that version."""

    async def pause(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """Let them rest."""

    async def resume(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """Let them go on."""

    async def remove(self, job: str, *, reason: str = "") -> None:
        """Forget it. Conflict if another job fires after it."""

    async def trigger(self, job: str, request_id: str | None = None) -> records.Firing:
        """Fire it now."""

    async def backfill(
        self, job: str, since: datetime, until: datetime, *, limit: int = 100, dry_run: bool = False, reason: str = ""
    ) -> records.Backfill:
        """Fire the instants of a past interval that never ran, at most `limit`; `next` tells where to go on."""

    async def sync(self, app: Mainspring) -> records.Synced:
        """Store what an app declares: all or nothing."""


class Runs(Protocol):
    """Runs, by id: NotFound if there is none."""

    async def submit(
        self, task: str, args: Mapping[str, object] | None = None, **words: Unpack[RunWords]
    ) -> records.Run:
        """Submit one."""

    async def get(self, run_id: str) -> records.RunStory:
        """A run, and what keeps it from running."""

    async def find(self, part: str, limit: int = 2) -> Sequence[records.Run]:
        """Those whose ids begin or end with a text."""

    def list(
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
        """Newest first; those that `worker` holds, those due or submitted `since`."""

    async def attempts(self, run_id: str) -> Sequence[records.Attempt]:
        """Those that have ended."""

    def logs(self, run_id: str, *, follow: bool = False, tail: int | None = None) -> AsyncGenerator[records.Line, None]:
        """What it wrote; with `follow`, until it has ended."""

    async def poll(self, run_id: str, timeout: Length) -> records.Run:
        """The run once it has ended, or as it is after the timeout."""

    async def cancel(self, run_id: str, reason: str = "") -> State:
        """Cancel it, or ask it to stop. Conflict if it has ended."""

    async def retry(self, run_id: str, reason: str = "") -> records.Run:
        """Run it again, as a new run. Conflict if it has not ended, or has succeeded."""


class Workers(Protocol):
    """Workers."""

    async def list(self) -> list[records.Worker]:
        """All that were heard of lately."""

    async def drain(self, worker_id: str, reason: str = "") -> records.Worker:
        """Ask one that works over HTTP to stop. Conflict for one that works on the store: its process is to be told."""


class Calendars(Protocol):
    """Calendars, by name."""

    async def list(self) -> list[records.Calendar]:
        """All, in order of name."""

    async def get(self, name: str) -> records.Calendar:
        """One of them; NotFound if there is none."""

    async def save(self, calendar: Calendar) -> records.Calendar:
        """Create it, or replace it."""


class Events(Protocol):
    """What happens."""

    def follow(
        self,
        *,
        after: int | None = None,
        kinds: Sequence[str] = (),
        job: str | None = None,
        task: str | None = None,
        run: str | None = None,
    ) -> AsyncGenerator[records.Event, None]:
        """From now on, or beyond a position, without end."""


class Audit(Protocol):
    """Who changed what over the API."""

    def list(
        self, *, subject: str | None = None, target: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[records.Change, None]:
        """Newest first."""


class Scheduler(Protocol):
    """All of it."""

    @property
    def jobs(self) -> Jobs:
        """Its jobs."""

    @property
    def runs(self) -> Runs:
        """Its runs."""

    @property
    def workers(self) -> Workers:
        """Its workers."""

    @property
    def calendars(self) -> Calendars:
        """Its calendars."""

    @property
    def events(self) -> Events:
        """Its events."""

    @property
    def audit(self) -> Audit:
        """Its audit trail."""

    def now(self) -> Instant:
        """Its clock."""

    async def close(self) -> None:
        """Let go of it."""
