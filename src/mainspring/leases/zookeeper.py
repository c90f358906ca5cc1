"""The lease on ZooKeeper: an ephemeral node of its holder's session, and a queue of candidates behind it.

The token is the transaction id at which the node was created, so it grows with each acquisition. Candidates wait in a
queue by ephemeral sequential nodes. Each watches the one before it, and the first watches the holder: a lease that
becomes free wakes one candidate, not all.

The timeout of a session is the time to live of its leases, so there is a session for each time to live. A holder is
notified as soon as its session is suspended. kazoo keeps sessions alive from its own thread, even if the holder no
longer renews: a second thread deletes the nodes of holds that were not renewed in time, and of acquisitions whose
outcome is unknown.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from mainspring.adapter import AdapterContext
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.model import Hold
from mainspring.drivers.zookeeper.session import NodeExistsError, NoNodeError, Session, ask_about_server, read_url
from mainspring.errors import LeaseUnavailable
from mainspring.lease import LeaseTimes
from mainspring.leases.watching import WORTH_IT_S, Watches

LOOK_AGAIN_S: Final = 5.0
"""A candidate looks at its place in the queue this often even if no watch reports a change."""
SETTLE_S: Final = 0.01
SWEEP_AGAIN_S: Final = 0.1
"""Between attempts to delete a node while ZooKeeper does not answer."""


class _OwnNode(msgspec.Struct):
    """A node that this process created."""

    session: Session
    path: str
    mark: bytes
    """What the node says: of one acquisition only."""
    ttl_s: float
    until: float
    """The monotonic second until which its holder has renewed it."""


class ZooKeeperLease:
    """See `lease.Lease`; a hold ends with its session, or where it is not renewed in time."""

    times: LeaseTimes | None = LeaseTimes(600 * MILLISECOND, 200 * MILLISECOND, 500 * MILLISECOND)
    watched: bool = True

    def __init__(self, url: str, context: AdapterContext) -> None:
        self._address = read_url(url)
        self._root = "/" + (self._address.path.strip("/") or "mainspring")
        self._clock = context.clock
        self._count = partial(context.count, "leases")
        self._sessions: dict[Duration, Session] = {}
        self._held: dict[tuple[str, str, int], _OwnNode] = {}
        self._sweeper = _Sweeper(self._held)
        self._watches = Watches()
        self._lock = threading.Lock()

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        session = self._session(ttl)
        path, mark = self._path(name), f"{owner} {os.urandom(8).hex()}".encode()
        held = _OwnNode(session, path, mark, ttl / SECOND, 0.0)
        try:
            stat = await self._create(session, path, mark)
        except NodeExistsError:
            self._count("refused")
            return None
        except BaseException:  # Also where the caller is cancelled: the node may exist, or come to exist.
            self._sweeper.sweep(held)
            raise
        held.ttl_s = min(held.ttl_s, session.timeout_s)
        held.until = time.monotonic() + held.ttl_s
        self._sweeper.keep((name, owner, stat.czxid), held)
        self._count("taken")
        given = min(ttl, round(session.timeout_s * SECOND))
        return Hold(name, owner, stat.czxid, given, self._clock.now() + given)

    async def _create(self, session: Session, path: str, mark: bytes) -> Any:
        for first in (True, False):
            try:
                return (await session.call("create", path, mark, ephemeral=True, include_data=True))[1]
            except NoNodeError:
                if not first:
                    raise
                await self._make_folder(session, path.rpartition("/")[0])
        raise AssertionError("unreachable")

    async def _make_folder(self, session: Session, path: str) -> None:
        with suppress(NodeExistsError):
            await session.call("create", path, b"", makepath=True)

    async def renew(self, hold: Hold) -> Hold | None:
        held = self._sweeper.extend((hold.name, hold.owner, hold.token))
        stat = None if held is None else await held.session.call("exists", held.path)
        good = held is not None and stat is not None and stat.czxid == hold.token
        self._count("renewed" if good else "lost")
        return msgspec.structs.replace(hold, expires_at=self._clock.now() + hold.ttl) if good else None

    async def release(self, hold: Hold) -> None:
        held = self._sweeper.drop((hold.name, hold.owner, hold.token))
        if held is not None:
            stat = await held.session.call("exists", held.path)
            if stat is not None and stat.czxid == hold.token and stat.ephemeralOwner == held.session.id:
                with suppress(NoNodeError):
                    await held.session.call("delete", held.path)
            self._sweeper.forget(held)
        self._count("released")

    def on_lost(self, hold: Hold, callback: Callable[[str], None]) -> Callable[[], None]:
        held = self._held.get((hold.name, hold.owner, hold.token))
        if held is None:
            return lambda: None
        loop, session, path = asyncio.get_running_loop(), held.session, held.path

        def doubt(reason: str) -> None:
            with suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(callback, reason)

        async def watch() -> AsyncGenerator[str, None]:
            while True:
                stat, changed = await session.watch(path)
                if stat is None or stat.czxid != hold.token:
                    yield f"ZooKeeper has deleted the node of {hold.name}"
                    changed = asyncio.Event()  # Once is enough.
                await changed.wait()

        stop_session, stop_watch = session.on_doubt(doubt), self._watches.begin(watch, callback, after_s=WORTH_IT_S)

        def stop() -> None:
            stop_session()
            stop_watch()

        return stop

    def on_free(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        held_here = self._holds(self._path(name))
        return self._watches.begin(lambda: self._wait_in_queue(name, held_here), lambda _: callback())

    async def _wait_in_queue(self, name: str, occupied: bool) -> AsyncGenerator[None, None]:
        """Yields when the lease becomes free and this candidate is the first in the queue. A holder leaves it."""
        session = self._session(self.times.ttl if self.times else SECOND)
        queue, holder = f"{self._root}/line", self._path(name)
        place: str | None = None
        try:
            while True:
                if self._holds(holder):
                    if place is not None:
                        await _leave(session, f"{queue}/{place}")
                        place = None
                    before = holder
                else:
                    place = place or await self._join(session, queue, name)
                    before = await self._before(session, queue, place, holder)
                stat, changed = await session.watch(before)
                if stat is None and before != holder:
                    continue
                if place is not None and before == holder and self._is_own(stat):
                    await asyncio.sleep(SETTLE_S)  # The acquisition is about to return; then this node leaves.
                    continue
                if stat is None and occupied:
                    yield
                occupied = stat is not None or before != holder
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOOK_AGAIN_S)
                    occupied = True  # Even if it is free again by the next look.
        finally:
            if place is not None:
                await _leave(session, f"{queue}/{place}")

    def _holds(self, path: str) -> bool:
        return any(each.path == path for each in tuple(self._held.values()))

    def _is_own(self, stat: Any) -> bool:
        return stat is not None and stat.ephemeralOwner in {each.id for each in tuple(self._sessions.values())}

    async def _join(self, session: Session, queue: str, name: str) -> str:
        await self._make_folder(session, queue)
        path = await session.call("create", f"{queue}/{_encoded(name)}:", b"", ephemeral=True, sequence=True)
        return str(path).rpartition("/")[2]

    async def _before(self, session: Session, queue: str, place: str, holder: str) -> str:
        """The node to watch: that of the candidate before this one, or the holder's."""
        name = place.rpartition(":")[0]
        places = sorted(each for each in await session.call("get_children", queue) if each.rpartition(":")[0] == name)
        if place not in places:
            raise LeaseUnavailable(f"{self._address.shown}: the session is a new one: join the queue again")
        index = places.index(place)
        return f"{queue}/{places[index - 1]}" if index else holder

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`."""
        said = await asyncio.to_thread(ask_about_server, self._address)
        found = re.search(r"version: ([\w.]+)", said)
        return ServerFacts(f"ZooKeeper {found[1]}" if found else f"ZooKeeper, which does not say: {said[:100]}")

    async def close(self) -> None:
        """The sessions end, and with them what they hold."""
        await self._watches.close()
        sessions, self._sessions = self._sessions, {}
        await asyncio.to_thread(self._sweeper.close)
        await asyncio.gather(*(asyncio.to_thread(session.close) for session in sessions.values()))

    def _session(self, ttl: Duration) -> Session:
        with self._lock:
            if ttl not in self._sessions:
                self._sessions[ttl] = Session(self._address, ttl / SECOND)
            return self._sessions[ttl]

    def _path(self, name: str) -> str:
        return f"{self._root}/leases/{_encoded(name)}"


class _Sweeper:
    """A thread that deletes nodes of this process that have no holder: not renewed in time, or of unknown outcome."""

    def __init__(self, held: dict[tuple[str, str, int], _OwnNode]) -> None:
        self._held = held
        self._orphans: list[_OwnNode] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def keep(self, key: tuple[str, str, int], held: _OwnNode) -> None:
        """Delete it once its time is over."""
        with self._changed:
            self._held[key] = held
            self._begin()

    def extend(self, key: tuple[str, str, int]) -> _OwnNode | None:
        """Its holder renews it; None if its time was over."""
        with self._changed:
            held = self._held.get(key)
            if held is not None:
                held.until = time.monotonic() + held.ttl_s
            return held

    def drop(self, key: tuple[str, str, int]) -> _OwnNode | None:
        """Its holder releases it. It stays an orphan until it is surely gone."""
        with self._changed:
            held = self._held.pop(key, None)
            if held is not None:
                self._orphans.append(held)
                self._begin()
            return held

    def forget(self, held: _OwnNode) -> None:
        """Note that the node of a hold has been deleted."""
        with self._changed, suppress(ValueError):
            self._orphans.remove(held)

    def sweep(self, held: _OwnNode) -> None:
        """Delete it, if it exists."""
        with self._changed:
            self._orphans.append(held)
            self._begin()

    def _begin(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="mainspring-zookeeper", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                for key, held in tuple(self._held.items()):
                    if held.until <= now:
                        self._orphans.append(self._held.pop(key))
                pause_s = min((held.until - now for held in self._held.values()), default=None)
                if not self._orphans and not self._closed:
                    self._changed.wait(pause_s)
                if self._closed:
                    return
                orphans = tuple(self._orphans)
            for orphan in orphans:
                if orphan.session.connected and self._delete(orphan):
                    self.forget(orphan)
            with self._changed:
                if self._orphans and not self._closed:
                    self._changed.wait(SWEEP_AGAIN_S)

    def _delete(self, orphan: _OwnNode) -> bool:
        """Whether the node is surely gone, or another's."""
        try:
            data, stat = orphan.session.call_now("get", orphan.path)
            if data == orphan.mark and stat.ephemeralOwner == orphan.session.id:
                orphan.session.call_now("delete", orphan.path)
        except NoNodeError:
            return True
        except Exception:  # Whatever it is: the next attempt, or the end of the session, settles it.
            return False
        return True

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(5)


async def _leave(session: Session, path: str) -> None:
    with suppress(NoNodeError, LeaseUnavailable):
        await session.call("delete", path)


def _encoded(name: str) -> str:
    """A name of any characters as that of a node."""
    return quote(name, safe="").replace(".", "%2E")
