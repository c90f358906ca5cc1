"""The main program of a pool process, which finds tasks in the modules of their authors."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mainspring.executors.pool.pool_child import serve_worker
from mainspring.sdk.app import Mainspring
from mainspring.sdk.task import Task
from mainspring.wiring import follow_traces


def find_task(module: ModuleType, name: str) -> Task[..., Any]:
    """The task of this name, in the module itself or in an app of the module."""
    for value in vars(module).values():
        if isinstance(value, Task) and value.name == name:
            return value
        if isinstance(value, Mainspring) and name in value.tasks:
            return value.tasks[name]
    raise RuntimeError(f"task {name} is not in module {module.__name__}: define it at the top level")


def find_traced_task(module: ModuleType, name: str) -> Task[..., Any]:
    """As `find_task`, for a pool process: the spans of its attempts join the trace that their run carries."""
    task = find_task(module, name)
    follow_traces(task.app.settings, task.app.hooks.around)
    return task


if __name__ == "__main__":
    serve_worker(find_traced_task)
