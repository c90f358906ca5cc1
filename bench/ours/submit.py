"""Submissions: one after another beside a bare committed insert, many at a time, and in bulk."""

from __future__ import annotations

import asyncio
import sqlite3
import time

from bench.harness.script import Answer, Params, rate_of, rate_of_async
from bench.ours.opening import measure, new_app, path_of

SLICES = 5
"""The bare insert and ours take turns this often, so that a slow moment of the disk hits both."""
WARM = 20_000
"""Enough to have written the log once round: a log that still grows is slower to sync, and the two grow unequally."""
TOGETHER = 100
BATCH = 10_000


class Bare:
    """The least that a durable submission can cost: one row of the same size, inserted and committed."""

    def __init__(self, path: str, body: str, *, durable: bool, warm: int = WARM) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._body = body
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA wal_autocheckpoint = 4000")  # as Mainspring has it
        self._connection.execute("CREATE TABLE runs (seq INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        self._connection.execute("PRAGMA synchronous = OFF")
        for _ in range(warm):
            self.insert()
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")

    def insert(self) -> None:
        """One row, committed."""
        self._connection.execute("INSERT INTO runs (body) VALUES (?)", (self._body,))

    def rate(self, seconds: float) -> float:
        """Committed inserts a second."""
        return rate_of(self.insert, seconds)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _stored_row(path: str) -> str:
    """The bytes of one run as Mainspring keeps it."""
    with sqlite3.connect(path) as connection:
        row = connection.execute("SELECT * FROM runs LIMIT 1").fetchone()
    connection.close()
    return "".join("" if value is None else str(value) for value in row)


@measure
async def single(params: Params) -> Answer:
    """`await task.submit()` one after another, alternating with the bare insert."""
    app = new_app(params)

    @app.task
    async def noop() -> None:
        """Nothing."""

    seconds = params["seconds"] / SLICES
    ours, bare = [], []
    async with app:
        for _ in range(WARM // TOGETHER):
            await noop.submit_many([{} for _ in range(TOGETHER)])
        body = _stored_row(str(path_of(params)))
        rival = Bare(f"{path_of(params)}.bare", body, durable=app.settings.durable)
        for _ in range(SLICES):
            bare.append(rival.rate(seconds))
            ours.append(await rate_of_async(noop.submit, seconds))
        rival.close()
    return {"rates": ours, "bare": bare}


@measure
async def together(params: Params) -> Answer:
    """As `single`, but a hundred callers at a time, as in a web server: they share commits."""
    app = new_app(params)

    @app.task
    async def noop() -> None:
        """Nothing."""

    async with app:
        await noop.submit()
        callers = [rate_of_async(noop.submit, params["seconds"]) for _ in range(TOGETHER)]
        return {"rates": [sum(await asyncio.gather(*callers))]}


@measure
async def bulk(params: Params) -> Answer:
    """`submit_many`, ten thousand at a time."""
    app = new_app(params)

    @app.task
    async def noop() -> None:
        """Nothing."""

    rates = []
    async with app:
        await noop.submit()
        for _ in range(params["batches"]):
            began = time.perf_counter()
            await noop.submit_many([{} for _ in range(BATCH)])
            rates.append(BATCH / (time.perf_counter() - began))
    return {"rates": rates}
