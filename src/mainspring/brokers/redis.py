"""The broker on Redis: a sorted set for each namespace, queue and region.

`job_queue:{namespace/queue/region}` holds `run:token`, each priority's together, longest due first: their strict rank
(`core.priority`), by which the due time can be told as well, so that a worker may order by age and take some priorities
only. A worker takes a batch in one script, which moves it to `…:taken`, sorted by when it must be acknowledged; what is
not, because its worker died, is put back in line by the next who takes. `…:owners` remembers who took it, and its rank.
Adding tells those who wait by a message on a channel of the same name.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from typing import Final

from mainspring.broker import Delivery, Notice
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.model import Worker
from mainspring.core.priority import STEPS, Ordering, rank
from mainspring.errors import BrokerUnavailable
from mainspring.redis_link import RedisLink, Script, read_url

TIMEOUT: Final = "250ms"
"""How long an answer may take, unless the URL says otherwise: then it is quicker to ask the store."""
TAKEN: Duration = 5 * SECOND
"""So long after it was taken, what nobody has acknowledged is put back in line."""
AT_ONCE = 500
"""So many are put in line by one script: others must not wait for long."""
RECONNECT_S = 0.5

PUT = Script(
    """
local added = 0
for i = 1, #ARGV, 2 do
  if not redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    added = added + redis.call('ZADD', KEYS[1], 'NX', ARGV[i + 1], ARGV[i])
  end
end
if added > 0 then
  redis.call('PUBLISH', KEYS[1], added)
end
return added
"""
)
TAKE = Script(
    """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 500)) do
  local score = string.match(redis.call('HGET', KEYS[3], member) or '', '^%S+') or '0'
  redis.call('ZADD', KEYS[1], score, member)
  redis.call('ZREM', KEYS[2], member)
  redis.call('HDEL', KEYS[3], member)
end
if tonumber(ARGV[1]) == 0 then
  redis.call('HSET', KEYS[3], '', '')
  redis.call('HDEL', KEYS[3], '')
  return {}
end
local limit, found = tonumber(ARGV[1]), {}
for i = 4, #ARGV, 3 do
  local some = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[i], '(' .. ARGV[i + 1], 'WITHSCORES', 'LIMIT', 0, limit)
  for k = 1, #some, 2 do
    found[#found + 1] = {some[k], some[k + 1], some[k + 1] - ARGV[i + 2]}
  end
end
if #ARGV > 6 then
  table.sort(found, function(a, b) return a[3] < b[3] end)
end
local best = {}
for i = 1, math.min(limit, #found) do
  local member, score = found[i][1], found[i][2]
  redis.call('ZADD', KEYS[2], now + ARGV[3], member)
  redis.call('HSET', KEYS[3], member, score .. ' ' .. ARGV[2])
  redis.call('ZREM', KEYS[1], member)
  best[2 * i - 1], best[2 * i] = member, score
end
return best
"""
)
DONE = Script(
    """
redis.call('ZREM', KEYS[1], unpack(ARGV))
return redis.call('HDEL', KEYS[2], unpack(ARGV))
"""
)
BACK = Script(
    """
for i = 1, #ARGV, 2 do
  if redis.call('ZREM', KEYS[2], ARGV[i]) == 1 then
    redis.call('HDEL', KEYS[3], ARGV[i])
    redis.call('ZADD', KEYS[1], ARGV[i + 1], ARGV[i])
  end
end
redis.call('PUBLISH', KEYS[1], #ARGV / 2)
return 0
"""
)


class RedisBroker:
    """See `broker.Broker`. `ordering` decides which of what waits are the best."""

    def __init__(self, url: str, ordering: Ordering) -> None:
        self._link = RedisLink(read_url(url, "broker", TIMEOUT), BrokerUnavailable)
        self._ordering: Ordering = ordering
        self._listening: set[asyncio.Task[None]] = set()

    async def publish(self, notices: Sequence[Notice]) -> None:
        lines: defaultdict[str, list[str | int]] = defaultdict(list)
        for run_id, token, namespace, queue, region, priority, due_at in notices:
            line = lines[self._key(namespace, queue, region)]
            line += (f"{run_id}:{token}", rank(priority, due_at, "strict"))
        for key, words in lines.items():
            for start in range(0, len(words), 2 * AT_ONCE):
                await self._link.run(PUT, [key, f"{key}:taken"], *words[start : start + 2 * AT_ONCE])

    async def receive(self, worker: Worker, limit: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        bands = _bands(worker.priorities, self._ordering)
        for key in self._lines(worker):
            if limit and len(deliveries) >= limit:
                break  # Who wants none wants to know whether it answers, and could be written to.
            words = (limit - len(deliveries), worker.id, TAKEN // MILLISECOND)
            best = await self._link.run(TAKE, _keys(key), *words, *bands)
            for member, score in zip(best[::2], best[1::2], strict=True):
                run_id, _, token = member.decode().rpartition(":")
                deliveries.append(Delivery(run_id, int(token), (key, member, score)))
        return deliveries

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for key, receipts in _by_line(deliveries).items():
            await self._link.run(DONE, _keys(key)[1:], *(member for member, _ in receipts))

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        for key, receipts in _by_line(deliveries).items():
            await self._link.run(BACK, _keys(key), *(word for receipt in receipts for word in receipt))

    def on_arrival(self, worker: Worker, listener: Callable[[], None]) -> Callable[[], None]:
        listening = asyncio.get_running_loop().create_task(self._listen(self._lines(worker), listener))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)

        def stop() -> None:
            listening.cancel()

        return stop

    async def close(self) -> None:
        for listening in list(self._listening):
            listening.cancel()
        if self._listening:
            await asyncio.wait(self._listening)
        await self._link.close()

    async def _listen(self, channels: Sequence[str], listener: Callable[[], None]) -> None:
        while True:
            with suppress(BrokerUnavailable):
                await self._link.listen(channels, listener)
            listener()  # What was said while nobody listened is unknown.
            await asyncio.sleep(RECONNECT_S)

    def _lines(self, worker: Worker) -> list[str]:
        return [self._key(worker.namespace, *place) for place in product(worker.queues, worker.regions)]

    def _key(self, namespace: str, queue: str, region: str) -> str:
        """What is in braces decides where a cluster keeps it: all that belongs to a line together."""
        place = "/".join(name.replace("%", "%25").replace("}", "%7D") for name in (namespace, queue, region))
        return self._link.key(f"job_queue:{{{place}}}")


def _bands(priorities: Sequence[int], ordering: Ordering) -> list[int]:
    """Parts of a line: from which score, up to which, and what to take off the scores to compare them by rank. Where
    rank and score are the same, neighbours are one part."""
    step = STEPS["strict"]
    if ordering == "strict" and len(priorities) == priorities[-1] - priorities[0] + 1:
        return [priorities[0] * step, (priorities[-1] + 1) * step, 0]
    shift = step - STEPS[ordering]
    return [bound for each in priorities for bound in (each * step, (each + 1) * step, each * shift)]


def _keys(key: str) -> list[str]:
    return [key, f"{key}:taken", f"{key}:owners"]


def _by_line(deliveries: Sequence[Delivery]) -> dict[str, list[tuple[bytes, bytes]]]:
    lines: defaultdict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
    for delivery in deliveries:
        match delivery.receipt:
            case (str(key), bytes(member), bytes(score)):
                lines[key].append((member, score))
    return lines
