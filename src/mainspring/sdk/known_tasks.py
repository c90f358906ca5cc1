"""What workers announced of tasks that this program knows by name only: so that a task's own options hold for its runs
wherever they are submitted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from mainspring.core.model import PROVIDED_TASKS, RunOptions, TaskNotice
from mainspring.operations.options import Defaults
from mainspring.store import Store

FRESH_S: Final = 30.0
"""How long an announcement is taken for true without another look: options change with deploys."""
UNKNOWN_S: Final = 1.0
"""The same where there was none: its worker may start at any moment."""
MOST: Final = 10_000
"""So many names are remembered; names come from callers."""


class KnownTasks:
    """A cache, for one process."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[float, TaskNotice | None]] = {}

    async def learn(self, store: Store, namespace: str, task: str, monotonic: float) -> None:
        """Look up a task, unless that was done lately."""
        key = (namespace, task)
        until, _ = self._found.get(key, (0.0, None))
        if monotonic < until or task in PROVIDED_TASKS:
            return
        workers = await store.announced(namespace, task)
        notice = workers[0].notices[0] if workers else None
        if len(self._found) >= MOST:
            self._found.clear()
        self._found[key] = (monotonic + (FRESH_S if notice else UNKNOWN_S), notice)

    def defaults(self, namespace: str, task: str, said: Collection[str]) -> Defaults:
        """How its runs are executed unless they say otherwise. If nothing is known, the worker that claims such a run
        fills in what was not said."""
        _, notice = self._found.get((namespace, task), (0.0, None))
        if notice is not None:
            return Defaults(priority=notice.priority, queue=notice.queue, limit=notice.limit, options=notice.options)
        return Defaults() if task in PROVIDED_TASKS else Defaults(options=RunOptions(said=tuple(sorted(said))))
