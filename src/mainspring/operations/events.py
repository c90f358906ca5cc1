"""Events, as they happen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from mainspring.operations import records
from mainspring.operations.context import InContext
from mainspring.operations.values.from_rows import event_record

ALIASES: Mapping[str, tuple[str, ...]] = {
    "job_created": ("job.created",),
    "job.scheduled": ("firing.fired", "run.submitted"),
    "job.completed": ("run.succeeded",),
    "job.failed": ("run.failed",),
    "job.running": ("run.running",),
    "job.submitted": ("run.submitted",),
}
"""What other schedulers call kinds of events (docs/sources.md)."""


class Events(InContext):
    """What `/v1/events` and `mainspring events` do."""

    async def follow(
        self,
        *,
        after: int | None = None,
        kinds: Sequence[str] = (),
        job: str | None = None,
        task: str | None = None,
        run: str | None = None,
    ) -> AsyncGenerator[records.Event, None]:
        """Events from now on, or beyond a position, without end: those of these kinds, a job, a task or a run."""
        store, namespace = await self._context.open(), self._context.namespace
        wanted = {kind for name in kinds for kind in ALIASES.get(name, (name,))}
        position = await store.next_position() if after is None else after + 1
        async for batch in self._context.follower.events(store, position):
            for offset, event in enumerate(batch.events):
                if (
                    event.namespace == namespace
                    and (not wanted or event.kind in wanted)
                    and (job is None or job in (event.job, event.job_id))
                    and task in (None, event.task)
                    and run in (None, event.run_id)
                ):
                    yield event_record(batch.position + offset, event)
