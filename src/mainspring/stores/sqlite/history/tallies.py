"""Tallies and error groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mainspring.core.answers import SeenFailure
from mainspring.core.ids import encode_time
from mainspring.core.instants import Duration
from mainspring.core.model import Run
from mainspring.core.runs.tallies import Tally, TallyKey
from mainspring.stores.rows.run_rows import run_of
from mainspring.stores.rows.views import AFTER_ALL
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "insight")
_RUNS = load_queries("sqlite", "runs")
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
            tx.executemany(
                _Q["see_error"],
                [
                    (
                        each.namespace,
                        each.kind.id,
                        each.kind.type,
                        each.kind.message,
                        each.kind.place,
                        each.at,
                        each.run_id,
                    )
                    for each in failures
                ],
            )
            tx.executemany(_Q["keep_error_run"], [(each.namespace, each.kind.id, each.run_id) for each in failures])
            return True

        return await self._db.write(work, promised=False)

    async def runs_of_error(
        self, namespace: str, error: str, *, since: str | None = None, before: str | None = None, limit: int = 50
    ) -> list[Run]:
        def work(tx: Transaction) -> list[Run]:
            values = (namespace, error, since or "", before or AFTER_ALL, limit)
            ids = [row[0] for row in tx.execute(_Q["runs_of_error"], values)]
            found = [run_of(row) for row in tx.execute(_RUNS["finished"], (_encode(ids).decode(),))]
            return sorted(found, key=lambda run: run.id, reverse=True)

        return await self._db.look_back(work)


def _add(tx: Transaction, key: TallyKey, tally: Tally) -> None:
    row = tx.execute(_Q["counts"], key).fetchone()
    if row is not None:
        stored = _decode(row[0])
        stored.add(tally)
        tally = stored
    tx.execute(_Q["set_counts"], (*key, _encode(tally).decode()))


def forget_tallies(tx: Transaction, keep: Duration, keep_runs: Duration, limit: int) -> int:
    """Forget tallies, groups and their runs past their retention."""
    gone = tx.execute(_Q["forget_tallies"], (tx.now - keep, limit)).rowcount
    gone += tx.execute(_Q["forget_error_runs"], (encode_time(max(tx.now - keep_runs, 0)), limit)).rowcount
    return gone + tx.execute(_Q["forget_errors"], (tx.now - keep,)).rowcount
