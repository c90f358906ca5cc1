"""Rate limits on Redis, shared by all servers: the same reckoning as the store's (`core.limits`), without a write
there.

While Redis does not answer, the store reckons: from nothing, since it was not asked before. So for a minute around such
a change somebody may spend up to twice as much.
"""

from __future__ import annotations

from typing import Any, Final

from mainspring.clock import Clock
from mainspring.core.instants import MILLISECOND
from mainspring.core.load.rate_limits import Allowance, Pace, allow
from mainspring.drivers.redis.client import RedisLink, Script, read_url
from mainspring.errors import BrokerUnavailable
from mainspring.services.breaker import Switch
from mainspring.store import Store

TIMEOUT: Final = "250ms"
SPEND: Final = Script(
    """
local now, cost, period, amount = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local paid = tonumber(redis.call('GET', KEYS[1])) or 0
local after = math.max(paid, now) + math.ceil(cost * period / amount)
if after <= now + period then
  redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', ARGV[5])
end
return paid
"""
)


class Paced:
    """A store whose rate limits are kept on Redis. All else is the store's own."""

    def __init__(self, store: Store, url: str, clock: Clock, link: RedisLink | None = None) -> None:
        self._store = store
        self._url = url
        self._clock = clock
        self._link = link or RedisLink(read_url(url, "broker", TIMEOUT), BrokerUnavailable)
        self._switch = Switch(
            store, clock, "rate limits", lost="the store keeps rate limits", back="rate limits are shared again"
        )
        self.now = store.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        """See `ApiStore.spend`."""
        now, keep_ms = self._store.now(), 2 * pace.period // MILLISECOND + 1
        words = (now, cost, pace.period, pace.amount, keep_ms)
        try:
            paid = await self._switch.call(lambda: self._link.run(SPEND, [self._link.key(f"job_pace:{name}")], *words))
        except BrokerUnavailable:
            return await self._store.spend(name, cost, pace)
        return allow(paid, now, cost, pace)

    async def close(self) -> None:
        await self._link.close()
        await self._store.close()
