"""What the stored events say: as a page, and as spans of execution on a time axis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY, HOUR, MINUTE, Instant, from_datetime
from mainspring.core.model import Event
from mainspring.core.states import FAILED, FINAL
from mainspring.operations.context import InContext
from mainspring.operations.events import ALIASES
from mainspring.operations.records import Event as EventRecord
from mainspring.operations.values.from_rows import event_record, moment
from mainspring.operations.views.records import EventPage, Span, Spans
from mainspring.store import RunFilter, Store

BATCHES: Final = 500
MOST_READ: Final = 20_000
"""Events that one question reads: a page that few fit ends there, with a place to go on from."""
SAMPLES: Final = 50
"""Parts of a long span that are read."""
SOME_BATCHES: Final = 40
"""Transactions that are read at once for a part: mostly they have some ten events each."""
MOST_FAILED: Final = 1_000
MOST_JOBS: Final = 1_000
"""Of how many jobs a timeline has queues and tags."""
_ENDS: Final = frozenset(f"run.{state}" for state in FINAL) | {"run.retrying", "run.lost", "run.handed_back"}


class StoredEvents(InContext):
    """What `/v1/events?page=true`, `/v1/runs/ID/events`, `/v1/timeline` and `/v1/workers/ID/spans` show."""

    async def page(
        self,
        *,
        after: int | None = None,
        since: datetime | None = None,
        kinds: Sequence[str] = (),
        job: str | None = None,
        task: str | None = None,
        run: str | None = None,
        worker: str | None = None,
        limit: int = 50,
    ) -> EventPage:
        """Stored events in order: beyond a position, or since an instant (an hour ago)."""
        store = await self._context.open()
        first = store.now() - HOUR if since is None else from_datetime(since, "since")
        position = await store.position_at(first) if after is None else after + 1
        wanted = {kind for name in kinds for kind in ALIASES.get(name, (name,))}

        def fits(event: Event) -> bool:
            return (
                event.namespace == self._context.namespace
                and (not wanted or event.kind in wanted)
                and (job is None or job in (event.job, event.job_id))
                and task in (None, event.task)
                and run in (None, event.run_id)
                and worker in (None, event.worker)
            )

        return await _page(store, position, fits, limit)

    async def of_run(self, run_id: str, *, after: int | None = None, limit: int = 200) -> EventPage:
        """The stored events of a run: those of its lifetime are looked through."""
        store = await self._context.open()
        run = await store.get_run(self._context.namespace, run_id)
        position = await store.position_at(run.created_at) if after is None else after + 1
        until = await store.position_at(run.finished_at + MINUTE) if run.finished_at is not None else None
        return await _page(store, position, lambda event: event.run_id == run.id, limit, until)

    async def spans(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        worker: str | None = None,
        jobs: bool = False,
    ) -> Spans:
        """When runs were executed, from `since` (an hour ago) to `until` (now): attempts that began or ended then. A
        span with more events than `MOST_READ` is sampled evenly, and runs that failed in it are added. With `jobs`,
        each has the queue and the tags of its job."""
        store = await self._context.open()
        last = store.now() if until is None else from_datetime(until, "until")
        first = last - HOUR if since is None else from_datetime(since, "since")
        begin, end = await store.position_at(first), await store.position_at(last)
        events = max(end - begin, 0)
        found: dict[tuple[str, int | None], Span] = {}
        for start, stop in samples(begin, end):
            for span in await self._executed(store, start, stop, first, ends=stop == end):
                found[span.run_id, span.attempt] = span
        if events > MOST_READ:
            for span in await self._failed(store, first, last):
                found.setdefault((span.run_id, span.attempt), span)
        spans = [span for span in found.values() if worker in (None, span.worker)]
        spans = await self._with_jobs(store, spans) if jobs else spans
        left_out = max(events - MOST_READ, 0)
        return Spans(sorted(spans, key=lambda span: span.began_at), left_out > 0, events, left_out)

    async def _executed(self, store: Store, start: int, stop: int, first: Instant, *, ends: bool) -> list[Span]:
        """The attempts that the events from one position to before another are about. Where these are not the last
        ones (`ends`), an attempt whose end is not among them may have ended since: it is left out."""
        began, found = dict[str, Event](), list[Span | None]()
        async for place, event in _read(store, start, BATCHES if ends else SOME_BATCHES):
            if place >= stop:
                break
            if event.namespace != self._context.namespace or event.run_id is None:
                continue
            if event.kind == "run.running":
                began[event.run_id] = event
            elif event.kind in _ENDS:
                found.append(_span(event.run_id, began.pop(event.run_id, None), event, first))
        if ends:
            found += [_span(run_id, event, None, first) for run_id, event in began.items()]
        return [span for span in found if span is not None]

    async def _with_jobs(self, store: Store, spans: Sequence[Span]) -> list[Span]:
        """Spans with the queues and tags of their jobs, as they are now: events have neither."""
        names = list(dict.fromkeys(span.name for span in spans))[:MOST_JOBS]
        known = {job.name: job for job in await store.find_jobs(self._context.namespace, names)} if names else {}
        found = []
        for span in spans:
            job = known.get(span.name)
            own = {} if job is None else {"queue": job.queue, "tags": list(job.options.tags)}
            found.append(msgspec.structs.replace(span, **own))
        return found

    async def _failed(self, store: Store, first: Instant, last: Instant) -> list[Span]:
        """The newest runs that failed in a span. Ids follow the instants at which runs were due or submitted."""
        where = RunFilter(self._context.namespace, (FAILED,), limit=MOST_FAILED, since=encode_time(first - DAY))
        return [
            Span(run.id, run.job or run.task, run.worker, moment(run.started_at), moment(run.finished_at), FAILED,
                 run.attempt)
            for run in await store.list_runs(where)
            if run.started_at is not None and run.finished_at is not None and first <= run.finished_at <= last
        ]  # fmt: skip


def samples(begin: int, end: int) -> list[tuple[int, int]]:
    """The positions to read of a span of events: all of them, or parts of equal length at equal distances that
    together have `MOST_READ`; the last of them ends where the span does."""
    if end - begin <= MOST_READ:
        return [(begin, end)]
    size = MOST_READ // SAMPLES
    starts = [begin + (end - begin - size) * number // (SAMPLES - 1) for number in range(SAMPLES)]
    return [(start, start + size) for start in starts]


def _span(run_id: str, began: Event | None, ended: Event | None, first: Instant) -> Span | None:
    """What two events say of an attempt; None if it was never started."""
    event = began or ended
    if event is None or (began is None and (ended is None or ended.duration is None)):
        return None
    start = began.at if began is not None else max(event.at - (event.duration or 0), first)
    state = "running" if ended is None else ended.kind.removeprefix("run.")
    return Span(
        run_id,
        event.job or event.task or "",
        event.worker,
        moment(start),
        None if ended is None else moment(ended.at),
        state,
        event.attempt,
    )


async def _page(
    store: Store, position: int, fits: Callable[[Event], bool], limit: int, until: int | None = None
) -> EventPage:
    """The events that fit from a position on, and before another one."""
    items, read = list[EventRecord](), 0
    async for place, event in _read(store, position):
        if until is not None and place >= until:
            break
        read += 1
        if fits(event):
            items.append(event_record(place, event))
        if len(items) == limit or read == MOST_READ:
            return EventPage(items, place)
    return EventPage(items, None)


async def _read(store: Store, position: int, at_once: int = BATCHES) -> AsyncIterator[tuple[int, Event]]:
    """Public events from a position on, until there are no more, in batches of transactions."""
    while batches := await store.events_since(position, at_once):
        for batch in batches:
            for offset, event in enumerate(batch.events):
                yield batch.position + offset, event
            position = batch.position + len(batch.events)
