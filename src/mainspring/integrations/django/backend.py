"""`django.tasks` (Django 6 and newer): each task of Django's is a task of the app, and each result is a run.

TASKS = {"default": {"BACKEND": "mainspring.integrations.django.backend.MainspringBackend"}}

A task is found by its name among those that the process has imported, never imported from stored data: so a worker
imports the modules `tasks` of all installed applications when it starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
from django.tasks.exceptions import TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils.json import normalize_json

from mainspring.core.states import BLOCKED, PENDING, RUNNING, SUCCEEDED
from mainspring.errors import NotFound
from mainspring.executor import current_run
from mainspring.integrations.django import get_app
from mainspring.operations import records
from mainspring.sdk.app import Mainspring

_STATUS = {
    BLOCKED: TaskResultStatus.READY,
    PENDING: TaskResultStatus.READY,
    RUNNING: TaskResultStatus.RUNNING,
    SUCCEEDED: TaskResultStatus.SUCCESSFUL,
}
_ENDED = {"run.succeeded", "run.failed", "run.cancelled", "run.skipped"}


class MainspringBackend(BaseTaskBackend):
    """Submits tasks of Django's to the app of the setting MAINSPRING_APP. `OPTIONS` are those of `@app.task`."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, {"QUEUES": [], **params})
        self._tasks: dict[str, Task] = {}
        self._app: Mainspring | None = None

    def validate_task(self, task: Task) -> None:
        """As Django asks for each task that is made. The first of a function is the task that workers execute."""
        super().validate_task(task)
        if task.module_path not in self._tasks:
            self._tasks[task.module_path] = task
            if self._app is not None:
                self._register(self._app, task)

    def load(self) -> Mainspring:
        """The app, which knows all tasks of this backend. It is loaded when Django is ready."""
        if self._app is None:
            app = get_app()
            for task in list(self._tasks.values()):
                self._register(app, task)
            app.on_end(self._tell_end)
            self._app = app
        return self._app

    def _register(self, app: Mainspring, task: Task) -> None:
        async def execute(args: list[Any], kwargs: dict[str, Any]) -> Any:
            if not (task_started.has_listeners(type(self)) or task.takes_context):
                return await _call(task, args, kwargs)
            result = await asyncio.to_thread(self.get_result, current_run().id)
            await task_started.asend(type(self), task_result=result)
            return await _call(task, [TaskContext(task_result=result), *args] if task.takes_context else args, kwargs)

        execute.__doc__ = task.func.__doc__
        app.task(name=task.module_path, **self.options)(execute)

    async def _tell_end(self, event: records.Event) -> None:
        """Send Django's signal when a run has ended for good."""
        if event.kind in _ENDED and event.task in self._tasks and event.run_id is not None:
            result = await asyncio.to_thread(self.get_result, event.run_id)
            await task_finished.asend(type(self), task_result=result)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Submit a run: durable on return, whatever becomes of a transaction that is open."""
        self.validate_task(task)
        given = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        # Django's priorities go from -100 to 100 (most urgent), those of runs from 10 to 1.
        words: dict[str, Any] = {"priority": round(5 - task.priority / 25), "queue": task.queue_name}
        if task.run_after is not None and task.run_after.astimezone(UTC) > datetime.now(UTC):
            words["at"] = task.run_after.astimezone(UTC)
        app = self.load()
        run = app.sync(app.runs.submit, task.module_path, given, **words)
        result = self._result(task, run, [])
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """The run as Django sees it. TaskResultDoesNotExist if there is none, or it is of no task of Django's."""
        app = self.load()
        try:
            run = app.sync(app.runs.get, result_id)
            attempts = app.sync(app.runs.attempts, result_id)
        except NotFound as error:
            raise TaskResultDoesNotExist(result_id) from error
        if run.task not in self._tasks:
            raise TaskResultDoesNotExist(f"{result_id} is a run of {run.task}, which is no task of this backend")
        return self._result(self._tasks[run.task], run, attempts)

    def _result(self, task: Task, run: records.Run | records.NewRun, attempts: Sequence[records.Attempt]) -> TaskResult:
        workers = [each.worker for each in attempts]
        if run.state == RUNNING and run.worker is not None:
            workers.append(run.worker)
        result = TaskResult(
            task=task,
            id=run.run_id,
            status=_STATUS.get(run.state, TaskResultStatus.FAILED),
            enqueued_at=run.created_at,
            started_at=next((each.started_at for each in attempts), run.started_at),
            finished_at=run.finished_at,
            last_attempted_at=run.started_at,
            args=run.args["args"],
            kwargs=run.args["kwargs"],
            backend=self.alias,
            errors=[_error(each.error) for each in attempts if isinstance(each.error, dict)],
            worker_ids=workers,
        )
        if run.state == SUCCEEDED:
            object.__setattr__(result, "_return_value", run.result)
        return result


async def _call(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function: on the event loop if it is async, otherwise on a thread, with connections that work."""
    if iscoroutinefunction(task.func):
        return normalize_json(await task.func(*args, **kwargs))

    def call() -> Any:
        close_old_connections()
        try:
            return normalize_json(task.func(*args, **kwargs))
        finally:
            close_old_connections()

    return await sync_to_async(call, thread_sensitive=False)()


def _error(error: Mapping[str, Any]) -> TaskError:
    name = str(error.get("type", ""))
    path = name if "." in name else f"builtins.{name}"
    return TaskError(exception_class_path=path, traceback=str(error.get("traceback", "")))
