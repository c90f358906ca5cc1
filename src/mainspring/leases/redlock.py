"""Redlock: a lease on several Redis servers that know nothing of each other, held by the node that holds most of them.

A minority that is down, slow or empty is no trouble. An acquisition asks all servers for their last token, chooses one
that is greater than what most of them know, and sets it on all; so two acquisitions share a server, which refuses the
smaller token. What counts is the time that is left after the servers were asked, less a share for the drift of their
clocks. If no node got a majority, all release theirs and try again after a random pause.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from mainspring.adapter import AdapterContext
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.model import Hold
from mainspring.drivers.redis.client import PORT, RedisLink, Script, read_url
from mainspring.errors import InvalidInput, LeaseUnavailable
from mainspring.lease import Unwatched
from mainspring.leases.redis import FREE, NOW, REMEMBER, RENEW, in_milliseconds, lock_keys, mark
from mainspring.process.urls import show_url

T = TypeVar("T")

DRIFT = 0.01
DRIFT_LEAST = 2 * MILLISECOND
"""How much faster than ours the clock of a server may run, of the time to live; and what Redis' own counting costs."""
PATIENCE = 0.1
"""How long one server is waited for at most, of the time to live: a dead one must not use up what the others give."""
TRIES = 3
PAUSE_S = 0.05

LOOK = Script(
    NOW
    + """
return {redis.call('EXISTS', KEYS[1]), math.max(tonumber(redis.call('GET', KEYS[2])) or 0, now())}
"""
)
TAKE = Script(
    """
if tonumber(ARGV[4]) <= (tonumber(redis.call('GET', KEYS[2])) or 0) then
  return 0
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[3])
return 1
"""
)


class RedlockLease(Unwatched):
    """See `lease.Lease`; it expires when most servers say so."""

    def __init__(self, url: str, context: AdapterContext) -> None:
        self._links = [RedisLink(read_url(each, "lease"), LeaseUnavailable) for each in _split(url)]
        self._shown = show_url(url)
        self._most = len(self._links) // 2 + 1
        self._clock = context.clock
        self._last = 0
        self._count = partial(context.count, "leases")
        self._lock = threading.Lock()

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        hold = await self._acquire(name, owner, ttl)
        self._count("refused" if hold is None else "taken")
        return hold

    async def _acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        for number in range(TRIES):
            if number:
                await self._clock.sleep(random.uniform(0, PAUSE_S))
            looks = await self._ask(ttl, lambda link: link.run(LOOK, lock_keys(link, name)))
            if sum(exists for exists, _ in looks) >= self._most:
                return None
            hold = Hold(name, owner, self._new_token(max(token for _, token in looks)), ttl, 0)
            taken = await self._take(hold)
            if taken is not None:
                return taken
            await self._free(hold)
        return None

    async def renew(self, hold: Hold) -> Hold | None:
        began = self._clock.monotonic()
        given = await self._ask(hold.ttl, lambda link: link.run(RENEW, lock_keys(link, hold.name)[:1], *_terms(hold)))
        most = sum(answer is not None for answer in given) >= self._most
        renewed = self._valid(hold, began) if most else None
        self._count("lost" if renewed is None else "renewed")
        return renewed

    async def release(self, hold: Hold) -> None:
        await self._free(hold)
        self._count("released")

    async def _free(self, hold: Hold) -> None:
        """Everywhere: a server whose answer was lost may have given it."""
        await self._ask(hold.ttl, lambda link: link.run(FREE, lock_keys(link, hold.name)[:1], mark(hold)), least=0)

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`: the versions of all that answer, and the clock of one."""
        found = await self._ask(SECOND, lambda link: link.describe())
        versions = ", ".join(sorted({each.version for each in found}))
        return ServerFacts(f"{versions} on {len(found)} of {len(self._links)} servers", found[0].now)

    async def close(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links))

    async def _take(self, hold: Hold) -> Hold | None:
        began = self._clock.monotonic()
        words = (*_terms(hold), max(REMEMBER, in_milliseconds(hold.ttl)), hold.token)
        given = await self._ask(hold.ttl, lambda link: link.run(TAKE, lock_keys(link, hold.name), *words), least=0)
        return self._valid(hold, began) if sum(given) >= self._most else None

    def _valid(self, hold: Hold, began: float) -> Hold | None:
        """The hold until the first server may think that it has ended; None if that is over."""
        spent = round((self._clock.monotonic() - began) * SECOND)
        left = hold.ttl - spent - round(hold.ttl * DRIFT) - DRIFT_LEAST
        return msgspec.structs.replace(hold, expires_at=self._clock.now() + left) if left > 0 else None

    def _new_token(self, known: int) -> int:
        """Greater than what is known; and never the same twice in one process, since it distinguishes holds of one
        owner apart."""
        with self._lock:
            self._last = max(known, self._last) + 1
            return self._last

    async def _ask(
        self, ttl: Duration, question: Callable[[RedisLink], Awaitable[Any]], least: int | None = None
    ) -> list[Any]:
        """The answers of all servers that answer in time; LeaseUnavailable if they are fewer than a majority."""
        patience_s = min(ttl / SECOND * PATIENCE, self._links[0].place.timeout_s)
        calls = [asyncio.wait_for(question(link), patience_s) for link in self._links]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        good = [answer for answer in answers if not isinstance(answer, BaseException)]
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, LeaseUnavailable | TimeoutError):
                raise answer
        if len(good) < (self._most if least is None else least):
            bad = [str(answer) or "no answer in time" for answer in answers if isinstance(answer, BaseException)]
            raise LeaseUnavailable(
                f"{self._shown}: {len(good)} of {len(self._links)} servers answer, and {self._most} are needed: "
                + "; ".join(bad)
            )
        return good


def _terms(hold: Hold) -> tuple[str, int]:
    return mark(hold), in_milliseconds(hold.ttl)


def _split(url: str) -> list[str]:
    """The URLs of the servers: what is written for one (user, database, options) is so for each that does not say."""
    scheme, _, rest = url.partition("://")
    where, question, query = rest.partition("?")
    where, slash, path = where.partition("/")
    hosts = [each for each in where.split(",") if each]
    if len(hosts) < 3 or len(set(hosts)) < len(hosts):
        remedy = f"name three or five: redlock://host1:{PORT},host2:{PORT},host3:{PORT}"
        raise InvalidInput("lease", show_url(url), "does not name several servers", remedy)
    login = hosts[0].rpartition("@")[0]
    named = [each if "@" in each or not login else f"{login}@{each}" for each in hosts]
    kind = "rediss" if scheme == "redlocks" else "redis"
    return [f"{kind}://{each}{slash}{path}{question}{query}" for each in named]
