"""The lease on Redis: one key with a time to live, given by SET NX PX, and renewed and released by its owner only.

The token is a number that Redis raises with each acquisition, and never less than its clock in microseconds: so it also
grows where Redis has forgotten the last one, because it was restarted empty or a replica took over. That rests on the
clock of the server; a leader's writes do not rest on it, since terms are numbered by the store.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from mainspring.adapter import AdapterContext
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import DAY, MILLISECOND, Duration
from mainspring.core.model import Hold
from mainspring.drivers.redis.client import RedisLink, Script, read_url
from mainspring.errors import LeaseUnavailable
from mainspring.lease import Unwatched

REMEMBER: Final = DAY // MILLISECOND
"""How long the last token of an unused lease is kept. A clock may be set back by at most this much."""

NOW: Final = """
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end
"""
TAKE = Script(
    NOW
    + """
local time = now()
local token = math.max((tonumber(redis.call('GET', KEYS[2])) or 0) + 1, time)
local written = string.format('%.0f', token)
if not redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. written, 'NX', 'PX', ARGV[2]) then
  return false
end
redis.call('SET', KEYS[2], written, 'PX', ARGV[3])
return {token, time}
"""
)
RENEW = Script(
    NOW
    + """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return false
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return now()
"""
)
FREE = Script(
    """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
"""
)


class RedisLease(Unwatched):
    """See `lease.Lease`; expiry is judged by the server."""

    def __init__(self, url: str, context: AdapterContext) -> None:
        self._link = RedisLink(read_url(url, "lease"), LeaseUnavailable)
        self._count = partial(context.count, "leases")

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        keys = lock_keys(self._link, name)
        found = await self._link.run(TAKE, keys, owner, in_milliseconds(ttl), max(REMEMBER, in_milliseconds(ttl)))
        self._count("refused" if found is None else "taken")
        return None if found is None else Hold(name, owner, found[0], ttl, found[1] + ttl)

    async def renew(self, hold: Hold) -> Hold | None:
        key = lock_keys(self._link, hold.name)[0]
        now = await self._link.run(RENEW, [key], mark(hold), in_milliseconds(hold.ttl))
        self._count("lost" if now is None else "renewed")
        return None if now is None else msgspec.structs.replace(hold, expires_at=now + hold.ttl)

    async def release(self, hold: Hold) -> None:
        await self._link.run(FREE, [lock_keys(self._link, hold.name)[0]], mark(hold))
        self._count("released")

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`."""
        return await self._link.describe()

    async def close(self) -> None:
        await self._link.close()


def lock_keys(link: RedisLink, name: str) -> list[str]:
    """The key of a lease, and that of its last token, which a cluster keeps on the same server: what is in braces
    decides where a key is."""
    key = link.key("job:lock:" + name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D"))
    return [key, f"{{{key}}}:token"]


def mark(hold: Hold) -> str:
    """What is written under the key while this hold lasts."""
    return f"{hold.owner} {hold.token}"


def in_milliseconds(ttl: Duration) -> int:
    """A duration in milliseconds, at least one."""
    return max(ttl // MILLISECOND, 1)
