"""Workers as rows, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.core.model import TaskNotice, Worker
from mainspring.stores.rows.job_rows import to_json
from mainspring.stores.rows.transaction import Transaction

_COLUMNS = tuple(name for name in Worker.__struct_fields__ if name not in ("priorities", "notices"))
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_pools = msgspec.json.Decoder(tuple[tuple[int, int], ...]).decode
_notice = msgspec.json.Decoder(TaskNotice).decode


def worker_values(worker: Worker, tx: Transaction) -> tuple[object, ...]:
    """What is stored of a worker that has just been heard of."""
    lists = [tx.list_of(names) for names in (worker.queues, worker.regions, worker.tasks)]
    return (
        *(worker.id, worker.namespace, worker.app, worker.host, worker.pid, *lists, worker.concurrency, worker.running),
        *(worker.state, worker.started_at or tx.now, tx.given, to_json(worker.notices), worker.version),
        to_json(worker.pools),
    )


def read_worker(row: Sequence[Any]) -> Worker:
    """A worker from its row."""
    values = dict(zip(_COLUMNS, row, strict=True))
    values["pools"] = _pools(values["pools"])
    for name in ("queues", "regions", "tasks"):
        values[name] = read_names(values[name])
    return msgspec.convert(values, Worker)


def read_announced(row: Sequence[Any]) -> Worker:
    """A worker from its row, with what it announced of a task in the last column."""
    return msgspec.structs.replace(read_worker(row[:-1]), notices=(_notice(row[-1]),))


def read_names(stored: str | Sequence[str]) -> tuple[str, ...]:
    """Names from a column: SQLite has them as JSON."""
    return _names(stored) if isinstance(stored, str) else tuple(stored)
