"""Which tasks live workers know. A submission of any other task is accepted, with a warning."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from mainspring.core.model import PROVIDED_TASKS
from mainspring.errors import StoreError
from mainspring.operations.views.explain import look_around
from mainspring.sdk.app import Mainspring

FRESH_S = 5.0
"""How long the announcements of workers are cached."""
LOOK_AGAIN_S = 1.0
"""An unknown task makes the cache be read again if it is older than this: a worker may just have started."""
MOST_NAMESPACES = 1_000
MOST_WARNINGS = 10


class KnownTasks:
    """The tasks that live workers of each namespace know, read at most once a second."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    async def warn(self, namespace: str, tasks: Iterable[str]) -> list[str]:
        """A sentence for each of these tasks that neither this program nor a live worker knows."""
        foreign = [each for each in dict.fromkeys(tasks) if each not in self._app.tasks and each not in PROVIDED_TASKS]
        if not foreign:
            return []
        try:
            known = await self._read(namespace, FRESH_S)
            if not known.issuperset(foreign):
                known = await self._read(namespace, LOOK_AGAIN_S)
        except StoreError:
            return []  # A warning is no reason to fail.
        unknown = [each for each in foreign if each not in known]
        return [_warning(each, known | self._app.tasks.keys()) for each in unknown[:MOST_WARNINGS]]

    async def _read(self, namespace: str, fresh_s: float) -> frozenset[str]:
        now = self._app.clock.monotonic()
        read_at, known = self._known.get(namespace, (float("-inf"), frozenset[str]()))
        if now - read_at < fresh_s:
            return known
        crowd = await look_around(self._app, namespace)
        known = frozenset(task for worker in crowd.living() for task in worker.tasks)
        if len(self._known) >= MOST_NAMESPACES:
            self._known.clear()
        self._known[namespace] = (now, known)
        return known


def _warning(task: str, known: Collection[str]) -> str:
    near = get_close_matches(task, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "start a worker that does"
    return f"no live worker knows task {task}, and it waits until one does: {hint}"
