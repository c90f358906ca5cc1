"""Queues, gates and lines: what waits where, and which workers serve it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from mainspring.core.answers import Backlog, PausedQueue
from mainspring.core.instants import MINUTE
from mainspring.core.model import Worker
from mainspring.core.runs.tallies import PERIODS, Tally, period_of
from mainspring.core.states import BLOCKED, RUNNING, State
from mainspring.operations.context import InContext
from mainspring.operations.jobs.options import check_name
from mainspring.operations.values.from_rows import moment, moment_or_none
from mainspring.operations.views.explain import look_around
from mainspring.operations.views.records import Gates, GateUse, LineUse, Queue, QueueRegion
from mainspring.operations.views.records import Queues as QueueList
from mainspring.store import RunFilter, Store

MOST_COUNTED: Final = 10_000
MOST_QUEUES: Final = 200
MOST_GATES: Final = 1_000


class Queues(InContext):
    """What `/v1/queues`, `/v1/gates` and `mainspring queues` do."""

    async def list(self) -> QueueList:
        """All queues that have due runs, workers or a pause, by name; at most 200."""
        store, namespace = await self._context.open(), self._context.namespace
        backlog = [each for each in await store.backlog(MOST_COUNTED) if each.namespace == namespace]
        workers = (await look_around(self._context, namespace)).living()
        paused = {each.queue: each for each in await store.paused_queues(namespace)}
        names = {each.queue for each in backlog} | {queue for each in workers for queue in each.queues} | paused.keys()
        chosen, rates = sorted(names)[:MOST_QUEUES], await self._rates(store)
        found = [await self._queue(store, name, backlog, workers, paused.get(name), rates) for name in chosen]
        return QueueList(found)

    async def _queue(
        self,
        store: Store,
        name: str,
        backlog: Sequence[Backlog],
        workers: Sequence[Worker],
        paused: PausedQueue | None,
        rates: Mapping[str, tuple[float, float]],
    ) -> Queue:
        waiting = [each for each in backlog if each.queue == name and each.count]
        serving = [each for each in workers if name in each.queues]
        accepted, ended = rates.get(name, (0.0, 0.0))
        priorities: Counter[str] = Counter()
        for each in waiting:
            priorities[str(each.priority)] += each.count
        return Queue(
            queue=name,
            due=min(sum(each.count for each in waiting), MOST_COUNTED),
            oldest_due=moment_or_none(min((each.oldest_at for each in waiting), default=None)),
            running=await self._count(store, name, RUNNING),
            blocked=await self._count(store, name, BLOCKED),
            workers=len(serving),
            slots=sum(each.concurrency for each in serving if each.state == "active"),
            busy=sum(each.running for each in serving),
            priorities=dict(priorities),
            regions=_regions(waiting, serving),
            paused_at=None if paused is None else moment(paused.paused_at),
            paused_why="" if paused is None else paused.reason,
            accepted_per_minute=accepted,
            ended_per_minute=ended,
        )

    async def _rates(self, store: Store) -> Mapping[str, tuple[float, float]]:
        """How many runs each queue accepts and ends per minute: by the tallies of the last whole period, and of the one
        that lasts."""
        now = store.now()
        first = period_of("queue", now - PERIODS["queue"])
        rows = await store.list_tallies(self._context.namespace, "queue", first, now, limit=2 * MOST_QUEUES)
        minutes, found = (now - first) / MINUTE, dict[str, Tally]()
        for key, tally in rows:
            found.setdefault(key.name, Tally({}, {}, {})).add(tally)
        return {
            name: (round(tally.accepted / minutes, 1), round(sum(tally.outcomes.values()) / minutes, 1))
            for name, tally in found.items()
        }

    async def _count(self, store: Store, queue: str, state: State) -> int:
        where = RunFilter(self._context.namespace, (state,), queue=queue, limit=MOST_COUNTED)
        return await store.count_matching(where)

    async def pause(self, queue: str, reason: str = "") -> Queue:
        """Keep the runs of a queue from being claimed. What runs goes on, and new runs are accepted."""
        return await self._set_paused(queue, reason, paused=True)

    async def resume(self, queue: str, reason: str = "") -> Queue:
        """Let the runs of a queue be claimed again."""
        return await self._set_paused(queue, reason, paused=False)

    async def _set_paused(self, queue: str, reason: str, *, paused: bool) -> Queue:
        context, store = self._context, await self._context.open()
        check_name("queue", queue)
        action, said = "queue.pause" if paused else "queue.resume", {"paused": paused, "reason": reason}
        audit = context.audit(action, f"queue:{queue}", None, lambda _: said)
        found = await store.pause_queue(context.namespace, queue, paused=paused, reason=reason, audit=audit)
        backlog = [each for each in await store.backlog(MOST_COUNTED) if each.namespace == context.namespace]
        workers = (await look_around(context, context.namespace)).living()
        return await self._queue(store, queue, backlog, workers, found, await self._rates(store))

    async def gates(self) -> Gates:
        """How full gates are, and the longest lines."""
        store, namespace = await self._context.open(), self._context.namespace
        gates = await store.list_gates(namespace, MOST_GATES)
        lines = await store.list_lines(namespace, MOST_COUNTED)
        return Gates(
            [GateUse(each.name, each.used, each.capacity, each.waiting) for each in gates],
            [LineUse(each.name, each.capacity, each.length, each.head) for each in lines[:MOST_GATES]],
        )


def _regions(waiting: Sequence[Backlog], serving: Sequence[Worker]) -> list[QueueRegion]:
    names = {each.region for each in waiting} | {region for each in serving for region in each.regions}
    found = []
    for region in sorted(names):
        own = [each for each in waiting if each.region == region]
        near = [each for each in serving if region in each.regions]
        slots = sum(each.concurrency for each in near if each.state == "active")
        oldest = moment_or_none(min((each.oldest_at for each in own), default=None))
        found.append(QueueRegion(region, min(sum(each.count for each in own), MOST_COUNTED), oldest, len(near), slots))
    return found
