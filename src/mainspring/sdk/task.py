"""Tasks: functions that can be called as before, and submitted."""

# A function that returns a coroutine is a function too, so overloads that tell the two apart always overlap.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Gate, KeptOptions, NewRun, Run, TaskNotice
from mainspring.core.schedules.triggers import check_to_come
from mainspring.errors import InvalidInput
from mainspring.operations.options import Defaults, RunWords, Values, read_defaults, read_words
from mainspring.operations.payload import Signature, encode_result
from mainspring.sdk.handle import RunHandle
from mainspring.store import Store, find_joining

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring

P = ParamSpec("P")
R = TypeVar("R")
AnyTask = TypeVar("AnyTask", bound="Task[..., Any]")


class Recipe(msgspec.Struct, frozen=True):
    """All that the runs of one task and its options have in common."""

    model: NewRun
    delay: Duration = 0
    at: Instant | None = None
    expires: Duration | None = None
    connection: Any = None
    """The connection whose transaction submissions join."""

    def run(self, run_id: str, args: str, namespace: str, now: Instant) -> NewRun:
        """A run with these arguments, submitted now; InvalidInput if the instant at which it should run has passed."""
        due_at = now + self.delay
        if self.at is not None:
            check_to_come(self.at, now, "at", "choose a later instant, or leave it out to run it now")
            due_at = max(self.at, now)  # Waiting begins with the submission: no date makes a run older than that.
        expires_at = None if self.expires is None else due_at + self.expires
        return msgspec.structs.replace(
            self.model, id=run_id, args=args, namespace=namespace, due_at=due_at, created_at=now, expires_at=expires_at
        )

    def runs(self, ids: Sequence[str], texts: Sequence[str], namespace: str, now: Instant) -> list[NewRun]:
        """A run for each of these arguments, submitted now."""
        model, replace = self.run("", "", namespace, now), msgspec.structs.replace
        return [replace(model, id=run_id, args=args) for run_id, args in zip(ids, texts, strict=True)]


def make_recipe(task: str, defaults: Defaults, values: Values) -> Recipe:
    """What a task's defaults and the options of a submission come to."""
    if "delay" in values and "at" in values:
        raise InvalidInput("at", values["at"], "is given together with delay", "give one of them")
    for word in ("when", "on_failure"):
        if word in values and not values.get("after"):
            raise InvalidInput(word, values[word], "has no use without after", "name the runs that it should wait for")
    merged = read_defaults(values, defaults)
    key = values.get("key")
    words = ("region", "key", "after", "when", "on_failure", "idempotency_key")
    model = NewRun(
        id="",
        task=task,
        due_at=0,
        created_at=0,
        queue=merged.queue,
        priority=merged.priority,
        options=msgspec.json.encode(merged.options).decode(),
        gates=(Gate(f"task:{task}", merged.limit),) if merged.limit else (),
        lines=(Gate(f"key:{key}", 1),) if key else (),
        **{word: values[word] for word in words if word in values},
    )
    return Recipe(model, values.get("delay", 0), values.get("at"), values.get("expires"), values.get("connection"))


def marked(options: str, subject: str) -> str:
    """Options, encoded, of a run that somebody submitted. It begins anew to wait for code that fits it."""
    known = msgspec.json.decode(options, type=KeptOptions)
    return msgspec.json.encode(msgspec.structs.replace(known, submitted_by=subject, unfit_since=None)).decode()


def repeat_run(
    old: Run, run_id: str, now: Instant, twin: NewRun | None, limit: int | None, subject: str = ""
) -> NewRun:
    """The same work once more, due now, as this subject wants. What it may be held up by is what holds for such runs
    today."""
    gates = (Gate(f"task:{old.task}", limit),) if limit else ()
    lines = (Gate(f"key:{old.key}", 1),) if old.key else ()
    return NewRun(
        id=run_id,
        task=old.task,
        due_at=now,
        created_at=now,
        namespace=old.namespace,
        queue=old.queue,
        region=old.region,
        args=old.args,
        priority=old.priority,
        options=marked(old.options, subject),
        job_id=old.job_id,
        job=old.job,
        fire_at=old.fire_at,
        idx=old.idx,
        key=old.key,
        gates=twin.gates if twin else gates,
        lines=twin.lines if twin else lines,
        retry_of=old.id,
    )


class BoundTask(Generic[P, R]):
    """A task together with its options: what can be submitted."""

    def __init__(self, app: Mainspring, signature: Signature, recipe: Recipe) -> None:
        self.app = app
        self.signature = signature
        self._recipe = recipe

    async def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
        """Submit one run: durable on return. InvalidInput, and nothing is stored, if an argument does not fit."""
        text = self.signature.encode(args, kwargs, self.app.settings.payload_limit)
        return await self._accept_one(text)

    async def submit_args(self, arguments: Mapping[str, object]) -> RunHandle[R]:
        """Submit one run, its arguments given as a dict."""
        text = self.signature.encode((), arguments, self.app.settings.payload_limit)
        return await self._accept_one(text)

    async def submit_many(self, calls: Iterable[Mapping[str, object]]) -> list[RunHandle[R]]:
        """Submit a run for each dict of arguments, in one transaction: all or none."""
        encode, limit = self.signature.encode, self.app.settings.payload_limit
        texts: list[str] = []
        try:
            for arguments in calls:
                texts.append(encode((), arguments, limit))
        except InvalidInput as error:
            field = f"[{len(texts)}].{error.field}"
            raise type(error)(field, error.value, error.problem, error.remedy) from None
        if len(texts) > 1 and self._recipe.model.idempotency_key is not None:
            problem = f"would stand for {len(texts)} runs at once"
            raise InvalidInput("idempotency_key", self._recipe.model.idempotency_key, problem, "submit them one by one")
        return await self._accept(texts)

    async def _accept_one(self, text: str) -> RunHandle[R]:
        app = self.app
        store = app.opened or await app.open()
        run = self._recipe.run(app.new_id(), text, app.settings.namespace, store.now())
        (run_id,) = await (store.submit((run,)) if self._recipe.connection is None else self._submit(store, (run,)))
        return RunHandle(app, run_id, self.signature.decode_result)

    async def _accept(self, texts: Sequence[str]) -> list[RunHandle[R]]:
        if not texts:
            return []
        app = self.app
        store = await app.open()
        runs = self._recipe.runs(app.new_ids(len(texts)), texts, app.settings.namespace, store.now())
        decode = self.signature.decode_result
        return [RunHandle(app, run_id, decode) for run_id in await self._submit(store, runs)]

    async def _submit(self, store: Store, runs: Sequence[NewRun]) -> list[str]:
        connection = self._recipe.connection
        if connection is None:
            return await store.submit(runs)
        joining = find_joining(store)
        if joining is None:
            problem = "cannot be joined: the store is not on PostgreSQL"
            remedy = "submit after your own transaction has been committed"
            raise InvalidInput("connection", type(connection).__name__, problem, remedy)
        return await joining.submit_within(connection, runs)


class Task(BoundTask[P, R]):
    """A function registered with an app. Calling it runs it here and now, as if it had not been decorated."""

    is_async: ClassVar[bool]
    function: Callable[P, R | Coroutine[Any, Any, R]]

    def __init__(
        self, app: Mainspring, name: str, function: Callable[P, R | Coroutine[Any, Any, R]], defaults: Defaults
    ) -> None:
        super().__init__(app, Signature(name, function), make_recipe(name, defaults, {}))
        self.name = name
        self.function = function
        self.defaults = defaults
        self.job_names: list[str] = []
        """The jobs that were declared for it."""
        functools.update_wrapper(self, function, updated=())

    def __repr__(self) -> str:
        return f"<task {self.signature}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R | Coroutine[Any, Any, R]:
        """Call the function itself."""
        return self.function(*args, **kwargs)

    @property
    def job_name(self) -> str:
        """The name of its job, for `after(task)`; InvalidInput unless there is exactly one."""
        if len(self.job_names) != 1:
            problem = f"has {len(self.job_names) or 'no'} jobs"
            raise InvalidInput("jobs", self.name, problem, "give the name of the job that is meant")
        return self.job_names[0]

    def notice(self) -> TaskNotice:
        """What a worker announces of it."""
        return TaskNotice(
            name=self.name,
            module=module_of(self.function),
            code=_digest_of(self.function),
            signature=str(self.signature),
            names=self.signature.names,
            required=self.signature.required,
            rest=self.signature.takes_rest,
            priority=self.defaults.priority,
            queue=self.defaults.queue,
            limit=self.defaults.limit,
            options=self.defaults.options,
        )

    def options(self, **words: Unpack[RunWords]) -> BoundTask[P, R]:
        """The task with other options than its own, for one or more submissions: see `RunWords`."""
        values = read_words(words, RunWords, "a submission")
        return BoundTask(self.app, self.signature, make_recipe(self.name, self.defaults, values))

    def encode_args(self, args: Mapping[str, object]) -> str:
        """Arguments as they are stored; InvalidInput if one does not fit."""
        return self.signature.encode((), args, self.app.settings.payload_limit)

    def decode_args(self, text: str) -> dict[str, object]:
        """Stored arguments, typed by the function's annotations, for a call by name."""
        return self.signature.decode(text)

    def encode_result(self, value: object) -> str:
        """What the function returned, as it is stored. NotSerialisable or PayloadTooLarge if it cannot be."""
        return encode_result(value, self.app.settings.payload_limit)

    def decode_result(self, text: str) -> R:
        """A stored result, typed by the function's return annotation."""
        result: R = self.signature.decode_result(text)
        return result


class PlainTask(Task[P, R]):
    """A task whose function returns its result."""

    is_async = False
    function: Callable[P, R]

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself."""
        return self.function(*args, **kwargs)


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function."""

    is_async = True
    function: Callable[P, Coroutine[Any, Any, R]]

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself: await what it gives."""
        return self.function(*args, **kwargs)


class TaskDecorator(Protocol):
    """What `@app.task(...)` gives."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class JobDecorator(Protocol):
    """What `@app.job(...)` gives: a task stays the task that it is, a function becomes one."""

    @overload
    def __call__(self, function: AnyTask, /) -> AnyTask: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


def make_task(app: Mainspring, name: str, function: Callable[..., Any], defaults: Defaults) -> Task[..., Any]:
    """The function as a task of the kind that it is."""
    kind = AsyncTask if inspect.iscoroutinefunction(function) else PlainTask
    task = kind(app, name, function, defaults)
    task.signature.check_types()
    _check_batch(task)
    return task


def _check_batch(task: Task[..., Any]) -> None:
    """Refuse what a task that is executed in batches cannot be: all its runs share one call, in the worker itself."""
    if task.defaults.batch is None:
        return
    if len(task.signature.names) != 1:
        raise InvalidInput("batch", task, "does not take one list", "give it one parameter, a list")
    options = task.defaults.options
    level = None if options.isolation is None else options.isolation.level
    if level not in (None, "none"):
        problem = "does not go with batch, whose runs share one call in the worker itself"
        raise InvalidInput("isolation", level, problem, "leave one of them out")
    if options.timeout is not None and level is None and not task.is_async:
        problem = "could not be kept: the function is not async, and a thread cannot be stopped"
        raise InvalidInput("timeout", task.name, problem, 'make it async, or accept that by isolation="none"')


def place_of(function: Callable[..., object]) -> str:
    """Where a function is defined, for people."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def module_of(function: Callable[..., object]) -> str:
    """The module of a function, by the same name however its file was loaded."""
    target = inspect.unwrap(function)
    name = str(getattr(target, "__module__", ""))
    code = getattr(target, "__code__", None)
    return module_name(name, code.co_filename if code else "")


def _digest_of(function: Callable[..., object]) -> str:
    """What tells two functions apart, wherever their files are."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ""
    values = [each for each in code.co_consts if isinstance(each, str | bytes | int | float | tuple | None)]
    parts = (code.co_code, code.co_names, code.co_varnames, values)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def module_name(name: str, file: str) -> str:
    """A module's name; that of its file, where it is run as a program or was loaded under another name."""
    return Path(file).stem if name == "__main__" else name.removeprefix("mainspring_app_")
