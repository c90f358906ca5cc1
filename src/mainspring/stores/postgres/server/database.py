"""Transactions: work gets a connection, the store's time and a list for its events; it is committed, or
nothing of it happened.

The store is used from several event loops (the services' own, the user's), and a connection belongs to one: each loop
has its own pool.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import asyncpg
import msgspec

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.core.model import Event, NewRun
from mainspring.errors import MainspringError, StoreError, StoreRefused, StoreUnavailable
from mainspring.stores.postgres.server.clock import GivenClock, ServerClock, StoreClock
from mainspring.stores.postgres.server.connection import IDLE_TIMEOUT_S, Connection, Server, connect, prepare
from mainspring.stores.postgres.server.errors import explain
from mainspring.stores.postgres.server.listener import Listener
from mainspring.stores.postgres.server.pool import Bounds, ConnectionPool, Waiting
from mainspring.stores.postgres.submissions.handover import Handover
from mainspring.stores.sql import load_queries

log = logging.getLogger("mainspring")

T = TypeVar("T")
Record: TypeAlias = Any
"""An `asyncpg.Record`."""

TRIES = 8
"""How often to try work that lost a conflict with another transaction."""
PARTING_S = 5.0
ACCEPTED = "accepted"
"""The notice of the procedure that a submission is committed, and not yet on the disk."""

_APPEND = load_queries("postgres", "events")["append"]
_TAKE_TURNS = load_queries("postgres", "api")["take_turns"]
_END_SUSPENDED = load_queries("postgres", "maintenance")["end_suspended"]
_TIME = "SELECT mainspring.store_now(NULL)"
_encode_events = msgspec.json.Encoder().encode


class _NotBegun(Exception):
    """A connection was lost before anything was done with it: another connection may work."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


@contextmanager
def _nothing_begun() -> Iterator[None]:
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError) as error:
        raise _NotBegun(error) from error


class Transaction:
    """What work sees."""

    dialect: ClassVar[str] = "postgres"
    __slots__ = ("changed", "connection", "events", "fetch", "fetchrow", "fetchval", "given", "now")

    def __init__(self, connection: Connection, now: Instant, given: Instant | None) -> None:
        self.connection = connection
        self.now = now
        """The server's time as this process estimates it, for everything but fencing."""
        self.given = given
        """What to pass to `mainspring.store_now`, by which leases and claims are judged."""
        self.events: list[Event] = []
        self.changed = False
        """Whether planners or workers may now have something to do."""
        self.fetch: Callable[..., Awaitable[list[Record]]] = connection.fetch
        self.fetchrow: Callable[..., Awaitable[Record | None]] = connection.fetchrow
        self.fetchval: Callable[..., Awaitable[Any]] = connection.fetchval

    async def run(self, query: str, *args: object) -> int:
        """Execute a statement; how many rows it touched."""
        status: str = await self.connection.execute(query, *args)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdecimal() else 0

    async def many(self, query: str, rows: Sequence[Sequence[object]]) -> None:
        """Execute a statement once per row, without waiting for each answer."""
        if rows:
            await self.connection.executemany(query, rows)

    async def take_turns(self, *names: str) -> None:
        """See `rows.transaction`."""
        await self.fetchval(_TAKE_TURNS, chr(1).join(names))

    def list_of(self, values: Collection[str] | Collection[int]) -> Sequence[object]:
        """See `rows.transaction`."""
        return list(values)

    async def append_events(self) -> None:
        """Keep the events, as one row."""
        if self.events:
            text = _encode_events(self.events).decode("utf-8", "replace")
            await self.connection.execute(_APPEND, len(self.events), text, self.now)


class Limits(NamedTuple):
    """How long calls may take, all of it: waiting for a connection, every statement, every repetition."""

    call_s: float = 15.0
    schedule_s: float = 5.0
    """The deadline of calls that schedule something: submissions, triggers, edits of jobs."""
    schedule_retries_s: tuple[float, ...] = (1.0, 2.0)
    """The pauses before a submission that the server did not answer is repeated, within its time."""
    pool: Bounds = Bounds()


BULK_PER_S = 1_000
"""A bulk submission gets one more second for each of these runs: every server writes them faster."""


_LIMITS = Limits()


class Database:
    """The server. `write` and `read` run work in a transaction each; writes are durable when they return."""

    on_accepted: Callable[[Sequence[NewRun]], None] | None = None
    """Announces submissions in place of this database: see `submissions`."""
    schedulers: tuple[float, Sequence[str]] = (-math.inf, ())
    """The holder of the scheduler's lease at a monotonic instant, as the last query of an idle worker returned it."""

    def __init__(self, server: Server, clock: Clock, *, limits: Limits, listen: str | None, given_time: bool) -> None:
        self.server = server
        self.clock: StoreClock = GivenClock(clock) if given_time else ServerClock(clock)
        self.waiting = Waiting()
        self.monotonic = clock.monotonic
        self.handover = Handover(clock.monotonic)
        self._limits = limits
        self._pools: dict[asyncio.AbstractEventLoop, ConnectionPool] = {}
        self._closed = False
        direct = listen or (None if server.pooled else server.url)
        self.listener = Listener(direct)
        # Behind a pooler no session keeps our settings.
        local = "".join(f"; SET LOCAL {setting}" for setting in server.settings) if server.pooled else ""
        self._begin, self._begin_reading = "BEGIN" + local, "BEGIN READ ONLY" + local
        # A session plans a statement anew for each of its first executions. A plan covers all days of history and takes
        # longer than the statement, so lists are planned once. Behind a pooler no session keeps a plan.
        planned = "" if server.pooled else "; SET LOCAL plan_cache_mode = force_generic_plan"
        self._begin_snapshot = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY{local}{planned}"
        self._begin_unsynced = f"BEGIN{local}; SET LOCAL synchronous_commit = off"

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
    ) -> Database:
        """Check that the database is ours, migrate it if necessary, and read the server's time."""
        server = (await prepare(url, clock.now(), durable=durable))._replace(statement_s=limits.call_s)
        database = cls(server, clock, limits=limits, listen=listen, given_time=given_time)
        if not given_time:
            await database.read(lambda tx: tx.fetchval(_TIME))
            await database._let_go_here()  # The loop that opens the store may end while the store stays open.
        return database

    async def write(
        self, work: Callable[[Transaction], Awaitable[T]], *, durable: bool = True, patient: bool = False
    ) -> T:
        """Run work in a transaction and commit it; errors undo all of it. `patient` work, for which no caller waits,
        may take any time; each of its statements is bounded.

        Work that lost against another transaction (a deadlock, a serialization failure) is run again from the start,
        so it must change nothing outside of its transaction. What is not `durable` may be lost with the server.
        """
        return await self._try(work, self._begin if durable else self._begin_unsynced, patient=patient)

    async def read(self, work: Callable[[Transaction], Awaitable[T]], *, consistent: bool = False) -> T:
        """Run work that only reads. With `consistent`, all of its queries see one snapshot."""
        if consistent:
            return await self._try(work, self._begin_snapshot, looks=True)
        return await self._try(work, self._begin_reading if self.server.pooled else "", looks=True)

    async def alone(self, query: str, *args: object, heard: Callable[[], None] | None = None) -> list[Record]:
        """Execute one statement that is a transaction by itself: two round trips fewer. Its events are part
        of the statement; `announce` afterwards what others may wait for. `heard` is called when the statement says so
        itself, before it has ended."""

        def work(tx: Transaction) -> Awaitable[list[Record]]:
            return tx.fetch(query, *args) if heard is None else _hearing(tx, heard, query, *args)

        return await self._try(work, self._begin if self.server.pooled else "")

    async def end_suspended(self) -> None:
        """End sessions whose suspended processes keep locks: see the query."""
        if any(await self.alone(_END_SUSPENDED, IDLE_TIMEOUT_S)):
            log.warning("ended sessions of processes that are suspended or cut off, and kept locks")

    async def schedule(self, call: Callable[[], Awaitable[T]], *, size: int = 1, again: bool = False) -> T:
        """Make a call that schedules something, within one deadline. If it may be repeated without harm (`again`), it
        is retried within the deadline while the server does not answer."""
        within_s = self._limits.schedule_s + (size - 1) / BULK_PER_S
        pauses, trouble = iter(self._limits.schedule_retries_s if again else ()), None
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        return await call()
                    except StoreUnavailable as error:
                        pause_s = None if isinstance(error, StoreRefused) else next(pauses, None)
                        if pause_s is None:
                            raise
                        trouble = error
                    await asyncio.sleep(pause_s)
        except TimeoutError:
            raise self._late(within_s, trouble) from trouble

    def _late(self, seconds: float, trouble: Exception | None = None) -> StoreUnavailable:
        why = trouble or f"{self.server.shown} is busy, or another session holds a lock on what is to be written"
        return StoreUnavailable(f"not done within {seconds:.3g} s, so given up: {why}. It may be tried again")

    def count_connections(self) -> tuple[int, int, int, int]:
        """The connection pools of all loops together: size, connections in use, idle connections, waiting callers."""
        pools = list(self._pools.values())
        return (
            sum(pool.size for pool in pools),
            sum(pool.in_use for pool in pools),
            sum(pool.idle for pool in pools),
            sum(pool.waiters for pool in pools),
        )

    def may_tell(self) -> bool:
        """Whether a transaction of one statement may notify others by itself. Behind a pooler it is not alone."""
        return not self.server.pooled and self.listener.may_tell()

    def announce(self) -> None:
        """After a commit: planners or workers, here and in other processes, may have something to do."""
        self.listener.call()
        self.listener.publish(self._pool())

    def on_change(self, listener: Callable[[], None], *, remote: bool = True) -> Callable[[], None]:
        """See the store port."""
        return self.listener.add(listener, remote=remote)

    async def close(self) -> None:
        """Finish what was begun and close all pools, on every loop."""
        if self._closed:
            return
        self._closed = True
        await self.listener.close()
        await self._let_go_here()
        for loop, pool in list(self._pools.items()):
            if loop.is_running():
                with suppress(Exception):  # A loop that ends meanwhile takes its connections with it.
                    closing = asyncio.run_coroutine_threadsafe(pool.close(), loop)
                    await asyncio.wait_for(asyncio.wrap_future(closing), PARTING_S)
        self._pools.clear()

    async def _let_go_here(self) -> None:
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def _pool(self) -> ConnectionPool:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            if self._closed:
                raise StoreUnavailable(f"{self.server.shown} has been closed by this program")
            for ended in [other for other in self._pools if other.is_closed()]:
                del self._pools[ended]
            pool = self._pools[loop] = ConnectionPool(lambda: connect(self.server), self._limits.pool, self.waiting)
        return pool

    async def _try(
        self, work: Callable[[Transaction], Awaitable[T]], begin: str, *, looks: bool = False, patient: bool = False
    ) -> T:
        if patient:
            return await self._repeat(work, begin, looks=looks)
        try:
            async with asyncio.timeout(self._limits.call_s):
                return await self._repeat(work, begin, looks=looks)
        except TimeoutError:
            raise self._late(self._limits.call_s) from None

    async def _repeat(self, work: Callable[[Transaction], Awaitable[T]], begin: str, *, looks: bool) -> T:
        for attempt in range(1, TRIES + 1):
            try:
                return await self._run(work, begin)
            except MainspringError:
                raise
            except _NotBegun as error:
                if attempt > 1:
                    raise self._explained(error.cause) from error.cause
            except Exception as error:
                explained = self._explained(error)
                # A read may be repeated; a write may already have happened.
                again = looks and attempt == 1 and isinstance(explained, StoreUnavailable)
                if attempt == TRIES or not (again or _is_worth_retrying(error)):
                    raise explained from error
            await asyncio.sleep(random.uniform(0, 0.002 * 2**attempt))
        raise AssertionError("unreachable")

    def _explained(self, error: Exception) -> Exception:
        return explain(error, self.server.url) or error

    async def _run(self, work: Callable[[Transaction], Awaitable[T]], begin: str) -> T:
        pool = self._pool()
        connection = await pool.take(work)
        try:
            if self.clock.is_stale():
                await self._ask_time(connection)
            tx = Transaction(connection, self.clock.now(), self.clock.given())
            answer = await self._transact(tx, work, begin) if begin else await work(tx)
        except BaseException as error:
            await self._recover(pool, connection, error)
            raise
        pool.give_back(connection)
        if tx.changed:
            self.announce()
        return answer

    async def _ask_time(self, connection: Connection) -> None:
        sent_at = self.monotonic()
        with _nothing_begun():
            if self.server.pooled:
                async with connection.transaction():
                    self.clock.learn(await connection.fetchval(_TIME), sent_at)
            else:
                self.clock.learn(await connection.fetchval(_TIME), sent_at)

    async def _transact(self, tx: Transaction, work: Callable[[Transaction], Awaitable[T]], begin: str) -> T:
        execute = tx.connection.execute
        with _nothing_begun():
            await execute(begin)
        answer = await work(tx)
        if tx.events:
            await tx.append_events()
        status = await execute("COMMIT")
        if status != "COMMIT":
            raise StoreError("a transaction was undone because of an error in it that was passed over")
        return answer

    async def _recover(self, pool: ConnectionPool, connection: Connection, error: BaseException) -> None:
        """Reset the connection for its next use, or close it if its state is unknown."""
        lost = connection.is_closed() or isinstance(error, _NotBegun | asyncpg.InternalClientError)
        if lost or getattr(error, "sqlstate", "") == "25006":
            # The server is gone, or has become a replica. The other connections are useless, too; new ones may find the
            # primary.
            pool.drop_idle()
        elif isinstance(error, Exception) and not isinstance(error, OSError):
            with suppress(Exception):
                if connection.is_in_transaction():
                    await connection.execute("ROLLBACK", timeout=PARTING_S)
                pool.give_back(connection)
                return
        else:  # No answer in time.
            pool.doubt_idle()
        pool.discard(connection)


async def _hearing(tx: Transaction, heard: Callable[[], None], query: str, *args: object) -> list[Record]:
    def hear(connection: object, message: asyncpg.PostgresLogMessage) -> None:
        if message.message == ACCEPTED:
            heard()

    tx.connection.add_log_listener(hear)
    try:
        return await tx.fetch(query, *args)
    finally:
        tx.connection.remove_log_listener(hear)


def _is_worth_retrying(error: BaseException) -> bool:
    """Whether the server's error allows a retry: the work lost a conflict, its statement was prepared before a
    migration, or a partition was attached while it waited to insert into the default one (no constraint has a name
    then)."""
    if isinstance(error, asyncpg.InvalidCachedStatementError | asyncpg.OutdatedSchemaCacheError):
        return True
    if isinstance(error, asyncpg.CheckViolationError) and error.constraint_name is None:
        return True
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in ("40001", "40P01")
