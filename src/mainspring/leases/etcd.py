"""The lease on etcd: a key that a transaction creates only where it is absent, attached to a lease of etcd.

The token is the revision of the cluster at which the key was created, so it grows with each acquisition. Keep-alives
renew the lease, revoking it deletes the key, and a watch reports the deletion to the holder and to candidates.

etcd grants whole seconds, and never less than one and a half of its election timeout (2 s with the default timeout).
It also looks for expired leases only twice a second. So the key's value says which time to live the holder asked for,
and a candidate that sees by etcd's own clock that this time has passed revokes the lease itself.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import msgspec

from mainspring.adapter import AdapterContext
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.model import Hold
from mainspring.drivers.etcd.client import NOT_FOUND, Change, EtcdLink, EtcdRefused, decoded, encoded, read_url
from mainspring.errors import LeaseUnavailable
from mainspring.lease import LeaseTimes
from mainspring.leases.watching import WORTH_IT_S, Watches


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """The value of the key while a hold lasts."""

    owner: str
    asked_ms: int
    granted_s: int


class EtcdLease:
    """See `lease.Lease`; expiry is judged by the leader of etcd."""

    times: LeaseTimes | None = LeaseTimes(SECOND, 300 * MILLISECOND, 400 * MILLISECOND)
    watched: bool = True

    def __init__(self, url: str, context: AdapterContext) -> None:
        self._link = EtcdLink(read_url(url))
        self._clock = context.clock
        self._count = partial(context.count, "leases")
        self._watches = Watches()
        self._unanswered: dict[str, tuple[str, Duration, str]] = {}
        """By key: owner, time to live and lease of etcd of the last attempt to create it that was not answered."""

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        key = self._key(name)
        found = await self._get(key)
        if found is not None and self._unanswered.get(key) == (owner, ttl, found.get("lease")):
            del self._unanswered[key]  # Of several callers, one takes it up.
            hold = await self._take_up(name, found, owner, ttl)
        else:
            free = found is None or await self._expire(found)
            hold = await self._create(name, key, owner, ttl) if free else None
        self._count("refused" if hold is None else "taken")
        return hold

    async def _take_up(self, name: str, found: dict[str, Any], owner: str, ttl: Duration) -> Hold | None:
        """The key that an unanswered attempt of this owner created: otherwise a slow etcd would keep it from everybody
        until it expires, and again after the next attempt."""
        kept = await self._keep_alive(found["lease"])
        return Hold(name, owner, int(found["create_revision"]), ttl, self._clock.now() + ttl) if kept else None

    async def _create(self, name: str, key: str, owner: str, ttl: Duration) -> Hold | None:
        granted = await self._link.call("/v3/lease/grant", {"TTL": math.ceil(ttl / SECOND) + 1, "ID": 0})
        mark = Mark(owner, ttl // MILLISECOND, int(granted["TTL"]))
        put = {"key": key, "value": encoded(msgspec.json.encode(mark).decode()), "lease": granted["ID"]}
        absent = {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        look = {"request_range": {"key": key}}
        create = {"compare": [absent], "success": [{"request_put": put}], "failure": [look]}
        try:
            answer = await self._link.call("/v3/kv/txn", create)
        except BaseException:
            self._unanswered[key] = owner, ttl, granted["ID"]
            raise
        if answer.get("succeeded"):
            return Hold(name, owner, int(answer["header"]["revision"]), ttl, self._clock.now() + ttl)
        for found in answer["responses"][0]["response_range"].get("kvs", ()):
            if found["lease"] == granted["ID"]:  # The first endpoint did so, and another one was asked again.
                return Hold(name, owner, int(found["create_revision"]), ttl, self._clock.now() + ttl)
        await self._revoke(granted["ID"])
        return None

    async def _expire(self, found: dict[str, Any]) -> bool:
        """Revoke the lease of a key whose holder has not renewed it for the time to live that it asked for; whether
        that was so. etcd rounds the remaining time down to whole seconds."""
        mark = _read_mark(found)
        spare_ms = mark.granted_s * 1000 - mark.asked_ms
        if spare_ms < 1000:
            return False
        left = await self._link.call("/v3/lease/timetolive", {"ID": found["lease"]})
        if (int(left.get("TTL", 0)) + 1) * 1000 > spare_ms:
            return False
        await self._revoke(found["lease"])
        return True

    async def renew(self, hold: Hold) -> Hold | None:
        found = await self._find(hold)
        renewed = found is not None and await self._keep_alive(found["lease"])
        self._count("renewed" if renewed else "lost")
        return msgspec.structs.replace(hold, expires_at=self._clock.now() + hold.ttl) if renewed else None

    async def _keep_alive(self, lease: str) -> bool:
        """Whether a lease of etcd still lived, and was renewed."""
        kept = await self._link.call("/v3/lease/keepalive", {"ID": lease})
        return int(kept.get("result", {}).get("TTL", 0)) > 0

    async def release(self, hold: Hold) -> None:
        found = await self._find(hold)
        if found is not None:
            await self._revoke(found["lease"])
        self._count("released")

    def on_lost(self, hold: Hold, callback: Callable[[str], None]) -> Callable[[], None]:
        def see(change: Change) -> None:
            if change.deleted:
                callback(f"etcd has deleted the key of {hold.name}")

        key = self._key(hold.name)
        return self._watches.begin(lambda: self._link.watch(key, hold.token + 1), see, after_s=WORTH_IT_S)

    def on_free(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        occupied = False

        def see(exists: bool) -> None:
            nonlocal occupied
            if occupied and not exists:
                callback()
            occupied = exists

        return self._watches.begin(lambda: self._follow(self._key(name)), see)

    async def _follow(self, key: str) -> AsyncGenerator[bool, None]:
        """Whether a key exists: now, and after each change."""
        answer = await self._link.call("/v3/kv/range", {"key": key})
        yield bool(answer.get("kvs"))
        async for change in self._link.watch(key, int(answer["header"]["revision"]) + 1):
            yield not change.deleted

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`."""
        answer = await self._link.call("/v3/maintenance/status", {})
        return ServerFacts(f"etcd {answer.get('version', 'of unknown version')}")

    async def close(self) -> None:
        await self._watches.close()
        await self._link.close()

    def _key(self, name: str) -> str:
        return self._link.key(f"leases/{name}")

    async def _get(self, key: str) -> dict[str, Any] | None:
        answer = await self._link.call("/v3/kv/range", {"key": key})
        found: list[dict[str, Any]] = answer.get("kvs", [])
        return found[0] if found else None

    async def _find(self, hold: Hold) -> dict[str, Any] | None:
        """The key, if it is still that of this hold."""
        found = await self._get(self._key(hold.name))
        if found is None or int(found["create_revision"]) != hold.token:
            return None
        return found if _read_mark(found).owner == hold.owner else None

    async def _revoke(self, lease: str) -> None:
        try:
            await self._link.call("/v3/lease/revoke", {"ID": lease})
        except EtcdRefused as error:
            if error.code != NOT_FOUND:
                raise


def _read_mark(found: dict[str, Any]) -> Mark:
    try:
        return msgspec.json.decode(decoded(found.get("value", "")), type=Mark)
    except (msgspec.DecodeError, ValueError) as error:
        key = decoded(found["key"])
        raise LeaseUnavailable(f"the key {key!r} of etcd is not a lease of Mainspring: choose another path") from error
