"""Runs that belong together and are submitted at once: chains, groups, fan-in and maps.

`task.call(...)` is a task with its arguments. Calls are put together by `app.group`, `app.chain`, `task.map` and
`then`, and nothing is stored before `submit`, which stores all runs in one transaction, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.model import Gate, NewRun
from mainspring.core.runs.retry import Length
from mainspring.core.schedules.triggers import OnFailure, When
from mainspring.errors import InvalidInput
from mainspring.operations import records
from mainspring.operations.submission import Recipe, check_one_run, connected, submit_runs
from mainspring.sdk.handle import RunHandle

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring

R = TypeVar("R")
S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)

GROUP = "group:"
"""The tag of all runs of one graph begins so; the id of its first run follows."""


class Step(NamedTuple):
    """One run of a graph."""

    recipe: Recipe
    args: str
    decode: Callable[[str], Any]
    after: tuple[int, ...] = ()
    """The steps that it waits for, by their places in the graph."""
    when: When = "all_succeeded"
    on_failure: OnFailure = "skip"
    gates: tuple[Gate, ...] = ()


class Graph(Generic[R_co]):
    """Runs that are submitted together. The results of its last runs are of type R. It never changes: `then` gives
    another one."""

    def __init__(self, app: Mainspring, steps: Sequence[Step], ends: Sequence[int]) -> None:
        self.app = app
        self.steps = tuple(steps)
        """Each after all that it waits for."""
        self.ends = tuple(ends)
        """The steps that no other step waits for, by their places."""

    def __len__(self) -> int:
        return len(self.steps)

    def then(self, next_part: Graph[S], *, when: When = "all_succeeded", on_failure: OnFailure = "skip") -> Graph[S]:
        """This graph, and after it another one: its first runs wait for the last runs of this one.

        - `when`: `any_finished` starts them as soon as one of these runs has ended, however it ended.
        - `on_failure`: what becomes of them if one of these runs does not succeed: `skip`, `fail`, or `run`.
        """
        _check_app(self.app, next_part)
        place = len(self.steps)
        steps = [_moved(step, place) for step in next_part.steps]
        first = [step._replace(after=self.ends, when=when, on_failure=on_failure) for step in steps]
        joined = [step if step.after else begins for step, begins in zip(steps, first, strict=True)]
        return Graph(self.app, (*self.steps, *joined), [place + end for end in next_part.ends])

    async def submit(self, *, connection: object = None) -> GroupHandle[R_co]:
        """Submit all runs: durable on return, all or none. `connection` joins your own PostgreSQL transaction."""
        if not self.steps:
            return GroupHandle(self.app, "", [], [])
        store = await self.app.open()
        ids = self.app.new_ids(len(self.steps))
        runs = self._make_runs(ids, store.now())
        accepted = await submit_runs(store, runs, connection)
        handles = [RunHandle(self.app, each, step.decode) for each, step in zip(accepted, self.steps, strict=True)]
        return GroupHandle(self.app, ids[0], handles, [handles[end] for end in self.ends])

    def _make_runs(self, ids: Sequence[str], now: int) -> list[NewRun]:
        runs, tag = [], GROUP + ids[0]
        for run_id, step in zip(ids, self.steps, strict=True):
            model = step.recipe.model
            options = self.app.hooks.carry(model.options, model.task, 1)
            recipe = msgspec.structs.replace(step.recipe, model=msgspec.structs.replace(model, options=options))
            run = recipe.run(run_id, step.args, self.app.settings.namespace, now)
            run = msgspec.structs.replace(run, gates=(*run.gates, *step.gates))
            if step.after:
                after = (*run.after, *(ids[place] for place in step.after))
                run = msgspec.structs.replace(run, after=after, when=step.when, on_failure=step.on_failure)
            runs.append(connected(run, tag))
        return runs


class Call(Graph[R]):
    """A task with its arguments: a graph of one run."""

    def __init__(self, app: Mainspring, recipe: Recipe, args: str, decode: Callable[[str], R]) -> None:
        check_one_run(recipe.model, "is that of one run, and this one is part of a graph", "leave it out")
        if recipe.connection is not None:
            raise InvalidInput(
                "connection", "", "belongs to the whole graph", "give it to graph.submit(connection=...)"
            )
        super().__init__(app, [Step(recipe, args, decode)], [0])


class GroupHandle(Generic[R]):
    """The runs of a graph that was submitted. `id` is all that it stands for: see `app.runs.list(tag=handle.tag)`."""

    def __init__(
        self, app: Mainspring, group_id: str, runs: Sequence[RunHandle[Any]], ends: Sequence[RunHandle[R]]
    ) -> None:
        self._app = app
        self.id = group_id
        self.runs = list(runs)
        """All runs, in the order of the graph."""
        self.ends = list(ends)
        """The runs that no other run waits for."""

    def __repr__(self) -> str:
        return f"<group {self.id} of {len(self.runs)} runs>"

    @property
    def tag(self) -> str:
        """The tag that all of its runs have."""
        return GROUP + self.id

    async def results(self, timeout: Length | None = None) -> list[R]:
        """What the last runs returned, in order, once all have ended. RunFailed if one of them did not succeed."""
        left = self._patience(timeout)
        return [await handle.result(left()) for handle in self.ends]

    async def wait(self, timeout: Length | None = None) -> list[records.Run]:
        """All runs, once all have ended in whatever state. WaitTimeout if they have not by then; they go on."""
        left = self._patience(timeout)
        return [await handle.wait(left()) for handle in self.runs]

    async def cancel(self, reason: str = "") -> int:
        """Cancel the runs that wait, and ask the running ones to stop; how many have not ended by themselves."""
        return await self._app.runs.cancel_all(tag=self.tag, reason=reason) if self.runs else 0

    def _patience(self, timeout: Length | None) -> Callable[[], float | None]:
        """How much of the time is left, at each call."""
        if timeout is None:
            return lambda: None
        clock = self._app.clock
        until = clock.monotonic() + parse_duration(timeout, "timeout") / SECOND
        return lambda: max(until - clock.monotonic(), 0.0)


def join(app: Mainspring, parts: Sequence[Graph[R]]) -> Graph[R]:
    """Graphs side by side."""
    steps: list[Step] = []
    ends: list[int] = []
    for part in parts:
        _check_app(app, part)
        place = len(steps)
        steps += [_moved(step, place) for step in part.steps]
        ends += [place + end for end in part.ends]
    return Graph(app, steps, ends)


def limited(graph: Graph[R], limit: int) -> Graph[R]:
    """At most this many runs of a map at a time. Maps of one task with the same limit share it."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidInput("limit", limit, "is not a count", "give a whole number from 1 up")
    steps = [
        step._replace(gates=(Gate(f"map:{step.recipe.model.task}:{limit}", limit),), after=step.after)
        for step in graph.steps
    ]
    return Graph(graph.app, steps, graph.ends)


def _moved(step: Step, place: int) -> Step:
    return step._replace(after=tuple(place + each for each in step.after))


def _check_app(app: Mainspring, part: object) -> None:
    if not isinstance(part, Graph):
        raise InvalidInput(
            "part", part, "is neither a call nor a graph", "write task.call(...), and submit them together"
        )
    if part.app is not app:
        raise InvalidInput("part", part, f"belongs to app {part.app.name!r}", "put together calls of one app")
