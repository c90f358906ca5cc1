"""The lease as an object of Kubernetes: `coordination.k8s.io/v1`, `kubernetes://namespace/name`.

The API server judges no expiry. As in client-go, each candidate notes by its own monotonic clock when it last saw the
object change, and takes the lease once its duration has passed without a change. Clocks that differ do no harm, only
clocks that run at different speeds. Writes carry the `resourceVersion` that they replace, so of two one is refused.

The token is the `resourceVersion` of the write that acquired the lease: it grows, also where the object was deleted in
between. A leader's writes do not rest on it, since the store numbers the terms.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import re
import time
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from mainspring.adapter import AdapterContext
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import SECOND, Duration, parse_duration
from mainspring.core.model import Hold
from mainspring.drivers.kubernetes.client import CONFLICT, NOT_FOUND, KubernetesLink, KubernetesRefused
from mainspring.drivers.kubernetes.config import find_access
from mainspring.errors import InvalidInput
from mainspring.lease import LeaseTimes
from mainspring.leases.watching import WORTH_IT_S, Watches

OPTIONS: Final = ("timeout", "renew_deadline", "kubeconfig", "context")
DEADLINE: Final = 2 / 3
"""The share of the lease's duration within which a holder must renew it, as 10 s of 15 s."""
TRANSIENT: Final = ("user:", "firing:", "doctor-")
"""Names of locks: there may be any number of them, so releasing one deletes its object. Leadership keeps its object,
which counts the transitions."""
LONGEST_NAME: Final = 253
JUST_AFTER_S: Final = 0.01


class _Seen(msgspec.Struct):
    """A version of the object, and since when this process knows it."""

    version: str
    since: float


class _WrittenLease(msgspec.Struct):
    """The object as this process last wrote it."""

    lease: dict[str, Any]
    duration: int
    """The lease's duration in whole seconds."""


class KubernetesLease:
    """See `lease.Lease`; expiry is judged by each candidate's own clock, from when it last saw a change."""

    times: LeaseTimes | None = LeaseTimes(15 * SECOND, 2 * SECOND, 2 * SECOND)
    watched: bool = True

    def __init__(self, url: str, context: AdapterContext) -> None:
        parts = urlsplit(url)
        options = _read_options(url, parts.query)
        self._prefix = parts.path.strip("/") or "mainspring"
        access = find_access(options)
        namespace = parts.netloc or access.namespace
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        timeout_s = parse_duration(options.get("timeout", "2s"), "lease: timeout") / SECOND
        deadline = options.get("renew_deadline")
        self._deadline = None if deadline is None else parse_duration(deadline, "lease: renew_deadline")
        self._link = KubernetesLink(access, timeout_s)
        self._clock = context.clock
        self._count = partial(context.count, "leases")
        self._watches = Watches()
        self._seen: dict[str, _Seen] = {}
        self._held: dict[tuple[str, str, int], _WrittenLease] = {}

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        hold = await self._acquire(name, owner, ttl)
        self._count("refused" if hold is None else "taken")
        return hold

    async def _acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        found = await self._get(name)
        if found is not None and self._left_s(name, found) > 0:
            return None
        duration = max(math.ceil(ttl / SECOND), 1)
        lease = self._taken(name, f"{owner}_{os.urandom(6).hex()}", duration, found)
        written = await self._write(lease, new=found is None)
        if written is None:
            return None
        self._observe(name, written)
        token = int(written["metadata"]["resourceVersion"])
        self._held[name, owner, token] = _WrittenLease(written, duration)
        given = min(ttl, self._deadline or round(ttl * DEADLINE))
        return Hold(name, owner, token, given, self._clock.now() + given)

    def _taken(self, name: str, identity: str, duration: int, found: dict[str, Any] | None) -> dict[str, Any]:
        """The object with a new holder."""
        now = _now()
        old = {} if found is None else found.get("spec", {})
        metadata = {"name": self._object(name), "annotations": {"mainspring/name": name}}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata if found is None else {**found["metadata"], **metadata},
            "spec": {
                "holderIdentity": identity,
                "leaseDurationSeconds": duration,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0 if found is None else old.get("leaseTransitions", 0) + 1,
            },
        }

    async def renew(self, hold: Hold) -> Hold | None:
        key = (hold.name, hold.owner, hold.token)
        held = self._held.get(key)
        renewed = None if held is None else await self._renew(held)
        if held is None or renewed is None:
            self._held.pop(key, None)
            self._count("lost")
            return None
        held.lease = renewed
        self._observe(hold.name, renewed)
        self._count("renewed")
        return msgspec.structs.replace(hold, expires_at=self._clock.now() + hold.ttl)

    async def _renew(self, held: _WrittenLease) -> dict[str, Any] | None:
        """Write the object anew. A version that is not ours may be that of a renewal whose reply was lost."""
        written = await self._write(_renewed(held.lease, held.duration))
        if written is not None:
            return written
        found = await self._get_object(held.lease["metadata"]["name"])
        if found is None or _holder(found) != _holder(held.lease):
            return None
        return await self._write(_renewed(found, held.duration))

    async def release(self, hold: Hold) -> None:
        held = self._held.pop((hold.name, hold.owner, hold.token), None)
        if held is not None and not await self._free(hold.name, held.lease):
            found = await self._get_object(held.lease["metadata"]["name"])
            if found is not None and _holder(found) == _holder(held.lease):
                await self._free(hold.name, found)
        self._count("released")

    async def _free(self, name: str, lease: dict[str, Any]) -> bool:
        """Free the lease unless the object has another version by now; returns whether it did."""
        metadata = lease["metadata"]
        if name.startswith(TRANSIENT):
            known = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
            path = f"{self._path}/{metadata['name']}"
            return await self._try("DELETE", path, {"preconditions": known}) is not None
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
        return await self._write({**lease, "spec": spec}) is not None

    def on_lost(self, hold: Hold, callback: Callable[[str], None]) -> Callable[[], None]:
        held = self._held.get((hold.name, hold.owner, hold.token))
        identity = "" if held is None else _holder(held.lease)

        def see(lease: dict[str, Any] | None) -> None:
            if lease is None or _holder(lease) != identity:
                now = "no longer exists" if lease is None else f"belongs to {_holder(lease) or 'no holder'}"
                callback(f"the Lease of {hold.name} {now}")

        return self._watches.begin(lambda: self._watch(hold.name), see, after_s=WORTH_IT_S)

    def on_free(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        alarm: asyncio.TimerHandle | None = None
        occupied = False

        def see(lease: dict[str, Any] | None) -> None:
            """A holder that died writes no more: the end of its time is not an event of the API server."""
            nonlocal alarm, occupied
            if alarm is not None:
                alarm.cancel()
            left_s = 0.0 if lease is None else self._left_s(name, lease)
            if left_s > 0:
                alarm = loop.call_later(left_s + JUST_AFTER_S, callback)
            elif occupied:
                callback()
            occupied = left_s > 0

        stop_watching = self._watches.begin(lambda: self._watch(name), see)

        def stop() -> None:
            stop_watching()
            if alarm is not None:
                alarm.cancel()

        return stop

    async def _watch(self, name: str) -> AsyncGenerator[dict[str, Any] | None, None]:
        """The object now, and whenever it changes; None where there is none."""
        found = await self._get(name)
        yield found
        version = "0" if found is None else found["metadata"]["resourceVersion"]
        chosen = f"metadata.name={self._object(name)}"
        async for kind, lease in self._link.watch(self._path, version, fieldSelector=chosen):
            yield None if kind == "DELETED" else lease

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`."""
        answer = await self._link.request("GET", "/version")
        return ServerFacts(f"Kubernetes {answer.get('gitVersion', 'of unknown version')}")

    async def close(self) -> None:
        await self._watches.close()
        await self._link.close()

    def _left_s(self, name: str, lease: dict[str, Any]) -> float:
        """The seconds until the holder's time is over, by this process' clock; 0 without a holder."""
        seen = self._observe(name, lease)
        if not _holder(lease):
            return 0.0
        duration_s = float(lease["spec"].get("leaseDurationSeconds", 1))
        return max(seen.since + duration_s - time.monotonic(), 0.0)

    def _observe(self, name: str, lease: dict[str, Any]) -> _Seen:
        version = lease["metadata"]["resourceVersion"]
        seen = self._seen.get(name)
        if seen is None or seen.version != version:
            seen = self._seen[name] = _Seen(version, time.monotonic())
        return seen

    async def _get(self, name: str) -> dict[str, Any] | None:
        found = await self._get_object(self._object(name))
        if found is None:
            self._seen.pop(name, None)
        return found

    async def _get_object(self, name: str) -> dict[str, Any] | None:
        return await self._try("GET", f"{self._path}/{name}", None)

    async def _write(self, lease: dict[str, Any], *, new: bool = False) -> dict[str, Any] | None:
        """The object as it was written; None if another version has been written meanwhile."""
        path = self._path if new else f"{self._path}/{lease['metadata']['name']}"
        return await self._try("POST" if new else "PUT", path, lease)

    async def _try(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
        try:
            return await self._link.request(method, path, body)
        except KubernetesRefused as error:
            if error.status in (NOT_FOUND, CONFLICT):
                return None
            raise

    def _object(self, name: str) -> str:
        return f"{self._prefix}-{encoded(name)}"


def encoded(name: str) -> str:
    """A name of any characters as part of a DNS name: other characters than a-z and 0-9 as `-` and their bytes."""
    written = re.sub(rb"[^a-z0-9]", lambda found: b"-%02x" % found[0][0], name.encode()).decode()
    if len(written) <= LONGEST_NAME // 2:
        return written
    return f"{written[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def _read_options(url: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query))
    for option in options.keys() - set(OPTIONS):
        raise InvalidInput("lease", url, f"has an option {option!r}", f"the options are {', '.join(OPTIONS)}")
    return options


def _renewed(lease: dict[str, Any], duration: int) -> dict[str, Any]:
    return {**lease, "spec": {**lease["spec"], "leaseDurationSeconds": duration, "renewTime": _now()}}


def _holder(lease: dict[str, Any]) -> str:
    return lease.get("spec", {}).get("holderIdentity") or ""


def _now() -> str:
    """The present time, for people and other clients: nothing here is decided by it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
