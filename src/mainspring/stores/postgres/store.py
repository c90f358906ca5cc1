"""The PostgreSQL store: the whole port on one database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Self, TypeVar

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.process.metrics import Metrics
from mainspring.store import JoiningStore, SubmissionListener
from mainspring.stores.postgres.claims.dispatch import Dispatching
from mainspring.stores.postgres.claims.pressure import Pressure
from mainspring.stores.postgres.claims.work import Claiming
from mainspring.stores.postgres.definitions.plans import Plans
from mainspring.stores.postgres.ends.recovery import Maintenance
from mainspring.stores.postgres.ends.reports import Reports
from mainspring.stores.postgres.history.runs import Runs
from mainspring.stores.postgres.history.tallies import Tallies
from mainspring.stores.postgres.server.database import Database, Limits
from mainspring.stores.postgres.server.leases import Leases
from mainspring.stores.rows.transaction import Transaction
from mainspring.stores.rows.views import StoredViews
from mainspring.stores.rows.writes import StoredWrites
from mainspring.stores.sql import load_migrations

_LIMITS = Limits()
T = TypeVar("T")


class PostgresStore(
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
    dialect="postgres",
):
    """See `mainspring.store.Store`. Several processes use one database; the store's clock is the server's."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._listener: SubmissionListener | None = None
        self.metrics = Metrics()

    @classmethod
    async def open(
        cls,
        url: str,
        clock: Clock,
        *,
        limits: Limits = _LIMITS,
        listen: str | None = None,
        given_time: bool = False,
        durable: bool = True,
    ) -> Self:
        """Connect, and bring the schema up to date.

        `listen` is a URL where LISTEN works, if the store's own is a pooler's. With `given_time` the server lives in
        the time of `clock`: for tests. `durable=False` lets a crash of the server, not of this program, take the last
        commits with it.
        """
        database = await Database.open(url, clock, limits=limits, listen=listen, given_time=given_time, durable=durable)
        return cls(database)

    def now(self) -> Instant:
        return self._db.clock.now()

    def surely_now(self) -> Instant:
        return self._db.clock.surely_now()

    async def _rows(self, query: str, *values: object) -> Sequence[Sequence[Any]]:
        return await self._db.read(lambda tx: tx.fetch(query, *values))

    _few_rows = _rows

    def _list_of(self, texts: Collection[str]) -> list[str]:
        return list(texts)

    async def _change(
        self, work: Callable[[Transaction], Awaitable[T]], *, durable: bool = True, quick: bool = False
    ) -> T:
        return await self._db.write(work, durable=durable)

    async def _look(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._db.read(work)

    async def number_events(self, limit: int) -> int:
        ((count,),) = await self._db.alone(self._events["number"], limit)
        return int(count)

    async def schema(self) -> tuple[int, int]:
        ((version,),) = await self._rows(self._api["schema"])
        return int(version), load_migrations("postgres")[-1].version

    def on_change(self, listener: Callable[[], None], *, remote: bool = True) -> Callable[[], None]:
        return self._db.on_change(listener, remote=remote)

    @property
    def joining(self) -> JoiningStore:
        return self

    def on_accepted(self, listener: SubmissionListener) -> None:
        self._listener = listener
        self._db.on_accepted = listener.accepted

    def announce(self) -> None:
        self._db.announce()

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        await self._db.close()
