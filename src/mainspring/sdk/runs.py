"""`app.runs`: the runs of a store, with typed handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import msgspec

from mainspring.operations.context import Context
from mainspring.operations.options import RunWords, check_name
from mainspring.operations.runs import Runs
from mainspring.operations.submission import Recipe
from mainspring.sdk.handle import RunHandle

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring
    from mainspring.sdk.task import Task

P = ParamSpec("P")
R = TypeVar("R")


class AppRuns(Runs):
    """What `operations.runs.Runs` does, for the runs of an app."""

    def __init__(self, app: Mainspring) -> None:
        super().__init__(Context(app))
        self._app = app

    @overload
    def handle(self, run_id: str, task: Task[P, R]) -> RunHandle[R]: ...
    @overload
    def handle(self, run_id: str, task: None = None) -> RunHandle[Any]: ...
    def handle(self, run_id: str, task: Task[..., Any] | None = None) -> RunHandle[Any]:
        """The handle of a run that this or another program submitted. With its task, the result has the task's type.

        Nothing is looked up: NotFound is raised when the handle is first asked for something.
        """
        decode = msgspec.json.decode if task is None else task.decode_result
        return RunHandle(self._app, check_name("run_id", run_id), decode, accepted=False)

    async def _recipe(self, task: str, words: RunWords) -> Recipe:
        recipe = await super()._recipe(task, words)
        options = self._app.hooks.carry(recipe.model.options, task, 1)
        return msgspec.structs.replace(recipe, model=msgspec.structs.replace(recipe.model, options=options))
