"""Tallies and error groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mainspring.core.answers import SeenFailure
from mainspring.core.runs.tallies import Tally, TallyKey
from mainspring.core.text import clean
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "insight")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Tally).decode


class Tallies:
    """See `insight.TallyStore`."""

    _db: Database

    async def add_tallies(
        self,
        expected: int | None,
        position: int,
        tallies: Mapping[TallyKey, Tally],
        failures: Sequence[SeenFailure],
    ) -> bool:
        async def work(tx: Transaction) -> bool:
            first = expected is None
            noted = _Q["begin_tallied"] if first else _Q["note_tallied"]
            if not await tx.run(noted, position, *(() if first else (expected,))):
                return False  # The row is locked from here on: of two processes that count, one succeeds.
            if tallies:
                await _add(tx, tallies)
            if failures:
                await tx.run(_Q["see_errors"], *_groups(failures))
                rows = [(each.namespace, each.kind.id, each.run_id) for each in failures]
                await tx.run(_Q["keep_error_runs"], *zip(*rows, strict=True))
            return True

        return await self._db.write(work, durable=False)


async def _add(tx: Transaction, tallies: Mapping[TallyKey, Tally]) -> None:
    keys = sorted(tallies)
    columns = [*zip(*keys, strict=True)]
    stored = {TallyKey(*row[:4]): _decode(row[4]) for row in await tx.fetch(_Q["counts"], *columns)}
    for key in keys:
        stored.setdefault(key, Tally({}, {}, {})).add(tallies[key])
    await tx.run(_Q["set_counts"], *columns, [_encode(stored[key]).decode() for key in keys])


def _groups(failures: Sequence[SeenFailure]) -> list[tuple[Any, ...]]:
    """The failures of each group together, as columns: a statement changes a row only once."""
    found: dict[tuple[str, str], list[SeenFailure]] = {}
    for each in failures:
        found.setdefault((each.namespace, each.kind.id), []).append(each)
    rows = []
    for (namespace, group), members in sorted(found.items()):
        last, kind = max(members, key=lambda each: each.at), members[0].kind
        texts = (clean(kind.type), clean(kind.message), clean(kind.place))
        first_at = min(each.at for each in members)
        rows.append((namespace, group, *texts, first_at, last.at, len(members), last.run_id))
    return [*zip(*rows, strict=True)]
