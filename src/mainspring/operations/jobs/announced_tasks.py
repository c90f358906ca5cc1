"""What workers announce of tasks that this program knows by name only: a task's own options hold for its runs wherever
they are submitted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mainspring.core.model import PROVIDED_TASKS, RunOptions, TaskNotice
from mainspring.operations.jobs.options import Defaults
from mainspring.store import Store

FRESH_S: Final = 30.0
"""How long an announcement is used without asking the store again: options change only with deploys."""
UNKNOWN_S: Final = 1.0
"""As FRESH_S, for a task that no worker has announced: its worker may start at any moment."""
MOST_REMEMBERED: Final = 10_000
"""A bound, since callers choose the names."""


class AnnouncedTasks:
    """A cache of announcements, one for each process."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[float, TaskNotice | None]] = {}

    async def learn(self, store: Store, namespace: str, task: str, monotonic: float) -> None:
        """Ask the store for a task's announcement, unless a recent answer is remembered."""
        key = (namespace, task)
        until, _ = self._found.get(key, (0.0, None))
        if monotonic < until or task in PROVIDED_TASKS:
            return
        workers = await store.announced(namespace, task)
        notice = workers[0].notices[0] if workers else None
        if len(self._found) >= MOST_REMEMBERED:
            self._found.clear()
        self._found[key] = (monotonic + (FRESH_S if notice else UNKNOWN_S), notice)

    def defaults(self, namespace: str, task: str, said: Collection[str]) -> Defaults:
        """How runs of a task are executed where their options do not say it. If no announcement is known, the worker
        that claims such a run fills in the options that are not among `said`."""
        _, notice = self._found.get((namespace, task), (0.0, None))
        if notice is not None:
            return Defaults(priority=notice.priority, queue=notice.queue, limit=notice.limit, options=notice.options)
        return Defaults() if task in PROVIDED_TASKS else Defaults(options=RunOptions(said=tuple(sorted(said))))
