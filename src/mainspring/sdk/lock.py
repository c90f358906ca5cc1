"""Locks for users: `async with app.lock("payroll"):`. A lease with a watchdog that renews it while the body runs.

What it promises: the lock has no second holder while the first renews it in time, and a holder that can no longer be
sure of it is notified, and cancelled, before another can have it. What it cannot: stop a process that stands still and
then writes on. For that there is `token`, which grows with each holder: let the written resource refuse smaller ones.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from random import SystemRandom
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mainspring.clock import SystemClock
from mainspring.core.instants import MILLISECOND, SECOND, Duration, format_duration, parse_duration
from mainspring.core.load.leadership import trusted_until
from mainspring.core.model import Hold
from mainspring.core.runs.retry import Length
from mainspring.errors import Conflict, InvalidInput, LockLost, LockRefused, MainspringError
from mainspring.lease import Lease
from mainspring.process.metrics import Metrics
from mainspring.services.loop import within
from mainspring.store import Store
from mainspring.wiring import name_process, open_lease

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring

log = logging.getLogger("mainspring")
_random = SystemRandom()
_NOWHERE = Metrics()

SHORTEST_TTL = 100 * MILLISECOND
RENEWALS = 3
"""How often a lock is renewed within its time to live."""
RETRIES = 20
"""After a failed renewal, the lock is renewed again this often within its time to live."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.004, 0.05
"""Between looks whether a lock is free; the real pause is random, so that waiting callers do not ask in step."""


class Locks:
    """The locks of an app, on its lease, which is opened when the first is taken."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self._lease: Lease | None = None
        self._store: Store | None = None
        self._opening = threading.Lock()

    def make(self, name: str, ttl: Length, wait: Length) -> Lock:
        """A lock that is not taken yet."""
        if not isinstance(name, str) or not name:
            raise InvalidInput("name", name, "is no name for a lock", "give a text")
        lifetime, patience = parse_duration(ttl, "ttl"), parse_duration(wait, "wait")
        if lifetime < SHORTEST_TTL:
            remedy = f"choose {format_duration(SHORTEST_TTL)} or more"
            raise InvalidInput("ttl", ttl, "is too short to be renewed in time", remedy)
        return Lock(self, name, lifetime, patience)

    async def open(self) -> tuple[Lease, Metrics]:
        """The lease, and where to count."""
        store = await self.app.open()
        with self._opening:
            if self._lease is None or self._store is not store:  # After a fork the store is another one.
                self._store = store
                self._lease = open_lease(self.app.settings, store, self.app.clock)
            return self._lease, store.metrics

    async def close(self) -> None:
        """Let go of connections; what is held runs out by itself."""
        lease, self._lease, self._store = self._lease, None, None
        if lease is not None:
            await lease.close()


class Lock:
    """See `Mainspring.lock`. To be entered as an async context; once at a time."""

    def __init__(self, locks: Locks, name: str, ttl: Duration, wait: Duration) -> None:
        self.name = name
        self.lost = asyncio.Event()
        """Set as soon as the lock can no longer be relied on."""
        self._locks = locks
        self._clock = locks.app.clock
        self._ttl = ttl
        self._wait = wait
        self._metrics = _NOWHERE
        self._hold: Hold | None = None
        self._trusted_until = self._held_since = 0.0
        self._watchdog: asyncio.Task[None] | asyncio.TimerHandle | None = None
        self._stop_listening: Callable[[], None] = lambda: None
        self._why = ""
        self._body: asyncio.Task[object] | None = None
        self._cancelled = False
        self.on_lost: Callable[[], None] = self._cancel_body

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}{f' token {self._hold.token}' if self._hold else ''}>"

    @property
    def token(self) -> int:
        """Greater than that of every earlier holder: for fencing your own writes. Conflict while it is not held."""
        if self._hold is None:
            raise Conflict(f"lock {self.name!r} is not held: its token is known within its `with`")
        return self._hold.token

    @property
    def owner(self) -> str:
        """The name of this holder. Conflict while it is not held."""
        if self._hold is None:
            raise Conflict(f"lock {self.name!r} is not held")
        return self._hold.owner

    @property
    def lease_name(self) -> str:
        """Its name on the lease."""
        return f"user:{self._locks.app.settings.namespace}:{self.name}"

    async def lease(self) -> Lease:
        """The lease that keeps it."""
        return (await self._locks.open())[0]

    def check(self) -> None:
        """LockLost if it can no longer be relied on: before doing what cannot be undone."""
        if self.lost.is_set() or self._hold is None or self._clock.monotonic() >= self._trusted_until:
            raise LockLost(f"lock {self.name!r} is not held any more: {self._why or 'its time is over'}")

    async def __aenter__(self) -> Self:
        await self.acquire()
        self._body = asyncio.current_task()
        self._cancelling = self._body.cancelling() if self._body else 0
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        try:
            await self.release()
        except asyncio.CancelledError as cancelled:
            kind, error = asyncio.CancelledError, cancelled
        by_us = self._cancelled and body is not None and body.uncancel() <= self._cancelling
        if kind is asyncio.CancelledError and not by_us and error is not None:
            raise error  # The cancellation came from outside: it propagates.
        if self.lost.is_set() and (kind is None or kind is asyncio.CancelledError):
            raise LockLost(f"lock {self.name!r} was lost before its body ended: {self._why}") from error

    async def acquire(self) -> None:
        """Take it; LockRefused if another holds it for as long as this one waits."""
        if self._watchdog is not None:
            raise Conflict(f"lock {self.name!r} is held by this very object: make another to wait for it")
        lease, self._metrics = await self._locks.open()
        began = self._clock.monotonic()
        try:
            sent_at, hold = await self._insist(lease, began + self._wait / SECOND)
        except LockRefused:
            self._metrics.count("locks", "refused")
            raise
        finally:
            self._note(self._metrics.lock_wait.add, began)
        self._metrics.count("locks", "acquired")
        self._hold, self._held_since = hold, self._clock.monotonic()
        self._trusted_until = trusted_until(sent_at, hold.ttl)
        self._why, self._cancelled = "", False
        self.lost.clear()
        self._watch(lease, hold)

    async def release(self) -> None:
        """Let go; of what is not held, nothing."""
        hold, self._hold = self._hold, None
        self._stop_listening()
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if hold is None:
            return
        self._note(self._metrics.lock_held.add, self._held_since)
        lease, _ = await self._locks.open()
        await _release(lease, hold)

    def _note(self, add: Callable[[Duration], None], since: float) -> None:
        with self._metrics.lock:
            add(round((self._clock.monotonic() - since) * SECOND))

    async def _insist(self, lease: Lease, until: float) -> tuple[float, Hold]:
        owner = name_process(_random)
        pause_s = FIRST_PAUSE_S
        while True:
            sent_at, trouble, hold = self._clock.monotonic(), None, None
            try:
                hold = await self._ask(lease, owner)
            except MainspringError as error:
                trouble = error
            now = self._clock.monotonic()
            if hold is not None:
                if now < trusted_until(sent_at, hold.ttl):
                    return sent_at, hold
                await lease.release(hold)  # The answer came too late: another may hold it by now.
            if now >= until:
                waited = format_duration(self._wait) if self._wait else "no time"
                said = f"lock {self.name!r} is held by another, and was waited for {waited}"
                raise trouble or LockRefused(f"{said}: try later, or give it more wait=")
            await self._clock.sleep(min(pause_s * _random.uniform(0.5, 1.0), until - now))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _ask(self, lease: Lease, owner: str) -> Hold | None:
        """One try. If it is cancelled meanwhile, it gives back the lock that still arrives."""
        asking = asyncio.ensure_future(lease.acquire(self.lease_name, owner, self._ttl))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(lambda asked: _give_back(lease, asked))
            raise

    def _watch(self, lease: Lease, hold: Hold) -> None:
        """Most locks are held for less time than it takes until the first renewal: these need no task for it."""
        loop = asyncio.get_running_loop()

        def begin(at_once: bool = False) -> None:
            self._watchdog = loop.create_task(self._keep(lease, hold, at_once=at_once))

        def doubt(_reason: str) -> None:
            if self._watchdog is not None and not self.lost.is_set():
                self._watchdog.cancel()
                begin(at_once=True)

        self._stop_listening = lease.on_lost(hold, doubt)
        if isinstance(self._clock, SystemClock):
            self._watchdog = loop.call_later(hold.ttl / SECOND / RENEWALS, begin)
        else:
            begin()

    async def _keep(self, lease: Lease, hold: Hold, *, at_once: bool) -> None:
        """Renew until cancelled; where that does not succeed in time, it is lost. `at_once`: it is in doubt."""
        since_s = self._clock.monotonic() - self._held_since
        pause_s = 0.0 if at_once else max(hold.ttl / SECOND / RENEWALS - since_s, 0.0)
        why = "it could not be renewed in time"
        while True:
            left_s = self._trusted_until - self._clock.monotonic()
            await self._clock.sleep(max(min(pause_s, left_s), 0.0))
            sent_at = self._clock.monotonic()
            if sent_at >= self._trusted_until:
                return self._lose(why)
            try:
                renewed = await within(self._clock, self._trusted_until - sent_at, lease.renew(hold))
            except MainspringError as error:
                pause_s, why = hold.ttl / SECOND / RETRIES, f"it could not be renewed in time: {error}"
                continue
            if renewed is None:
                return self._lose("it has passed to another holder, or its server has lost it")
            self._trusted_until = trusted_until(sent_at, hold.ttl)
            pause_s = hold.ttl / SECOND / RENEWALS

    def _lose(self, why: str) -> None:
        self._why = why
        self._metrics.count("locks", "lost")
        log.warning("lock %r is lost: %s", self.name, why)
        self.lost.set()
        self.on_lost()

    def _cancel_body(self) -> None:
        if self._body is not None:
            self._cancelled = True
            self._body.cancel(f"lock {self.name!r} is lost: {self._why}")


def _give_back(lease: Lease, asked: asyncio.Future[Hold | None]) -> None:
    if not asked.cancelled() and asked.exception() is None and (hold := asked.result()) is not None:
        _partings.add(parting := asyncio.ensure_future(_release(lease, hold)))
        parting.add_done_callback(_partings.discard)


_partings: set[asyncio.Future[None]] = set()


async def _release(lease: Lease, hold: Hold) -> None:
    try:
        await lease.release(hold)
    except MainspringError as error:
        log.warning("lock %r could not be released, and runs out by itself: %s", hold.name, error)
