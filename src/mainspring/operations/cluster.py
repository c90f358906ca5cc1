"""What can be asked about the nodes that plan."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainspring.core.instants import from_datetime
from mainspring.core.load.leadership import LEASE
from mainspring.core.model import TermRecord
from mainspring.operations import records
from mainspring.operations.context import InContext
from mainspring.operations.values.from_rows import moment, node_record, term_records

MOST_TERMS = 1_000


class Cluster(InContext):
    """What `/v1/cluster` and `mainspring cluster` show."""

    async def show(self, limit: int = 20) -> records.Cluster:
        """The leader, the nodes that check in, and at most `limit` of the latest terms: those of the scheduler, and of
        the namespace's own leaderships."""
        store = await self._context.open()
        known = term_records([term for term in await store.terms(None, MOST_TERMS) if self._is_visible(term)])
        return records.Cluster(
            leaders=[term for term in known if term.ended_at is None],
            nodes=[node_record(node, store.now()) for node in await store.nodes()],
            terms=known[:limit],
            changes=len(known) - len({term.name for term in known}),
            longest_gap_s=max((term.gap_s for term in known if term.gap_s is not None), default=None),
        )

    async def terms(self, since: datetime | None = None, limit: int = 50) -> Sequence[records.Term]:
        """The latest terms, newest first: those that lasted at `since` or later."""
        store = await self._context.open()
        known = term_records([term for term in await store.terms(None, MOST_TERMS) if self._is_visible(term)])
        first = moment(0 if since is None else from_datetime(since, "since"))
        return [term for term in known if term.ended_at is None or term.ended_at >= first][:limit]

    def _is_visible(self, term: TermRecord) -> bool:
        own = f"{self._context.namespace}/"
        return term.name == LEASE or term.name.startswith((f"{LEASE}:", own))
