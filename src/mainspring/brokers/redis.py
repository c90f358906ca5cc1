"""The broker on Redis: a sorted set for each namespace, queue and region.

`job_queue:{namespace/queue/region}` holds `run:token`, each priority's together, longest due first: their strict rank
(`core.priority`), by which the due time can be told as well, so that a worker may order by age and take some priorities
only. A worker takes a batch in one script, which moves it to `…:taken`, sorted by when it must be acknowledged; what is
not, because its worker died, is put back in line by the next who takes. `…:owners` remembers who took it, and its rank.

A worker that found nothing is in `…:waiting`. Who adds gives the best to the one that has waited longest, as if it had
taken it, by a message on a channel of that worker: it need not ask, and nobody else is woken. Who is told of the rest,
by a message on a channel of the line's name, asks. What a worker was given and does not ask for, it gives back.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, Final

import msgspec

from mainspring.broker import Delivery, Notice
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES, STEPS, Ordering, rank
from mainspring.drivers.redis.client import RedisLink, Script, read_url
from mainspring.errors import BrokerUnavailable
from mainspring.process.background import endure

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str, str, int]).decode

TIMEOUT: Final = "250ms"
"""How long an answer may take, unless the URL says otherwise: then it is quicker to ask the store."""
TAKEN: Duration = 5 * SECOND
"""So long after it was taken, what nobody has acknowledged is put back in line."""
HANDED: Duration = SECOND
"""So long after it was given to a worker that waited, what that has not acknowledged is put back in line."""
KEPT_S = 0.05
"""So long it keeps what it was given and does not ask for."""
WAITS: Duration = 1_500 * MILLISECOND
"""Who has not asked for so long does not wait any more: it would ask once a second."""
AT_ONCE = 500
"""So many are put in line by one script: others must not wait for long."""
RECONNECT_S = 0.5

PUT = Script(
    """
local added = 0
for i = 5, #ARGV, 2 do
  if not redis.call('ZSCORE', KEYS[2], ARGV[i]) then
    added = added + redis.call('ZADD', KEYS[1], 'NX', ARGV[i + 1], ARGV[i])
  end
end
if added == 0 then
  return 0
end
local left, bands = redis.call('ZCARD', KEYS[1]), cjson.decode(ARGV[4])
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function best()
  local member, score, first
  for i = 1, #bands, 3 do
    local some = redis.call('ZRANGEBYSCORE', KEYS[1], bands[i], '(' .. bands[i + 1], 'WITHSCORES', 'LIMIT', 0, 1)
    if some[1] and (not first or some[2] - bands[i + 2] < first) then
      member, score, first = some[1], some[2], some[2] - bands[i + 2]
    end
  end
  return member, score
end
while left > 0 do
  local who = redis.call('ZPOPMIN', KEYS[4])
  if not who[1] then
    break
  end
  local member, score = best()
  if tonumber(who[2]) > now - ARGV[3]
      and redis.call('PUBLISH', ARGV[1] .. who[1], cjson.encode({KEYS[1], member, score, left - 1})) > 0 then
    redis.call('ZADD', KEYS[2], now + ARGV[2], member)
    redis.call('HSET', KEYS[3], member, score .. ' ' .. who[1])
    redis.call('ZREM', KEYS[1], member)
    left = left - 1
  end
end
if left > 0 then
  redis.call('PUBLISH', KEYS[1], left)
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
for i = 5, #ARGV, 3 do
  local some = redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[i], '(' .. ARGV[i + 1], 'WITHSCORES', 'LIMIT', 0, limit)
  for k = 1, #some, 2 do
    found[#found + 1] = {some[k], some[k + 1], some[k + 1] - ARGV[i + 2]}
  end
end
if #ARGV > 7 then
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
if best[1] then
  redis.call('ZREM', KEYS[4], ARGV[2])
elseif ARGV[4] == '1' then
  redis.call('ZADD', KEYS[4], now, ARGV[2])
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


class _Hand:
    """What came to a worker that waited, and was not asked for yet."""

    def __init__(self, listener: Callable[[], None]) -> None:
        self.tell = listener
        self.hears = False
        self.more = False
        """Whether there was more in line."""
        self.timer: asyncio.TimerHandle | None = None
        self._deliveries: list[Delivery] = []

    def put(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)

    def take(self, limit: int) -> list[Delivery]:
        """What came first. Once there is nothing left, nothing is to be given back."""
        taken, self._deliveries = self._deliveries[:limit], self._deliveries[limit:]
        if self.timer is not None and not self._deliveries:
            self.timer.cancel()
            self.timer = None
        return taken

    def empty(self) -> list[Delivery]:
        return self.take(len(self._deliveries))


class RedisBroker:
    """See `broker.Broker`. `ordering` decides which of what waits are the best."""

    def __init__(self, url: str, ordering: Ordering) -> None:
        self._link = RedisLink(read_url(url, "broker", TIMEOUT), BrokerUnavailable)
        self._ordering: Ordering = ordering
        self._all = _encode([str(bound) for bound in _bands(PRIORITIES, ordering)])
        self._tasks: set[asyncio.Task[None]] = set()
        self._hands: dict[str, _Hand] = {}

    async def publish(self, notices: Sequence[Notice]) -> None:
        lines: defaultdict[str, list[str | int]] = defaultdict(list)
        for run_id, token, namespace, queue, region, priority, due_at in notices:
            line = lines[self._key(namespace, queue, region)]
            line += (f"{run_id}:{token}", rank(priority, due_at, "strict"))
        words = (self._channel(""), HANDED // MILLISECOND, WAITS // MILLISECOND, self._all)
        for key, entries in lines.items():
            for start in range(0, len(entries), 2 * AT_ONCE):
                await self._link.run(PUT, _keys(key), *words, *entries[start : start + 2 * AT_ONCE])

    async def receive(self, worker: Worker, limit: int) -> list[Delivery]:
        hand = self._hands.get(worker.id) if worker.priorities == PRIORITIES else None
        if hand is None or not limit:
            return await self._take(worker, limit, waits=False)
        deliveries = hand.take(limit)
        if len(deliveries) < limit and (hand.more or not deliveries):
            hand.more = False
            try:
                deliveries += await self._take(worker, limit - len(deliveries), waits=hand.hears)
            except BrokerUnavailable:
                if not deliveries:
                    raise
        return deliveries

    async def _take(self, worker: Worker, limit: int, *, waits: bool) -> list[Delivery]:
        deliveries: list[Delivery] = []
        bands = _bands(worker.priorities, self._ordering)
        for key in self._lines(worker):
            if limit and len(deliveries) >= limit:
                break  # Who wants none wants to know whether it answers, and could be written to.
            words = (limit - len(deliveries), worker.id, TAKEN // MILLISECOND, int(waits))
            best = await self._link.run(TAKE, _keys(key), *words, *bands)
            deliveries += [_delivery(key, *each) for each in zip(best[::2], best[1::2], strict=True)]
        return deliveries

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for key, receipts in _by_line(deliveries).items():
            await self._link.run(DONE, _keys(key)[1:3], *(member for member, _ in receipts))

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        for key, receipts in _by_line(deliveries).items():
            await self._link.run(BACK, _keys(key), *(word for receipt in receipts for word in receipt))

    def on_arrival(self, worker: Worker, listener: Callable[[], None]) -> Callable[[], None]:
        hand = self._hands[worker.id] = _Hand(listener)
        listening = self._start(self._listen([*self._lines(worker), self._channel(worker.id)], hand))

        def stop() -> None:
            listening.cancel()

        return stop

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for hand in self._hands.values():
            await self._release_quietly(hand.empty())
        await self._link.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _listen(self, channels: Sequence[str], hand: _Hand) -> None:
        def hear(message: bytes | None) -> None:
            if message is None:
                hand.hears = self._link.counts_listeners
            elif message.startswith(b"["):
                self._hand_over(hand, message)
            hand.tell()

        async def listen() -> None:
            try:
                with suppress(BrokerUnavailable):
                    await self._link.listen(channels, hear)
            finally:
                hand.hears = False
            hand.tell()  # What was said while nobody listened is unknown.

        await endure("listening to the broker", listen, RECONNECT_S)

    def _hand_over(self, hand: _Hand, message: bytes) -> None:
        key, member, score, left = _decode(message)
        hand.put(_delivery(key, member.encode(), score.encode()))
        hand.more = left > 0
        if hand.timer is None:
            hand.timer = asyncio.get_running_loop().call_later(KEPT_S, self._give_back, hand)

    def _give_back(self, hand: _Hand) -> None:
        """Who was given something and does not ask for it has something else to do, or is about to end."""
        self._start(self._release_quietly(hand.empty()))

    async def _release_quietly(self, deliveries: Sequence[Delivery]) -> None:
        with suppress(BrokerUnavailable):
            await self.release(deliveries)

    def _lines(self, worker: Worker) -> list[str]:
        return [self._key(worker.namespace, *place) for place in product(worker.queues, worker.regions)]

    def _key(self, namespace: str, queue: str, region: str) -> str:
        """What is in braces decides where a cluster keeps it: all that belongs to a line together."""
        place = "/".join(name.replace("%", "%25").replace("}", "%7D") for name in (namespace, queue, region))
        return self._link.key(f"job_queue:{{{place}}}")

    def _channel(self, worker: str) -> str:
        return self._link.key(f"job_queue:to:{worker}")


def _delivery(key: str, member: bytes, score: bytes) -> Delivery:
    run_id, _, token = member.decode().rpartition(":")
    return Delivery(run_id, int(token), (key, member, score))


def _bands(priorities: Sequence[int], ordering: Ordering) -> list[int]:
    """Parts of a line: from which score, up to which, and what to take off the scores to compare them by rank. Where
    rank and score are the same, neighbours are one part."""
    step = STEPS["strict"]
    if ordering == "strict" and len(priorities) == priorities[-1] - priorities[0] + 1:
        return [priorities[0] * step, (priorities[-1] + 1) * step, 0]
    shift = step - STEPS[ordering]
    return [bound for each in priorities for bound in (each * step, (each + 1) * step, each * shift)]


def _keys(key: str) -> list[str]:
    return [key, f"{key}:taken", f"{key}:owners", f"{key}:waiting"]


def _by_line(deliveries: Sequence[Delivery]) -> dict[str, list[tuple[bytes, bytes]]]:
    lines: defaultdict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
    for delivery in deliveries:
        match delivery.receipt:
            case (str(key), bytes(member), bytes(score)):
                lines[key].append((member, score))
    return lines
