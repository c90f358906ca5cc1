"""Reads of one query each, in every dialect: queues, gates, lines, tallies, error groups, the audit trail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mainspring.core.answers import Change, ErrorGroup, GateRow, LineRow, PausedQueue
from mainspring.core.instants import LATEST, MINUTE, Instant
from mainspring.core.runs.tallies import Kind, Tally, TallyKey
from mainspring.errors import NotFound
from mainspring.stores.rows.run_rows import SUBMIT

DISORDER = MINUTE
"""Changes of transactions that overlap may be numbered in another order than that of their instants: by no more."""
AFTER_ALL = "~"
"""Sorts after every id."""
_decode = msgspec.json.Decoder(Tally).decode


class StoredViews(ABC):
    """The reads of `insight.QueueStore`, `insight.RelationStore`, `insight.TallyStore` and of the audit trail."""

    _insight: Mapping[str, str]
    _api: Mapping[str, str]

    @abstractmethod
    async def _rows(self, query: str, *values: object) -> Sequence[Sequence[Any]]:
        """All rows of the answer. Not for hot paths: on SQLite it may wait behind other reads of history."""

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
