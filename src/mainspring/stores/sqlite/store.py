"""The SQLite store: the whole port on one file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeVar

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.process.metrics import Metrics
from mainspring.store import JoiningStore, SubmissionListener
from mainspring.stores.rows.job_rows import to_json
from mainspring.stores.rows.transaction import Transaction
from mainspring.stores.rows.views import StoredViews
from mainspring.stores.rows.writes import StoredWrites
from mainspring.stores.sqlite.claims.dispatch import Dispatching
from mainspring.stores.sqlite.claims.pressure import Pressure
from mainspring.stores.sqlite.claims.work import Claiming
from mainspring.stores.sqlite.definitions.plans import Plans
from mainspring.stores.sqlite.ends.recovery import Maintenance
from mainspring.stores.sqlite.ends.reports import Reports
from mainspring.stores.sqlite.file.connection import schema_status
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.inline import InlineDatabase
from mainspring.stores.sqlite.file.leases import Leases
from mainspring.stores.sqlite.file.transaction import at_once
from mainspring.stores.sqlite.history.runs import Runs
from mainspring.stores.sqlite.history.tallies import Tallies

T = TypeVar("T")


class SqliteStore(
    Plans,
    Runs,
    Claiming,
    Dispatching,
    Reports,
    Maintenance,
    Pressure,
    Leases,
    Tallies,
    StoredViews,
    StoredWrites,
    dialect="sqlite",
):
    """See `mainspring.store.Store`. Several processes may open one file; on SQLite the store's clock is the host's.

    `durable=False` lets a power cut (not a crash of the program) take the last commits with it. `inline=True` runs
    everything on the caller's thread, for simulation.
    """

    def __init__(
        self, path: str, clock: Clock, *, durable: bool = True, inline: bool = False, schedule_s: float = 5.0
    ) -> None:
        super().__init__()
        self._db = (InlineDatabase if inline else Database)(path, clock, durable=durable)
        self._db.schedule_s = schedule_s
        self.now: Callable[[], Instant] = clock.now
        self.surely_now: Callable[[], Instant] = clock.now
        self.metrics = Metrics()
        self.joining: JoiningStore | None = None

    async def _rows(self, query: str, *values: object) -> Sequence[Sequence[Any]]:
        return await self._db.look_back(lambda tx: tx.execute(query, values).fetchall())

    async def _few_rows(self, query: str, *values: object) -> Sequence[Sequence[Any]]:
        return await self._db.read(lambda tx: tx.execute(query, values).fetchall())

    def _list_of(self, texts: Collection[str]) -> str:
        return to_json(list(texts))

    async def _change(
        self, work: Callable[[Transaction], Awaitable[T]], *, durable: bool = True, quick: bool = False
    ) -> T:
        return await self._db.write(lambda tx: at_once(work(tx)), promised=durable, quick=quick)

    async def _look(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._db.read(lambda tx: at_once(work(tx)))

    async def number_events(self, limit: int) -> int:
        """One writer at a time, so commit order is known at commit, and only what is public has to be moved on."""

        async def work(tx: Transaction) -> int:
            count, last = await tx.fetchrow(self._events["unpublished"], limit) or (0, 0)
            if count:
                await tx.run(self._events["publish"], last)
            return int(count)

        # A read first: taking the write lock to find nothing would cost an idle node a commit per look.
        found = await self._db.read(lambda tx: tx.execute(self._events["unpublished"], (1,)).fetchone(), quick=True)
        return await self._change(work, durable=False, quick=True) if found[0] else 0

    async def schema(self) -> tuple[int, int]:
        status = await self._db.read(lambda tx: schema_status(tx.connection))
        return status.version, status.latest

    def on_change(self, listener: Callable[[], None], *, remote: bool = True) -> Callable[[], None]:
        return self._db.on_change(listener)

    def on_accepted(self, listener: SubmissionListener) -> None:
        self._listener = listener

    def announce(self) -> None:
        """Every commit calls the listeners to changes already."""

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        await self._db.close()
