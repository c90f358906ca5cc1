"""Reads of one query each, written once for every dialect: a store says only how it reads rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from mainspring.core.answers import Change, ErrorGroup, GateRow, LineRow, PausedQueue
from mainspring.core.ids import time_of
from mainspring.core.instants import EARLIEST, LATEST, MILLISECOND, MINUTE, Instant
from mainspring.core.model import Edge, Event, EventBatch, Firing, Job, LogLine, Node, Run, TermRecord, Worker
from mainspring.core.runs.tallies import Kind, Tally, TallyKey
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.states import State
from mainspring.errors import NotFound
from mainspring.store import MOST_COUNTED, JobOrder
from mainspring.stores.rows.job_rows import first_place, read_calendars, read_firing, read_job, read_jobs, unknown_jobs
from mainspring.stores.rows.run_rows import AFTER_ALL, SUBMIT
from mainspring.stores.rows.term_rows import node_of
from mainspring.stores.rows.worker_rows import read_announced, read_worker
from mainspring.stores.sql import load_queries

DISORDER = MINUTE
"""Changes of transactions that overlap may be numbered in another order than that of their instants: by no more."""
_decode = msgspec.json.Decoder(Tally).decode
_decode_events = msgspec.json.Decoder(list[Event]).decode


class StoredViews(ABC):
    """The reads of `store.Store` that are one query in every dialect, with the same values and columns."""

    _jobs: Mapping[str, str]
    _firings: Mapping[str, str]
    _runs: Mapping[str, str]
    _work: Mapping[str, str]
    _leases: Mapping[str, str]
    _events: Mapping[str, str]
    _insight: Mapping[str, str]
    _api: Mapping[str, str]

    def __init_subclass__(cls, dialect: str = "", **words: Any) -> None:
        super().__init_subclass__(**words)
        if dialect:
            load = partial(load_queries, dialect)
            cls._jobs, cls._firings, cls._runs = load("jobs"), load("firings"), load("runs")
            cls._leases, cls._events, cls._work = load("leases"), load("events"), load("work")
            cls._insight, cls._api = load("insight"), load("api")

    @abstractmethod
    async def _rows(self, query: str, *values: object) -> Sequence[Sequence[Any]]:
        """All rows of the answer. Not for hot paths: on SQLite it may wait behind other reads of history."""

    @abstractmethod
    async def _few_rows(self, query: str, *values: object) -> Sequence[Sequence[Any]]:
        """As `_rows`, for a query that reads little: it waits for no read of history."""

    @abstractmethod
    def _list_of(self, texts: Collection[str]) -> object:
        """Several texts as one value of a query."""

    @abstractmethod
    async def finished(self, run_ids: Collection[str]) -> list[Run]:
        """Those of these runs that have ended."""

    async def get_job(self, namespace: str, name: str) -> Job:
        rows = await self._few_rows(self._jobs["find"], namespace, name)
        if not rows:
            raise unknown_jobs(namespace, [name])
        return read_job(rows[0])

    async def list_jobs(
        self, namespace: str, *, app: str | None = None, after: str | None = None, limit: int = 1000
    ) -> list[Job]:
        return read_jobs(await self._rows(self._jobs["list"], namespace, app, after or "", limit))

    async def find_jobs(self, namespace: str, names: Collection[str]) -> list[Job]:
        return read_jobs(await self._few_rows(self._jobs["by_name"], namespace, self._list_of(names)))

    async def count_jobs(self, namespace: str, limit: int) -> tuple[int, int]:
        ((jobs, paused),) = await self._few_rows(self._jobs["count"], namespace, limit)
        return int(jobs), int(paused)

    async def ordered_jobs(
        self, namespace: str, order: JobOrder, *, beyond: tuple[Instant, str] | None = None, limit: int = 50
    ) -> list[Job]:
        queries: Mapping[JobOrder, str] = {
            "next": self._jobs["list_next"],
            "last": self._jobs["list_last"],
            "paused": self._jobs["list_paused"],
        }
        return read_jobs(await self._rows(queries[order], namespace, *(beyond or first_place(order)), limit))

    async def list_edges(self, job_id: str) -> list[Edge]:
        return [Edge(*row) for row in await self._few_rows(self._jobs["edges"], job_id)]

    async def list_calendars(self, namespace: str) -> dict[str, Calendar]:
        return read_calendars(await self._few_rows(self._jobs["calendars"], namespace))

    async def list_firings(
        self,
        job_id: str,
        *,
        since: Instant | None = None,
        before: Instant | None = None,
        limit: int = 50,
        region: str | None = None,
    ) -> list[Firing]:
        first, until = EARLIEST if since is None else since, LATEST + 1 if before is None else before
        rows = await self._rows(self._firings["list"], job_id, first, until, limit, region)
        return [read_firing(row) for row in rows]

    async def newest_firings(self, job_ids: Collection[str], each: int = 1) -> list[Firing]:
        return [read_firing(row) for row in await self._rows(self._firings["newest"], self._list_of(job_ids), each)]

    async def missed_firings(self, namespace: str, since: Instant, limit: int) -> list[tuple[str, Firing]]:
        rows = await self._rows(self._firings["missed"], since, limit, namespace)
        return [(row[0], read_firing(row[1:])) for row in rows]

    async def firing_of_run(self, namespace: str, run_id: str, limit: int) -> tuple[str, Firing] | None:
        since = time_of(run_id)
        if since is None or since > LATEST:
            return None
        rows = await self._rows(self._firings["of_run"], namespace, run_id, since, since + MILLISECOND, limit)
        return (rows[0][0], read_firing(rows[0][1:])) if rows else None

    async def count_runs(self, namespace: str) -> dict[State, int]:
        return {row[0]: row[1] for row in await self._rows(self._runs["count_states"], namespace, MOST_COUNTED)}

    async def list_logs(
        self, run_id: str, *, after: int = 0, before: int | None = None, limit: int = 1000
    ) -> list[tuple[int, LogLine]]:
        if before is None:
            rows = await self._rows(self._runs["logs"], run_id, after, limit)
        else:
            rows = await self._rows(self._runs["logs_before"], run_id, after, before, limit)
        return [(row[0], LogLine(*row[1:])) for row in rows]

    async def count_logs(self, run_id: str, most: int) -> int:
        ((count,),) = await self._few_rows(self._runs["count_logs"], run_id, most)
        return int(count)

    async def upstream_runs(self, run_id: str) -> list[str]:
        return [row[0] for row in await self._few_rows(self._runs["upstreams_of"], run_id)]

    async def gate_holders(self, namespace: str, gate: str) -> tuple[int, int]:
        rows = await self._few_rows(self._runs["gate"], namespace, gate)
        if not rows:
            raise NotFound(f"there is no gate {gate}")
        return rows[0][0], rows[0][1]

    async def list_workers(self, namespace: str, worker_id: str | None = None) -> list[Worker]:
        query, which = (self._work["workers"], ()) if worker_id is None else (self._work["worker"], (worker_id,))
        return [read_worker(row) for row in await self._few_rows(query, namespace, *which)]

    async def announced(self, namespace: str, task: str) -> list[Worker]:
        return [read_announced(row) for row in await self._few_rows(self._work["announced"], namespace, task)]

    async def terms(self, name: str | None, limit: int) -> list[TermRecord]:
        return [TermRecord(*row) for row in await self._few_rows(self._leases["terms"], name, limit)]

    async def nodes(self) -> list[Node]:
        return [node_of(row) for row in await self._few_rows(self._leases["nodes"])]

    async def events_since(self, position: int, limit: int) -> list[EventBatch]:
        rows = await self._few_rows(self._events["since"], position, limit)
        batches = [EventBatch(first, _decode_events(events)).since(position) for first, events in rows]
        return [batch for batch in batches if batch.events]

    async def next_position(self) -> int:
        ((position,),) = await self._few_rows(self._events["next_position"])
        return int(position)

    async def heard(self, listener: str) -> int | None:
        rows = await self._few_rows(self._events["heard"], listener)
        return int(rows[0][0]) if rows else None

    async def tallied(self) -> int | None:
        rows = await self._few_rows(self._insight["tallied"])
        return int(rows[0][0]) if rows else None

    async def paused_queues(self, namespace: str) -> list[PausedQueue]:
        return [PausedQueue(*row) for row in await self._rows(self._insight["paused"], namespace)]

    async def list_gates(self, namespace: str, limit: int) -> list[GateRow]:
        return [GateRow(*row) for row in await self._rows(self._insight["gates"], namespace, limit)]

    async def list_lines(self, namespace: str, limit: int) -> list[LineRow]:
        return [LineRow(*row) for row in await self._rows(self._insight["lines"], namespace, limit)]

    async def dependants(self, run_id: str, limit: int) -> list[str]:
        return [row[0] for row in await self._rows(self._insight["dependants"], run_id, limit)]

    async def lines_of(self, run_id: str) -> list[LineRow]:
        return [LineRow(*row) for row in await self._rows(self._insight["lines_of"], run_id)]

    async def dependent_jobs(self, job_id: str, limit: int) -> list[str]:
        return [row[0] for row in await self._rows(self._insight["dependent_jobs"], job_id, limit)]

    async def list_tallies(
        self,
        namespace: str,
        kind: Kind,
        since: Instant,
        until: Instant,
        *,
        name: str | None = None,
        limit: int = 10_000,
    ) -> list[tuple[TallyKey, Tally]]:
        query, which = (self._insight["tallies"], ()) if name is None else (self._insight["tallies_of"], (name,))
        rows = await self._rows(query, namespace, kind, *which, since, until, limit)
        return [(TallyKey(*row[:4]), _decode(row[4])) for row in rows]

    async def newest_tallies(
        self, namespace: str, kind: Kind, names: Collection[str], since: Instant, each: int
    ) -> list[tuple[TallyKey, Tally]]:
        values = (namespace, kind, self._list_of(names), since, each)
        rows = await self._rows(self._insight["newest_tallies"], *values)
        return [(TallyKey(*row[:4]), _decode(row[4])) for row in rows]

    async def uncounted_since(self) -> Instant | None:
        rows = await self._rows(self._insight["uncounted_since"])
        return int(rows[0][0]) if rows else None

    async def list_errors(
        self, namespace: str, *, since: Instant = 0, before: tuple[Instant, str] | None = None, limit: int = 50
    ) -> list[ErrorGroup]:
        values = (namespace, since, *(before or (LATEST, AFTER_ALL)), limit)
        return [ErrorGroup(*row) for row in await self._rows(self._insight["errors"], *values)]

    async def get_error(self, namespace: str, error: str) -> ErrorGroup:
        rows = await self._rows(self._insight["error"], namespace, error)
        if not rows:
            raise NotFound(f"there is no error group {error}: `mainspring errors` lists those that there are")
        return ErrorGroup(*rows[0])

    async def runs_of_error(
        self, namespace: str, error: str, *, since: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[Run]:
        values = (namespace, error, since or "", before or AFTER_ALL, limit)
        ids = [row[0] for row in await self._rows(self._insight["runs_of_error"], *values)]
        return sorted(await self.finished(ids), key=lambda run: run.id, reverse=True) if ids else []

    async def _noted_from(self, instant: Instant) -> int:
        """The number from which on changes are not earlier than an instant."""
        ((number,),) = await self._rows(self._api["noted_from"], max(instant, 0))
        return LATEST if number is None else int(number)

    async def list_changes(
        self,
        namespace: str,
        *,
        subject: str | None = None,
        target: str | None = None,
        action: str | None = None,
        since: Instant | None = None,
        until: Instant | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> list[tuple[int, Change]]:
        low = 0 if since is None else await self._noted_from(since - DISORDER)
        high = LATEST if until is None else await self._noted_from(until + DISORDER)
        bounds = (low, high if before is None else min(high, before), since or 0, LATEST if until is None else until)
        values: list[object] = [namespace, *bounds, limit]
        query = self._api["notes"]
        if target is not None:
            query, values = self._api["notes_on"], [*values, subject, target, action]
        elif action is not None and (subject is None or action != SUBMIT):
            query, values = self._api["notes_of"], [*values, subject, action]
        elif subject is not None:
            query, values = self._api["notes_by"], [*values, subject, action]
        return [
            (seq, Change(namespace=namespace, at=at, subject=subject, action=action, target=what, before=old, after=new,
                         request_id=request_id))
            for seq, namespace, at, subject, action, what, old, new, request_id in await self._rows(query, *values)
        ]  # fmt: skip
