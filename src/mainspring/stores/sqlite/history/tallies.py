"""Tallies and error groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mainspring.core.answers import SeenFailure
from mainspring.core.runs.tallies import Tally, TallyKey
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "insight")
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
        def work(tx: Transaction) -> bool:
            row = tx.execute(_Q["tallied"]).fetchone()
            if (None if row is None else row[0]) != expected:
                return False
            tx.execute(_Q["note_tallied"], (position,))
            for key, tally in tallies.items():
                _add(tx, key, tally)
            seen = [
                (it.namespace, it.kind.id, it.kind.type, it.kind.message, it.kind.place, it.at, it.run_id)
                for it in failures
            ]
            tx.executemany(_Q["see_error"], seen)
            tx.executemany(_Q["keep_error_run"], [(each.namespace, each.kind.id, each.run_id) for each in failures])
            return True

        return await self._db.write(work, promised=False)


def _add(tx: Transaction, key: TallyKey, tally: Tally) -> None:
    row = tx.execute(_Q["counts"], key).fetchone()
    if row is not None:
        stored = _decode(row[0])
        stored.add(tally)
        tally = stored
    tx.execute(_Q["set_counts"], (*key, _encode(tally).decode()))
