"""On whose behalf operations act, on which store, and what the program around them provides.

The SDK, the API and the command line differ in these points only. Each makes a `Context`; the operations are the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from mainspring.clock import Clock
from mainspring.core.answers import Change
from mainspring.core.model import PROVIDED_TASKS, EventBatch, Job, Origin, Run
from mainspring.core.tasks.specs import check_spec
from mainspring.errors import InvalidInput, NotFound
from mainspring.operations.jobs.announced_tasks import AnnouncedTasks
from mainspring.operations.jobs.options import Defaults, check_name
from mainspring.operations.paging import PAGE
from mainspring.operations.values.from_rows import Read, decode
from mainspring.operations.values.payload import Signature
from mainspring.settings import Settings
from mainspring.store import Audit, Store

T = TypeVar("T")

LOOK_S = 0.2
"""How often a program without its own server looks for new events and lines while it follows them."""
EVENTS_AT_ONCE = 200


class RegisteredTask(Protocol):
    """What operations need of a task that the program registers."""

    @property
    def defaults(self) -> Defaults:
        """How runs of the task are executed, unless their options say otherwise."""

    @property
    def signature(self) -> Signature:
        """The arguments that the task takes."""


class NamedTask(RegisteredTask, Protocol):
    """A task in place of its name."""

    @property
    def name(self) -> str:
        """The name of the task."""


class Waiting(Protocol):
    """One look at the store serves everything in the program that waits for the end of a run."""

    async def until_ended(self, run_id: str) -> Run:
        """Wait for the end of a run, and return it."""


class Host(Protocol):
    """The program that operations run in: `Mainspring` is one."""

    @property
    def name(self) -> str:
        """The name of the program: new jobs belong to the app of this name."""

    @property
    def job_origin(self) -> Origin:
        """The origin of jobs that the program adds."""

    @property
    def settings(self) -> Settings:
        """The settings of the program."""

    @property
    def clock(self) -> Clock:
        """The clock of the program."""

    @property
    def tasks(self) -> Mapping[str, RegisteredTask]:
        """The registered tasks by name."""

    @property
    def known_tasks(self) -> AnnouncedTasks:
        """The announcements of tasks of other programs."""

    @property
    def waiting(self) -> Waiting:
        """Waits for the ends of runs."""

    async def open(self) -> Store:
        """The store, opened on first use."""

    def new_ids(self, count: int) -> list[str]:
        """Ids for new runs and jobs, in order."""


class Actor(NamedTuple):
    """The caller of a server: the audit trail names it."""

    subject: str
    request_id: str


class Follower(Protocol):
    """Waits for more of what an operation follows."""

    def events(self, store: Store, position: int) -> AsyncIterator[EventBatch]:
        """Events from a position on, without end."""

    async def more_lines(self, run_id: str, after: int) -> bool:
        """Wait until the run may have written lines beyond a number, or may have ended. False: stop following."""


class Polling:
    """Follows by polling the store."""

    async def events(self, store: Store, position: int) -> AsyncIterator[EventBatch]:
        """See `Follower`."""
        while True:
            batches = await store.events_since(position, EVENTS_AT_ONCE)
            for batch in batches:
                yield batch
                position = batch.position + len(batch.events)
            if not batches:
                await asyncio.sleep(LOOK_S)

    async def more_lines(self, run_id: str, after: int) -> bool:
        """See `Follower`."""
        await asyncio.sleep(LOOK_S)
        return True


class Admit(Protocol):
    """Is awaited before new runs or jobs are written, and raises if they are too many."""

    def __call__(self, kind: Literal["runs", "jobs"], count: int, /) -> Awaitable[object]:
        """Admit this number of runs."""


async def _admit_all(kind: str, count: int) -> None:
    """Nothing limits a program that has the store itself."""


class Context:
    """What every operation is given."""

    __slots__ = ("_namespace", "_store", "actor", "admit", "app", "by", "follower", "host", "new_ids", "origin", "read")

    def __init__(
        self,
        host: Host,
        *,
        namespace: str | None = None,
        store: Store | None = None,
        actor: Actor | None = None,
        by: str | None = None,
        app: str | None = None,
        origin: Origin | None = None,
        new_ids: Callable[[int], list[str]] | None = None,
        admit: Admit = _admit_all,
        follower: Follower | None = None,
        read: Read = decode,
    ) -> None:
        """`by` names the program in reasons that its user does not give. `app` and `origin` are those of new jobs.
        `admit` limits how much a caller may add. `read` says what becomes of stored JSON (see `from_rows`)."""
        self.host = host
        self.actor = actor
        self.by = f"app {host.name}" if by is None else by
        self.app = app
        self.origin = origin
        self.new_ids = new_ids or host.new_ids
        self.admit = admit
        self.follower: Follower = follower or Polling()
        self.read = read
        self._namespace = namespace
        self._store = store

    @property
    def namespace(self) -> str:
        """The namespace that is acted on."""
        return self._namespace or self.host.settings.namespace

    @property
    def settings(self) -> Settings:
        """The settings of the program."""
        return self.host.settings

    @property
    def subject(self) -> str:
        """The caller, where a server knows it; empty otherwise."""
        return "" if self.actor is None else self.actor.subject

    async def open(self) -> Store:
        """The store."""
        return self._store or await self.host.open()

    def name_of(self, task: str | NamedTask) -> str:
        """The name of a task, given by name or by itself. InvalidInput if another app registers it."""
        if isinstance(task, str):
            return check_name("task", task)
        if self.host.tasks.get(task.name) is not task:
            raise InvalidInput("task", task, "belongs to another app", "use that app, or the task's name")
        return task.name

    async def defaults(self, task: str, said: Collection[str]) -> Defaults:
        """How runs of a task are executed unless their options, of which `said` are given, say otherwise: as the
        program registers it, or as workers announced it."""
        known = self.host.tasks.get(task)
        if known is not None:
            return known.defaults
        if task not in PROVIDED_TASKS:
            await self.host.known_tasks.learn(
                await self.open(), self.namespace, check_name("task", task), self.host.clock.monotonic()
            )
        return self.host.known_tasks.defaults(self.namespace, task, said)

    def encode_args(self, task: str, args: Mapping[str, object]) -> str:
        """Arguments as they are stored. InvalidInput if they do not fit a task that the program registers."""
        limit = self.settings.payload_limit
        check_spec(task, args)
        known = self.host.tasks.get(task)
        signature = Signature(task, _anything) if known is None else known.signature
        return signature.encode((), args, limit)

    def audit(
        self,
        action: str,
        target: str,
        before: object = None,
        after: Callable[[T], object] = lambda answer: None,
    ) -> Audit[T] | None:
        """The row of the audit trail for a change that a server's caller makes; None where there is no such caller."""
        return self.audit_all(lambda answer: [(action, target, before, after(answer))])

    def audit_all(self, rows: Callable[[T], Iterable[tuple[str, str, object, object]]]) -> Audit[T] | None:
        """As `audit`, for several changes: action, target, before and after of each."""
        if self.actor is None:
            return None
        subject, request_id = self.actor

        def rows_of(answer: T) -> list[Change]:
            return [
                Change(
                    namespace=self.namespace,
                    subject=subject,
                    action=action,
                    target=target,
                    before=_json(before),
                    after=_json(after),
                    request_id=request_id,
                )
                for action, target, before, after in rows(answer)
            ]

        return rows_of


class InContext:
    """Operations of one kind, such as `Jobs`."""

    def __init__(self, context: Context) -> None:
        self._context = context


async def if_found(asked: Awaitable[T]) -> T | None:
    """The answer; None in place of NotFound."""
    try:
        return await asked
    except NotFound:
        return None


async def fitting_jobs(store: Store, namespace: str, fits: Callable[[Job], bool], most: int) -> list[Job]:
    """The jobs of a namespace that fit, in order of name: about `most` of them, if there are more."""
    found, after = list[Job](), None
    while len(found) < most:
        page = await store.list_jobs(namespace, after=after, limit=PAGE)
        found += filter(fits, page)
        if len(page) < PAGE:
            break
        after = page[-1].name
    return found


def time_limit(seconds: float) -> Callable[[], bool]:
    """Whether this time is over, from now on: ends a search that calendars make long."""
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _anything(**arguments: Any) -> None:
    """Stands for the function of a task that another program registers: it takes any arguments by name."""
