"""Submissions, and looking at runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from mainspring.core.model import Attempt, LogLine, NewRun, Run
from mainspring.core.states import FINAL, State
from mainspring.errors import Conflict, NotFound
from mainspring.store import RunFilter
from mainspring.stores.run_rows import IDEMPOTENCY_KEPT, fingerprint, noted, other_request, run_of
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.database import Database
from mainspring.stores.sqlite.endings import cancel_run
from mainspring.stores.sqlite.inbox import ACCEPT, accepted, fits
from mainspring.stores.sqlite.intake import insert_runs
from mainspring.stores.sqlite.trail import note
from mainspring.stores.sqlite.transaction import Transaction

_Q = load_queries("sqlite", "runs")
_encode = msgspec.json.Encoder().encode


class Runs:
    """See `store.RunStore`."""

    _db: Database

    async def submit(self, runs: Sequence[NewRun]) -> list[str]:
        alone = len(runs) == 1
        if alone and fits(runs[0]) and await self._db.accept(ACCEPT, accepted(runs[0])):
            return [runs[0].id]
        return await self._db.write(lambda tx: _submit(tx, runs), quick=alone)

    async def get_run(self, namespace: str, run_id: str) -> Run:
        row = await self._db.read(lambda tx: tx.execute(_Q["get"], (run_id,)).fetchone())
        if row is None or row[1] != namespace:
            raise NotFound(f"there is no run {run_id}: `mainspring run list` shows those that are kept")
        return run_of(row)

    async def find_runs(self, namespace: str, prefix: str, limit: int = 2) -> list[str]:
        def work(tx: Transaction) -> list[str]:
            if not prefix:
                return []
            values = {"namespace": namespace, "prefix": prefix, "limit": limit}
            rows = tx.execute(_Q["find_prefix"], values).fetchall() or tx.execute(_Q["find_suffix"], values).fetchall()
            return [row[0] for row in rows]

        return await self._db.read(work)

    async def list_runs(self, where: RunFilter) -> list[Run]:
        return await self._db.read(lambda tx: _list_runs(tx, where))

    async def count_runs(self, namespace: str) -> dict[State, int]:
        return dict(await self._db.read(lambda tx: tx.execute(_Q["count_states"], (namespace,)).fetchall()))

    async def list_attempts(self, run_id: str) -> list[Attempt]:
        rows = await self._db.read(lambda tx: tx.execute(_Q["attempts"], (run_id,)).fetchall())
        return [Attempt(row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8]) for row in rows]

    async def list_logs(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[tuple[int, LogLine]]:
        rows = await self._db.read(lambda tx: tx.execute(_Q["logs"], (run_id, after, limit)).fetchall())
        return [(row[0], LogLine(*row[1:])) for row in rows]

    async def upstream_runs(self, run_id: str) -> list[str]:
        return [row[0] for row in await self._db.read(lambda tx: tx.execute(_Q["upstreams_of"], (run_id,)).fetchall())]

    async def gate_holders(self, namespace: str, gate: str) -> tuple[int, int]:
        row = await self._db.read(lambda tx: tx.execute(_Q["gate"], (namespace, gate)).fetchone())
        if row is None:
            raise NotFound(f"there is no gate {gate}")
        return row[0], row[1]

    async def request_cancel(self, namespace: str, run_id: str, reason: str) -> State:
        def work(tx: Transaction) -> State:
            row = tx.execute(_Q["get"], (run_id,)).fetchone()
            if row is None or row[1] != namespace:
                raise NotFound(f"there is no run {run_id}: `mainspring run list` shows those that are kept")
            state = cancel_run(tx, run_id, reason)
            if state is None:
                raise Conflict(f"run {run_id} has ended already ({row[6]}): there is nothing to cancel")
            return state

        return await self._db.write(work)

    async def finished(self, run_ids: Collection[str]) -> list[Run]:
        ids = _encode(list(run_ids)).decode()
        return [run_of(row) for row in await self._db.read(lambda tx: tx.execute(_Q["finished"], (ids,)).fetchall())]


def _submit(tx: Transaction, runs: Sequence[NewRun]) -> list[str]:
    if not any(run.idempotency_key for run in runs):
        insert_runs(tx, runs)
        note(tx, noted(runs, tx.events))
        return [run.id for run in runs]
    answers, fresh = [], []
    for run in runs:
        answer = _recall(tx, run)
        if answer is None:
            answer = run.id
            fresh.append(run)
            _remember(tx, run)
        answers.append(answer)
    insert_runs(tx, fresh)
    note(tx, noted(fresh, tx.events))
    return answers


def _recall(tx: Transaction, run: NewRun) -> str | None:
    """The id that this idempotency key was answered with before."""
    if run.idempotency_key is None:
        return None
    row = tx.execute(_Q["recall"], (run.namespace, run.idempotency_key, tx.now)).fetchone()
    if row is None:
        return None
    if row[0] != fingerprint(run):
        raise other_request(run.idempotency_key, row[1])
    return str(row[1])


def _remember(tx: Transaction, run: NewRun) -> None:
    if run.idempotency_key is not None:
        row = (run.namespace, run.idempotency_key, fingerprint(run), run.id, tx.now + IDEMPOTENCY_KEPT)
        tx.execute(_Q["remember"], row)


def _list_runs(tx: Transaction, where: RunFilter) -> list[Run]:
    values = {
        "namespace": where.namespace,
        "before": where.before,
        "job": where.job,
        "task": where.task,
        "tag": where.tag,
        "states": ",".join(where.states),
        "limit": where.limit,
    }
    rows = []
    if not where.states or not FINAL.issuperset(where.states):
        rows += tx.execute(_Q["list_active"], values).fetchall()
    if not where.states or not FINAL.isdisjoint(where.states):
        rows += tx.execute(_Q["list_finished"], values).fetchall()
    rows.sort(key=lambda row: str(row[0]), reverse=True)
    return [run_of(row) for row in rows[: where.limit]]
