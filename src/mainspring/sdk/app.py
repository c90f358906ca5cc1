"""The app, which users hold: it declares tasks and jobs, submits runs, and manages them."""

# A function that returns a coroutine is a function too, so overloads for the two always overlap.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import cached_property, reduce
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar, Unpack, overload

import msgspec

from mainspring.clock import Clock, SystemClock
from mainspring.core.instants import Instant
from mainspring.core.model import DEFAULT, PROVIDED_TASKS, Job, JobPolicy, Origin
from mainspring.core.planning.declaring import source_of
from mainspring.core.planning.firing_limits import check_firings
from mainspring.core.runs.retry import Length
from mainspring.core.schedules.calendars import Calendar, check_calendar, settled
from mainspring.core.schedules.triggers import Trigger
from mainspring.core.tasks.specs import check_spec
from mainspring.errors import Conflict, InvalidInput, MainspringError
from mainspring.operations.context import Context
from mainspring.operations.jobs.announced_tasks import AnnouncedTasks
from mainspring.operations.jobs.definitions import check_is_trigger
from mainspring.operations.jobs.jobs import Jobs
from mainspring.operations.jobs.options import (
    Defaults,
    JobWords,
    RunWords,
    TaskWords,
    Values,
    check_name,
    read_defaults,
    read_policy,
    read_words,
)
from mainspring.process.ids import IdSource
from mainspring.process.secrets import environment
from mainspring.sdk.graph import Graph, join
from mainspring.sdk.handle import RunHandle, Waiting
from mainspring.sdk.hooks import AroundHook, EndHook, Hooks, Lifespan, SubmitHook
from mainspring.sdk.leadership import LeaderHook, LeaderHooks, Leadership
from mainspring.sdk.lock import Lock, Locks
from mainspring.sdk.running import Running, run_app
from mainspring.sdk.runs import AppRuns
from mainspring.sdk.setting_words import SettingWords
from mainspring.sdk.sync import Blocking
from mainspring.sdk.task import (
    AsyncTask,
    JobDecorator,
    PlainTask,
    Task,
    TaskDecorator,
    check_per,
    make_task,
    module_name,
    place_of,
)
from mainspring.settings import FILE, Settings, load_settings
from mainspring.store import Saved, Store
from mainspring.wiring import open_store

P = ParamSpec("P")
R = TypeVar("R")
AnyLifespan = TypeVar("AnyLifespan", bound=Lifespan)
AnySubmitHook = TypeVar("AnySubmitHook", bound=SubmitHook)
AnyAroundHook = TypeVar("AnyAroundHook", bound=AroundHook)
AnyEndHook = TypeVar("AnyEndHook", bound=EndHook)
AnyLeaderHook = TypeVar("AnyLeaderHook", bound=LeaderHook)


class _Declaration(NamedTuple):
    """A job as its author declared it."""

    name: str
    task: Task[..., Any]
    trigger: Trigger
    args: Mapping[str, object]
    values: Values
    policy: JobPolicy


class Mainspring:
    """An app: its tasks, its jobs, and the store that they live in.

    Making one touches nothing outside of the process. The store is opened on first use, once, and serves every thread
    and event loop. Settings may be given by name: see `mainspring.settings`.
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        name: str = "default",
        namespace: str | None = None,
        broker: str | None = None,
        clock: Clock | None = None,
        **settings: Unpack[SettingWords],
    ) -> None:
        self.name = check_name("name", name)
        self.source = source_of(name, _calling_module())
        self.job_origin: Origin = "call"
        """The origin of jobs that are added, not declared."""
        self.clock: Clock = clock or SystemClock()
        self.tasks: dict[str, Task[..., Any]] = {}
        self.waiting = Waiting(self.open)
        self.hooks = Hooks()
        self.leader_hooks = LeaderHooks()
        self._locks = Locks(self)
        self._code = {"store": store, "namespace": namespace, "broker": broker, **settings}
        self._flags: dict[str, object] = {}
        self._settings: Settings | None = None
        self._declarations: dict[str, _Declaration] = {}
        self.calendars: dict[str, Calendar] = {}
        self.known_tasks = AnnouncedTasks()
        self._ids = IdSource(self.clock)
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._opened_in = 0
        load_settings(self._code, {}, {}, None)  # So that a wrong one is refused where it is written.

    @property
    def settings(self) -> Settings:
        """The settings of this app, read on first use: flags, environment, code, `mainspring.toml`, defaults."""
        if self._settings is None:
            self._settings = load_settings(self._code, self._flags, environment(), FILE)
        return self._settings

    def configure(self, **flags: object) -> None:
        """Override settings, as flags of a command do. Conflict once the store is open."""
        if self._store is not None:
            raise Conflict("the store of this app is open already: configure the app before it is used")
        self._flags |= flags
        self._settings = None

    def without_tasks(self, name: str) -> Mainspring:
        """Another app with the settings that the code of this one names, and none of its tasks and jobs."""
        other = Mainspring(name=name, clock=self.clock)
        other._code = self._code
        return other

    def forget(self, *names: str) -> None:
        """Delete these settings from memory, as if no source had named them: a program holds no secret that it does
        not need."""
        defaults = Settings()
        values = {name: getattr(defaults, name) for name in names}
        self._settings = msgspec.structs.replace(self.settings, **values)

    @cached_property
    def sync(self) -> Blocking:
        """The same for code that cannot await: `app.sync(encode.submit, video="v1")`. See `Blocking`."""
        return Blocking(self.close)

    @cached_property
    def jobs(self) -> Jobs:
        """The stored jobs: list, get, add, edit, pause, resume, trigger, remove, backfill, next."""
        return Jobs(Context(self))

    @cached_property
    def runs(self) -> AppRuns:
        """The stored runs: list, get, cancel, retry, wait, logs, handle."""
        return AppRuns(self)

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(
        self, function: None = None, /, *, name: str | None = None, **words: Unpack[TaskWords]
    ) -> TaskDecorator: ...
    def task(
        self, function: Callable[..., Any] | None = None, /, *, name: str | None = None, **words: Unpack[TaskWords]
    ) -> Any:
        """Register a function as a task, under its own name by default. For the options see `TaskWords`."""
        values = read_words(words, TaskWords, "@app.task")
        if function is not None:
            return self._register(function, name, values)
        return lambda function: self._register(function, name, values)

    def job(
        self,
        trigger: Trigger,
        *,
        name: str | None = None,
        args: Mapping[str, object] | None = None,
        **words: Unpack[JobWords],
    ) -> JobDecorator:
        """Declare a job: of a function, which becomes a task as well, or of a task. For the policies see `JobWords`.

        It is stored by `sync_jobs`. Its name is the task's by default; a task may have several jobs.
        """
        check_is_trigger(trigger)
        values = read_words(words, JobWords, "@app.job")
        policy = read_policy(values)

        def declare(function: Callable[..., Any]) -> Any:
            task = self._task_of_job(function, values)
            job_name = task.name if name is None else check_name("name", name)
            self._declare(_Declaration(job_name, task, trigger, dict(args or {}), values, policy))
            return task

        return declare

    def calendar(self, calendar: Calendar) -> Calendar:
        """Declare a calendar, to be stored by `sync_jobs`. Calendars that its rules name must be declared before it."""
        calendar = settled(calendar)
        check_calendar(calendar, self.calendars)
        if self.calendars.setdefault(calendar.name, calendar) != calendar:
            raise InvalidInput("name", calendar.name, "is another calendar of this app already", "choose another name")
        return calendar

    def lifespan(self, function: AnyLifespan) -> AnyLifespan:
        """Declare what a process holds while it works: an async function with one `yield`, or an async context manager.

        A worker enters it before it claims runs and leaves it after it has drained. A process of the pool enters it
        before its first run. What it yields is `app.state` in tasks and hooks.
        """
        self.hooks.set_lifespan(function)
        return function

    @property
    def state(self) -> Any:
        """What the lifespan of this process yielded; MainspringError where none is entered."""
        return self.hooks.state

    def on_submit(self, function: AnySubmitHook) -> AnySubmitHook:
        """Call a function at each submission of this program. The texts that it returns are stored with the runs:
        `current_run().context` has them in every attempt."""
        self.hooks.add_submit(function)
        return function

    def around(self, function: AnyAroundHook) -> AnyAroundHook:
        """Put every attempt of a function, in the place of the `yield`, into this one, which is given the run.

        A plain or an async generator goes around plain and async tasks alike. Tasks with `batch`, commands and HTTP
        calls are not functions of one run: no hook goes around them.
        """
        self.hooks.add_around(function)
        return function

    def on_end(self, function: AnyEndHook) -> AnyEndHook:
        """Call a plain or async function, in the worker, once the store has accepted the end of an attempt.

        Its event is `run.succeeded`, `run.failed`, `run.retrying`, `run.cancelled` or `run.skipped`. An exception of
        the function is logged, and changes nothing.
        """
        self.hooks.on_end.append(function)
        return function

    @property
    def is_leader(self) -> bool:
        """Whether the scheduler of this process leads, now. For work that only one process may do, use `leadership`: it
        has a token for the moment after this answer."""
        return self.leader_hooks.leads()

    def on_leader(self, function: AnyLeaderHook) -> AnyLeaderHook:
        """Call a plain or async function with the term when this process begins to lead."""
        self.leader_hooks.add(self.leader_hooks.on_leader, function)
        return function

    def on_follower(self, function: AnyLeaderHook) -> AnyLeaderHook:
        """Call a plain or async function with the term that ended when this process no longer leads."""
        self.leader_hooks.add(self.leader_hooks.on_follower, function)
        return function

    def declared_jobs(self, now: Instant) -> list[Job]:
        """The jobs that the code declares, as if each were made now."""
        return [self._make_job(each, now, "code") for each in self._declarations.values()]

    async def sync_jobs(self) -> Saved:
        """Make the stored calendars and jobs of this app what its code declares. Jobs that it declared before and no
        longer does are only named; those that were added otherwise are left alone."""
        store = await self.open()
        jobs = self.declared_jobs(store.now())
        for calendar in self.calendars.values():
            await store.save_calendar(self.settings.namespace, calendar)
        return await store.sync_jobs(self.name, self.settings.namespace, jobs, source=self.source)

    @overload
    async def submit(
        self, task: Task[P, R], args: Mapping[str, object] | None = None, **options: Unpack[RunWords]
    ) -> RunHandle[R]: ...
    @overload
    async def submit(
        self, task: str, args: Mapping[str, object] | None = None, **options: Unpack[RunWords]
    ) -> RunHandle[Any]: ...
    async def submit(
        self, task: Task[..., Any] | str, args: Mapping[str, object] | None = None, **options: Unpack[RunWords]
    ) -> RunHandle[Any]:
        """Submit a run of a task, given by itself or by name, with its arguments as a dict.

        A name that this app does not know is accepted, since another program's workers may; its arguments go unchecked.
        """
        said = [word for word, value in options.items() if value is not None]
        found, arguments = await self._learn_task(task, said), {} if args is None else args
        check_spec(found.name, arguments)
        return await found.options(**options).submit_args(arguments)

    def group(self, *parts: Graph[R]) -> Graph[R]:
        """Calls or graphs side by side: `await app.group(a.call(1), b.call(2)).then(c.call()).submit()`. What follows
        by `then` waits for all of them. See `sdk.graph`."""
        return join(self, parts)

    @overload
    def chain(self, last: Graph[R], /) -> Graph[R]: ...
    @overload
    def chain(self, first: Graph[Any], last: Graph[R], /) -> Graph[R]: ...
    @overload
    def chain(self, first: Graph[Any], second: Graph[Any], last: Graph[R], /) -> Graph[R]: ...
    @overload
    def chain(self, first: Graph[Any], second: Graph[Any], third: Graph[Any], last: Graph[R], /) -> Graph[R]: ...
    @overload
    def chain(self, first: Graph[Any], /, *others: Graph[Any]) -> Graph[Any]: ...
    def chain(self, first: Graph[Any], /, *others: Graph[Any]) -> Graph[Any]:
        """Calls or graphs one after another: each starts once those before it have succeeded. The results are those of
        the last one; beyond four parts, `then` keeps their type."""
        return reduce(lambda before, part: before.then(part), others, join(self, [first]))

    @overload
    async def upstream(self, task: Task[P, R]) -> list[R]: ...
    @overload
    async def upstream(self, task: None = None) -> list[Any]: ...
    async def upstream(self, task: Task[..., Any] | None = None) -> list[Any]:
        """In a task: what the runs returned that the current run waited for, in order; those of one task, with its
        type. RunFailed if one of them did not succeed; `app.runs.upstream()` has the runs, however they ended."""
        return await self.runs.upstream_results(task)

    def lock(self, name: str, *, ttl: Length = 30, wait: Length = 10) -> Lock:
        """A lock that one holder at a time has: `async with app.lock("payroll") as lock:`.

        The app's lease keeps it. It is renewed while the body runs, and expires `ttl` seconds after its holder died.
        """
        return self._locks.make(name, ttl, wait)

    def leadership(self, name: str, *, ttl: Length = 10) -> Leadership:
        """What only one process does at a time: `async with app.leadership("importer") as led:` waits until this
        process leads. Its body is cancelled when it no longer does. `led.token` grows with each leader."""
        return Leadership(self, name, ttl)

    def running(self, *, schedule: bool = True, work: bool = True, sync: bool = True, capture: bool = False) -> Running:
        """Run this app inside the program: `async with app.running():`. See `sdk.running.Running`.

        - `schedule`: fire jobs; `work`: execute runs.
        - `sync`: store the declared jobs first, where it schedules.
        - `capture`: keep what tasks print and log in the logs of their runs. It replaces `sys.stdout`, `sys.stderr` and
          adds a log handler until the block ends.
        """
        return Running(self, schedule=schedule, work=work, sync=sync, capture=capture)

    def run(
        self, duration: Length | None = None, *, schedule: bool = True, work: bool = True, capture: bool = False
    ) -> None:
        """Run this app until Ctrl-C, or for a `duration`; then let running work finish. For scripts."""
        run_app(self.running(schedule=schedule, work=work, capture=capture), duration)

    @property
    def opened(self) -> Store | None:
        """The store, if this process has opened it."""
        return self._store if self._opened_in == os.getpid() else None

    async def open(self) -> Store:
        """The store, opened on first use. A forked process opens its own: threads and locks do not survive a fork."""
        store = self.opened
        return await asyncio.to_thread(self._open_once) if store is None else store

    async def close(self) -> None:
        """Close the store. The app can be used again: the store is then opened anew."""
        await self._locks.close()
        with self._lock:
            store, self._store = self._store, None
        if store is not None and self._opened_in == os.getpid():
            await store.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def borrow(self, store: Store, clock: Clock) -> Callable[[], None]:
        """Use another store and clock until the returned function is called: for tests in virtual time."""
        before = (self._store, self.clock, self._ids, self._opened_in)

        def restore() -> None:
            self._store, self.clock, self._ids, self._opened_in = before

        self._store, self.clock, self._ids, self._opened_in = store, clock, IdSource(clock), os.getpid()
        return restore

    def new_id(self) -> str:
        """An id for a new run or job. Callable from any thread."""
        with self._lock:
            return self._ids.new()

    def new_ids(self, count: int) -> list[str]:
        """Ids for new runs, in order. Callable from any thread."""
        with self._lock:
            return self._ids.batch(count)

    def _open_once(self) -> Store:
        with self._lock:
            if self._store is None or self._opened_in != os.getpid():
                self._store = open_store(self.settings.store, self.settings, self.clock)
                self._opened_in = os.getpid()
            return self._store

    def _register(
        self, function: Callable[..., Any], name: str | None, values: Values, *, of_job: bool = False
    ) -> Task[..., Any]:
        if isinstance(function, Task):
            remedy = "put @app.job above @app.task, not below it; several @app.job may share one @app.task"
            raise InvalidInput("task", function, "is a task already", remedy)
        if not callable(function):
            raise InvalidInput("task", function, "is not a function", 'write @app.task, or @app.task(name="...")')
        name = getattr(function, "__name__", "<lambda>") if name is None else check_name("name", name)
        if name == "<lambda>":
            raise InvalidInput("name", function, "has no name of its own", 'give it one: app.task(name="...")')
        if name in PROVIDED_TASKS:
            raise InvalidInput("name", name, "is a task that Mainspring provides", "choose another name")
        if name in self.tasks:
            raise InvalidInput("name", name, *_clash(self.tasks[name].function, function, of_job=of_job))
        task = make_task(self, name, function, read_defaults(values, Defaults()))
        check_per(task)
        self.tasks[name] = task
        return task

    def _task_of_job(self, function: Callable[..., Any], values: Values) -> Task[..., Any]:
        if not isinstance(function, Task):
            execution = {word: values[word] for word in TaskWords.__annotations__ if word in values}
            return self._register(function, None, execution, of_job=True)
        for word in ("limit", "rate", "per", "batch", "batch_wait"):
            if word in values:
                raise InvalidInput(word, values[word], "belongs to the task", "put it into @app.task")
        return self._find_task(function)

    async def _learn_task(self, task: Task[..., Any] | str, said: Collection[str]) -> Task[..., Any]:
        """A task, given by itself or by name. For a task of another program, the options that its workers announced
        apply."""
        if isinstance(task, Task) or task in self.tasks or task in PROVIDED_TASKS:
            return self._find_task(task)
        store, namespace = await self.open(), self.settings.namespace
        await self.known_tasks.learn(store, namespace, check_name("task", task), self.clock.monotonic())
        return make_task(self, task, _elsewhere, self.known_tasks.defaults(namespace, task, said))

    def queues(self) -> tuple[str, ...]:
        """The queues that its tasks and jobs name, and the default one."""
        named = [task.defaults.queue for task in self.tasks.values()]
        named += [str(each.values["queue"]) for each in self._declarations.values() if "queue" in each.values]
        return tuple(dict.fromkeys((DEFAULT, *sorted(named))))

    def _find_task(self, task: Task[..., Any] | str) -> Task[..., Any]:
        if isinstance(task, Task):
            if task.app is not self:
                raise InvalidInput(
                    "task", task, f"belongs to app {task.app.name!r}", "use that app, or the task's name"
                )
            return task
        return self.tasks.get(task) or make_task(self, check_name("task", task), _elsewhere, Defaults())

    def _declare(self, new: _Declaration) -> None:
        if other := self._declarations.get(new.name):
            places = f"{place_of(other.task.function)} and {place_of(new.task.function)}"
            raise InvalidInput("name", new.name, f"names two jobs: {places}", "give one of them another name=")
        new.task.signature.check_names(new.args)
        self._declarations[new.name] = new
        new.task.job_names.append(new.name)

    def _make_job(self, written: _Declaration, now: Instant, origin: Origin) -> Job:
        execution = read_defaults(written.values, written.task.defaults)
        check_spec(written.task.name, written.args)
        job = Job(
            id=self.new_id(),
            name=written.name,
            task=written.task.name,
            trigger=written.trigger,
            namespace=self.settings.namespace,
            app=self.name,
            args=written.task.encode_args(written.args),
            queue=execution.queue,
            priority=execution.priority,
            key=written.values.get("key"),
            limit=execution.limit,
            policy=written.policy,
            options=execution.options,
            created_at=now,
            updated_at=now,
            origin=origin,
            source=self.source if origin == "code" else "",
        )
        check_firings(job, self.settings.firing_rate_of(job.namespace))
        return job


def _calling_module() -> str:
    """The module that makes an app. A file that is run as a program has its own name, as when it is imported."""
    frame = sys._getframe(2)
    return module_name(str(frame.f_globals.get("__name__", "")), frame.f_code.co_filename)


def _clash(one: Callable[..., Any], other: Callable[..., Any], *, of_job: bool) -> tuple[str, str]:
    """Why two tasks cannot have one name, and what to do. The `name=` of a job does not name its task."""
    if one is other:
        remedy = "write @app.task once, and put every @app.job above it: they share the task"
        return f"is a task already, of {place_of(one)}", remedy
    problem = f"names two tasks: {place_of(one)} and {place_of(other)}"
    if of_job:
        return problem, 'rename one of the functions, or put @app.task(name="...") below its @app.job'
    return problem, "give one of them another name="


def _elsewhere(**arguments: Any) -> Any:
    """Stands for the function of a task that another program registers, and that is never called here."""
    raise MainspringError("the task of this name is registered in another program")
