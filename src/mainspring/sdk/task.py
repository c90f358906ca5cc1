"""Tasks: functions that can be called as before, and submitted."""

# A function that returns a coroutine is a function too, so overloads for the two always overlap.
# mypy: disable-error-code="overload-overlap"

from __future__ import annotations

import functools
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

import msgspec

from mainspring.core.model import TaskNotice
from mainspring.errors import InvalidInput
from mainspring.operations.jobs.options import Defaults, RunWords, read_words
from mainspring.operations.submission import Recipe, check_one_run, make_recipe, submit_runs
from mainspring.operations.values.payload import Signature, encode_result
from mainspring.sdk.graph import Call, Graph, join, limited
from mainspring.sdk.handle import RunHandle
from mainspring.sdk.hooks import Hooks

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring

P = ParamSpec("P")
R = TypeVar("R")
AnyTask = TypeVar("AnyTask", bound="Task[..., Any]")


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
        texts = self._encode_all(calls)
        if len(texts) > 1:
            check_one_run(self._recipe.model, f"would stand for {len(texts)} runs at once", "submit them one by one")
        return await self._accept(texts)

    def _encode_all(self, calls: Iterable[Mapping[str, object]]) -> list[str]:
        encode, limit = self.signature.encode, self.app.settings.payload_limit
        texts: list[str] = []
        try:
            for arguments in calls:
                texts.append(encode((), arguments, limit))
        except InvalidInput as error:
            field = f"[{len(texts)}].{error.field}"
            raise type(error)(field, error.value, error.problem, error.remedy) from None
        return texts

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The task with its arguments, to be submitted together with others: see `sdk.graph`."""
        return self._call_of(self.signature.encode(args, kwargs, self.app.settings.payload_limit))

    def map(self, calls: Iterable[Mapping[str, object]], *, limit: int | None = None) -> Graph[R]:
        """A call for each dict of arguments, side by side; at most `limit` of them run at a time. Maps of one task with
        the same limit share it."""
        graph = join(self.app, [self._call_of(text) for text in self._encode_all(calls)])
        return graph if limit is None else limited(graph, limit)

    def _call_of(self, text: str) -> Call[R]:
        return Call(self.app, self._recipe, text, self.signature.decode_result)

    async def _accept_one(self, text: str) -> RunHandle[R]:
        app = self.app
        store = app.opened or await app.open()
        run = self._carrying(1).run(app.new_id(), text, app.settings.namespace, store.now())
        (run_id,) = await submit_runs(store, (run,), self._recipe.connection)
        return RunHandle(app, run_id, self.signature.decode_result)

    def _carrying(self, count: int) -> Recipe:
        """The recipe for this number of runs, with what hooks add to it."""
        hooks, recipe = self.app.hooks, self._recipe
        if not hooks.on_submit:
            return recipe
        options = hooks.carry(recipe.model.options, recipe.model.task, count)
        return msgspec.structs.replace(recipe, model=msgspec.structs.replace(recipe.model, options=options))

    async def _accept(self, texts: Sequence[str]) -> list[RunHandle[R]]:
        if not texts:
            return []
        app = self.app
        store = await app.open()
        recipe = self._carrying(len(texts))
        runs = recipe.runs(app.new_ids(len(texts)), texts, app.settings.namespace, store.now())
        decode = self.signature.decode_result
        return [RunHandle(app, run_id, decode) for run_id in await submit_runs(store, runs, self._recipe.connection)]


class Task(BoundTask[P, R], ABC):
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
    def hooks(self) -> Hooks:
        """The hooks of its app."""
        return self.app.hooks

    @abstractmethod
    def execute(self, arguments: Mapping[str, object]) -> Any:
        """Call the function as an attempt does: within the app's `around` hooks. Await what an async one gives."""

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
            rate=self.defaults.rate,
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

    def execute(self, arguments: Mapping[str, object]) -> R | None:
        return self.app.hooks.call(self.function, arguments)


class AsyncTask(Task[P, R]):
    """A task whose function is a coroutine function."""

    is_async = True
    function: Callable[P, Coroutine[Any, Any, R]]

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function itself: await what it gives."""
        return self.function(*args, **kwargs)

    def execute(self, arguments: Mapping[str, object]) -> Coroutine[Any, Any, R | None]:
        return self.app.hooks.acall(self.function, arguments)


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


def check_per(task: Task[..., Any]) -> None:
    """Refuse a `per` that could not do anything."""
    per, signature = task.defaults.options.per, task.signature
    if not per:
        return
    if per not in signature.names and not signature.takes_rest:
        raise InvalidInput("per", per, f"is not an argument of {signature}", "name one of its arguments")
    if task.defaults.limit is None and task.defaults.rate is None:
        raise InvalidInput("per", per, "has nothing to count", "give limit or rate, too")
    if task.defaults.batch is not None:
        raise InvalidInput("per", per, "does not go with batch, whose runs share one call", "leave one of them out")


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
    if level is None and not task.is_async:
        for name, given in (("timeout", options.timeout), ("total_timeout", options.total_timeout)):
            if given is not None:
                problem = "could not be kept: the function is not async, and a thread cannot be stopped"
                raise InvalidInput(name, task.name, problem, 'make it async, or accept that by isolation="none"')


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
    """Identifies a function, wherever its file is."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return ""
    values = [each for each in code.co_consts if isinstance(each, str | bytes | int | float | tuple | None)]
    parts = (code.co_code, code.co_names, code.co_varnames, values)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def module_name(name: str, file: str) -> str:
    """A module's name; that of its file, where it is run as a program or was loaded under another name."""
    return Path(file).stem if name == "__main__" else name.removeprefix("mainspring_app_")
