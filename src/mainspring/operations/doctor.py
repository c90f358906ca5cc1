"""Whether the parts that the settings name work: what was found, how long the answer took, and what to do."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple
from uuid import uuid4

import msgspec

from mainspring.adapter import Describes
from mainspring.broker import Broker, Notice, Place
from mainspring.cache import StatusCache
from mainspring.core.instants import SECOND, Duration, Instant
from mainspring.core.runs.priority import PRIORITIES
from mainspring.core.runs.status import Posting
from mainspring.errors import MainspringError
from mainspring.lease import Lease
from mainspring.sink import Sink

PATIENCE_S: Final = 15.0
SKEW_S: Final = 1.0
"""Clocks that differ by more than this make due times and claims confusing to read, although not wrong."""
SLOW_MS: Final = 200.0
"""A broker or cache that answers more slowly is treated as absent."""

REFUSED: Final = (
    r"(?i)access.?refused|access.?denied|authentic|authoriz|password|login|permission|forbidden|does not let|noperm"
)
AWAY: Final = (
    r"(?i)connect call failed|could not connect|connection attempts failed|connection refused|unable to bootstrap"
    r"|not known|no server|no answer"
)
"""Words of servers and drivers, by what an operator has to do."""

State = Literal["good", "warning", "failed", "unused"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one part."""

    part: str
    state: State
    where: str = ""
    version: str = ""
    """Product and version of the server, as far as it states them."""
    detail: str = ""
    remedy: str = ""
    took_ms: float | None = None


class Seen(NamedTuple):
    """What a look at a part that works finds."""

    detail: str
    version: str = ""
    skew: Duration | None = None
    """How far the clock of this machine is ahead of the server's, if the server reports the time."""


async def examine(part: str, where: str, look: Callable[[], Awaitable[Seen]]) -> list[Finding]:
    """Look at one part, and at the clock of its server. `look` raises what is wrong."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE_S):
            seen = await look()
    except TimeoutError:
        detail = f"no answer in {PATIENCE_S:g} s"
        return [Finding(part=part, state="failed", where=where, detail=detail, remedy=advise(part, detail))]
    except (MainspringError, OSError, ImportError) as error:
        detail = str(error).removeprefix(f"{where}: ")  # It is named already.
        return [Finding(part=part, state="failed", where=where, detail=detail, remedy=advise(part, detail))]
    took_ms = (time.monotonic() - began) * 1_000
    finding = Finding(part=part, state="good", where=where, version=seen.version, detail=seen.detail, took_ms=took_ms)
    return [finding] if seen.skew is None else [finding, judge_clock(part, seen.skew)]


async def look_at_adapter(
    open_it: Callable[[], Any], look: Callable[[Any], Awaitable[str]], now: Callable[[], Instant]
) -> Seen:
    """What `look` finds about an adapter, and what its server says of itself."""
    adapter = open_it()
    try:
        detail = await look(adapter)
        if not isinstance(adapter, Describes):
            return Seen(detail)
        try:
            server = await adapter.describe()
        except MainspringError as error:  # It works; a version is not worth a failure.
            return Seen(f"{detail}; its version is not known: {error}")
        detail = f"{detail}; {server.behind}" if server.behind else detail
        return Seen(detail, server.version, None if server.now is None else now() - server.now)
    finally:
        await adapter.close()


def advise(part: str, detail: str) -> str:
    """What to do about a part that failed with this text."""
    if "newer than this program" in detail:
        return "install a newer mainspring"
    if re.search(REFUSED, detail):
        return f"correct the user and password in `{part}`, or grant the permission that is missing"
    if "no such database" in detail:
        return f"create the database, or correct its name in `{part}`"
    if re.search(AWAY, detail):
        return f"start the server, or correct the host and port in `{part}`"
    return f"start the server, or correct the address, user and password in `{part}`"


async def look_at_broker(broker: Broker, place: Place | None = None) -> str:
    """Whether a broker answers and, with a place, takes a message there; then, whether it answers quickly. The message
    names no run, so that a worker that receives it claims nothing."""
    await broker.ping()
    if place is not None:
        await broker.publish([Notice("doctor", 0, *place, PRIORITIES[-1], 0)])
    began = time.monotonic()
    await broker.ping()
    took_ms = (time.monotonic() - began) * 1_000
    if took_ms > SLOW_MS:
        return f"answers in {took_ms:.0f} ms: slower than {SLOW_MS:g} ms, so that workers will ask the store"
    return f"answers in {took_ms:.1f} ms"


async def look_at_lease(lease: Lease) -> str:
    """Whether a lease can be taken, renewed and released."""
    hold = await lease.acquire(f"doctor-{uuid4().hex}", "doctor", 30 * SECOND)
    if hold is None:
        raise MainspringError("a lease that no process holds was refused")
    if await lease.renew(hold) is None:
        raise MainspringError("a lease that was just taken could not be renewed")
    await lease.release(hold)
    return "a lease was taken, renewed and released"


async def look_at_cache(cache: StatusCache) -> str:
    """Whether the status cache answers, and takes an entry. The entry is of its own epoch, which no reader
    asks for."""
    subject = f"doctor-{uuid4().hex}"
    mark, _ = await cache.read(subject)
    await cache.write("doctor", [Posting(subject, 0, SECOND, None)])
    return "takes entries" if mark is not None else "takes entries; no leader has filled it lately"


async def look_at_sink(sink: Sink) -> str:
    """Whether a sink answers."""
    await sink.ping()
    return "answers"


def judge_clock(part: str, skew: Duration) -> Finding:
    """Whether this machine and the server of a part agree on the time."""
    skew_s = skew / SECOND
    detail = f"this machine is {abs(skew_s) * 1_000:.0f} ms {'ahead of' if skew_s >= 0 else 'behind'} the {part}"
    if abs(skew_s) <= SKEW_S:
        return Finding(part="clock", state="good", detail=detail)
    return Finding(part="clock", state="warning", detail=detail, remedy="synchronise both machines by NTP")
