"""Rate limits on Redis, shared by all servers: the same rule as the store's (`core.load.rate_limits`), without a write
to the store."""

from __future__ import annotations

from typing import Final

from mainspring.adapter import AdapterContext
from mainspring.core.instants import MILLISECOND
from mainspring.core.load.rate_limits import Allowance, Pace, allow
from mainspring.drivers.redis.client import RedisLink, Script, read_url
from mainspring.errors import LimiterUnavailable

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


class RedisLimiter:
    """See `limiter.RateLimiter`."""

    def __init__(self, url: str, context: AdapterContext) -> None:
        self._link = RedisLink(read_url(url, "broker", TIMEOUT), LimiterUnavailable)
        self._now = context.clock.now

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        now, keep_ms = self._now(), 2 * pace.period // MILLISECOND + 1
        words = (now, cost, pace.period, pace.amount, keep_ms)
        paid = await self._link.run(SPEND, [self._link.key(f"job_pace:{name}")], *words)
        return allow(paid, now, cost, pace)

    async def close(self) -> None:
        await self._link.close()
