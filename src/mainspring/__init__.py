"""Mainspring: a distributed job scheduler. These are its public names.

Each name is imported on first use, so that `import mainspring` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mainspring.version import VERSION as __version__

if TYPE_CHECKING:
    from mainspring import calendars, errors
    from mainspring.client.client import Client
    from mainspring.core.runs.retry import Retry
    from mainspring.core.schedules.triggers import after, at, cron, every, manual
    from mainspring.core.tasks.isolation import Isolation
    from mainspring.errors import Abort, MainspringError, RetryIn
    from mainspring.executor import RunContext, current_run
    from mainspring.operations.records import Attempt, Event, Firing, Job, Run, Worker
    from mainspring.sdk.app import Mainspring
    from mainspring.sdk.graph import Graph, GroupHandle
    from mainspring.sdk.handle import RunHandle
    from mainspring.sdk.hooks import Submission
    from mainspring.sdk.preview import fire_times
    from mainspring.sdk.task import Task

__all__ = [
    "Abort",
    "Attempt",
    "Client",
    "Event",
    "Firing",
    "Graph",
    "GroupHandle",
    "Isolation",
    "Job",
    "Mainspring",
    "MainspringError",
    "Retry",
    "RetryIn",
    "Run",
    "RunContext",
    "RunHandle",
    "Submission",
    "Task",
    "Worker",
    "__version__",
    "after",
    "at",
    "calendars",
    "cron",
    "current_run",
    "errors",
    "every",
    "fire_times",
    "manual",
]

_HOMES = {
    "mainspring.sdk.app": ("Mainspring",),
    "mainspring.client.client": ("Client",),
    "mainspring.executor": ("RunContext", "current_run"),
    "mainspring.core.tasks.isolation": ("Isolation",),
    "mainspring.core.runs.retry": ("Retry",),
    "mainspring.core.schedules.triggers": ("after", "at", "cron", "every", "manual"),
    "mainspring.errors": ("Abort", "MainspringError", "RetryIn"),
    "mainspring.sdk.graph": ("Graph", "GroupHandle"),
    "mainspring.sdk.handle": ("RunHandle",),
    "mainspring.operations.records": ("Attempt", "Event", "Firing", "Job", "Run", "Worker"),
    "mainspring.sdk.hooks": ("Submission",),
    "mainspring.sdk.preview": ("fire_times",),
    "mainspring.sdk.task": ("Task",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in ("calendars", "errors"):
        return import_module(f"mainspring.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'mainspring' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
