"""The tasks that workers know, and the values that filters may have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

from mainspring.core.model import Job, TaskNotice
from mainspring.errors import NotFound
from mainspring.operations.context import InContext
from mainspring.operations.paging import PAGE
from mainspring.operations.views.explain import look_around
from mainspring.operations.views.records import Facets, Tasks, TaskStory, TaskSummary

FacetName = Literal["job", "task", "queue", "tag", "app", "region", "worker"]
MOST_FACETS: Final = 50
MOST_SCANNED: Final = 5_000
"""Jobs that are looked through for the values that they name."""


class KnownTasks(InContext):
    """What `/v1/tasks` and `/v1/facets` show."""

    async def get(self, task: str) -> TaskStory:
        """A task as the worker that was heard of last announced it; NotFound if none ever did."""
        store, namespace = await self._context.open(), self._context.namespace
        announced = await store.announced(namespace, task)
        living = (await look_around(self._context, namespace)).living()
        if not announced:
            if not any(task in worker.tasks for worker in living):
                raise NotFound(f"no worker has announced task {task!r}: `mainspring workers` lists what they know")
            notice = TaskNotice(name=task, rest=True)  # A worker over HTTP names its tasks, and says no more of them.
        else:
            notice = announced[0].notices[0]
        return TaskStory(
            task=task,
            signature=notice.signature,
            arguments=_schema(notice),
            queue=notice.queue,
            priority=notice.priority,
            limit=notice.limit,
            workers=[worker.id for worker in living if task in worker.tasks],
        )

    async def facets(self, of: FacetName, prefix: str = "") -> Facets:
        """At most 50 values that a filter may have, in order: those that begin with a text."""
        living = (await look_around(self._context, self._context.namespace)).living()
        if of == "job":
            return Facets(await self._job_names(prefix))
        found: set[str] = set()
        if of == "worker":
            found |= {worker.id for worker in living}
        elif of in ("task", "queue", "region"):
            found |= {name for worker in living for name in getattr(worker, f"{of}s")}
        if of != "worker":
            found |= await self._named_by_jobs(of)
        return Facets(sorted(name for name in found if name.startswith(prefix))[:MOST_FACETS])

    async def _job_names(self, prefix: str) -> list[str]:
        store, namespace = await self._context.open(), self._context.namespace
        names = [job.name for job in await store.find_jobs(namespace, [prefix])] if prefix else []
        page = await store.list_jobs(namespace, after=prefix or None, limit=MOST_FACETS)
        return [*names, *(job.name for job in page if job.name.startswith(prefix))][:MOST_FACETS]

    async def _named_by_jobs(self, of: FacetName) -> set[str]:
        store, found, after, scanned = await self._context.open(), set[str](), None, 0
        while scanned < MOST_SCANNED:
            page = await store.list_jobs(self._context.namespace, after=after, limit=PAGE)
            for job in page:
                found.update(_values(job, of))
            scanned += len(page)
            if len(page) < PAGE:
                break
            after = page[-1].name
        return found

    async def list(self) -> Tasks:
        """All tasks that live workers know, by name."""
        living = (await look_around(self._context, self._context.namespace)).living()
        names = sorted({task for worker in living for task in worker.tasks})
        found = []
        for name in names:
            knowing = [worker for worker in living if name in worker.tasks]
            queues = sorted({queue for worker in knowing for queue in worker.queues})
            found.append(TaskSummary(name, [worker.id for worker in knowing], queues))
        return Tasks(found)


def _values(job: Job, of: FacetName) -> Iterable[str]:
    return {
        "task": (job.task,),
        "queue": (job.queue,),
        "app": (job.app,),
        "tag": job.options.tags,
        "region": job.policy.regions,
    }.get(of, ())


def _schema(notice: TaskNotice) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {} for name in notice.names},
        "required": list(notice.required),
        "additionalProperties": notice.rest,
    }
