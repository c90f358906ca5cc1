"""The broker on Redis: a sorted set for each namespace, queue and region.

`job_queue:{namespace/queue/region}` holds `run:token`, each priority's together, longest due first. Its score is the
strict rank (`core.runs.priority`), from which the due time can be computed as well, so that a worker may order by age
and take some priorities only. A worker takes a batch in one script, which moves it to `…:taken`, sorted by when it must
be acknowledged. What is not acknowledged in time, because its worker died, is put back by the next script that takes.
`…:owners` has the worker that took it, and its rank.

A worker that found nothing is in `…:waiting`. The script that adds gives the best to the worker that has waited
longest, as if that had taken it, by a message on the worker's own channel: the worker need not ask, and no other is
woken. A message on a channel of the set's name notifies workers of the rest. A worker gives back what it does not use.

`job_queue:places` has the names of all places, for `depth`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import product
from typing import Any, Final

import msgspec

from mainspring.adapter import AdapterContext
from mainspring.broker import Capabilities, Delivery, Depth, Notice, Place, Subscription
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES, STEPS, Ordering, rank
from mainspring.drivers.ending import end
from mainspring.drivers.redis.client import RedisLink, Script, read_url
from mainspring.errors import BrokerUnavailable
from mainspring.process.background import endure

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, str, str, int]).decode
_decode_place = msgspec.json.Decoder(Place).decode

TIMEOUT: Final = "250ms"
"""How long an answer may take, unless the URL says otherwise: after that, asking the store is quicker."""
TAKEN: Duration = 5 * SECOND
"""A delivery that is not acknowledged for this long is put back."""
HANDED: Duration = SECOND
"""A delivery that was given to a waiting worker, and is not acknowledged for this long, is put back."""
KEPT_S = 0.05
"""How long a worker keeps what it was given and does not ask for, before it gives it back."""
WAITS: Duration = 1_500 * MILLISECOND
"""A worker that has not polled for this long is gone; live workers poll every second."""
AT_ONCE = 500
"""Added by one script at most, since other clients wait meanwhile."""
RECONNECT_S = 0.5
PLACES: Final = "job_queue:places"
PLACES_AGAIN_S: Final = 60.0
"""How often a publisher writes a place to the list of places: a Redis that was emptied has forgotten it."""

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
  local worker = redis.call('ZPOPMIN', KEYS[4])
  if not worker[1] then
    break
  end
  local member, score = best()
  if tonumber(worker[2]) > now - ARGV[3]
      and redis.call('PUBLISH', ARGV[1] .. worker[1], cjson.encode({KEYS[1], member, score, left - 1})) > 0 then
    redis.call('ZADD', KEYS[2], now + ARGV[2], member)
    redis.call('HSET', KEYS[3], member, score .. ' ' .. worker[1])
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


PING = Script(
    """
redis.call('HSET', KEYS[1], '', '')
return redis.call('HDEL', KEYS[1], '')
"""
)


class RedisBroker:
    """See `broker.Broker`. The setting `ordering` decides which of what waits is the best."""

    capabilities = Capabilities()

    def __init__(self, url: str, context: AdapterContext) -> None:
        self._link = RedisLink(read_url(url, "broker", TIMEOUT), BrokerUnavailable)
        self._ordering: Ordering = context.settings.ordering
        self._monotonic = context.clock.monotonic
        self._all = _encode([str(bound) for bound in _bands(PRIORITIES, self._ordering)])
        self._listed: dict[Place, float] = {}
        """When this process last wrote a place to the list of places."""
        self._subscriptions: set[RedisSubscription] = set()

    async def publish(self, notices: Sequence[Notice]) -> None:
        places: defaultdict[Place, list[str | int]] = defaultdict(list)
        for notice in notices:
            entries = places[notice.place]
            entries += (f"{notice.run_id}:{notice.token}", rank(notice.priority, notice.due_at, "strict"))
        words = (_channel(self._link, ""), HANDED // MILLISECOND, WAITS // MILLISECOND, self._all)
        for place, entries in places.items():
            keys = _keys(_key(self._link, place))
            for start in range(0, len(entries), 2 * AT_ONCE):
                await self._link.run(PUT, keys, *words, *entries[start : start + 2 * AT_ONCE])
        await self._list(places)

    async def _list(self, places: Iterable[Place]) -> None:
        now = self._monotonic()
        new = [place for place in places if now >= self._listed.get(place, now)]
        if new:
            await self._link.command("SADD", self._link.key(PLACES), *(_encode(place) for place in new))
            self._listed |= dict.fromkeys(new, now + PLACES_AGAIN_S)

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> Subscription:
        subscription = RedisSubscription(self._link, worker, self._ordering, on_arrival)
        self._subscriptions.add(subscription)
        subscription.on_closed = self._subscriptions.discard
        return subscription

    async def depth(self) -> Sequence[Depth]:
        names = await self._link.command("SMEMBERS", self._link.key(PLACES))
        places = [_decode_place(name) for name in names]
        counts = await asyncio.gather(*(self._link.command("ZCARD", _key(self._link, place)) for place in places))
        return [Depth(place, count) for place, count in zip(places, counts, strict=True)]

    async def ping(self) -> None:
        await self._link.run(PING, [self._link.key("job_queue:ping")])

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`."""
        return await self._link.describe()

    async def close(self) -> None:
        for subscription in list(self._subscriptions):
            await subscription.close()
        await self._link.close()


class RedisSubscription:
    """See `broker.Subscription`. It listens on the channels of its places and on that of its worker."""

    def __init__(self, link: RedisLink, worker: Worker, ordering: Ordering, on_arrival: Callable[[], None]) -> None:
        self._link = link
        self._worker = worker.id
        self._ordering: Ordering = ordering
        self._on_arrival = on_arrival
        places = [Place(worker.namespace, *each) for each in product(worker.queues, worker.regions)]
        self._sets = [_key(link, place) for place in places]
        self._tasks: set[asyncio.Task[None]] = set()
        self._given: list[Delivery] = []
        """What this worker was given while it waited, and has not received yet."""
        self._more = False
        """Whether more waited when that was given."""
        self._listens = False
        self._timer: asyncio.TimerHandle | None = None
        self.on_closed: Callable[[RedisSubscription], None] = lambda _: None
        self._start(self._listen())

    async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        if tuple(priorities) != PRIORITIES:
            return await self._take(limit, priorities, waits=False)
        deliveries = self._take_given(limit)
        if len(deliveries) < limit and (self._more or not deliveries):
            self._more = False
            try:
                deliveries += await self._take(limit - len(deliveries), PRIORITIES, waits=self._listens)
            except BrokerUnavailable:
                if not deliveries:
                    raise
        return deliveries

    async def _take(self, limit: int, priorities: Sequence[int], *, waits: bool) -> list[Delivery]:
        deliveries: list[Delivery] = []
        bands = _bands(priorities, self._ordering)
        for key in self._sets:
            if len(deliveries) >= limit:
                break
            words = (limit - len(deliveries), self._worker, TAKEN // MILLISECOND, int(waits))
            best = await self._link.run(TAKE, _keys(key), *words, *bands)
            deliveries += [_delivery(key, *each) for each in zip(best[::2], best[1::2], strict=True)]
        return deliveries

    def _take_given(self, limit: int) -> list[Delivery]:
        taken, self._given = self._given[:limit], self._given[limit:]
        if self._timer is not None and not self._given:
            self._timer.cancel()
            self._timer = None
        return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for key, receipts in _by_set(deliveries).items():
            await self._link.run(DONE, _keys(key)[1:3], *(member for member, _ in receipts))

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        for key, receipts in _by_set(deliveries).items():
            await self._link.run(BACK, _keys(key), *(word for receipt in receipts for word in receipt))

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Deliveries need no extension: see `RedisBroker.capabilities`."""

    async def close(self) -> None:
        while self._tasks:  # Those that end may begin others.
            await end(list(self._tasks))
            await asyncio.sleep(0)  # Those that have ended leave the set.
        await self._release_given()
        self.on_closed(self)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self) -> None:
        def hear(message: bytes | None) -> None:
            if message is None:
                self._listens = self._link.counts_listeners
            elif message.startswith(b"["):
                self._accept(message)
            self._on_arrival()

        async def listen() -> None:
            try:
                with suppress(BrokerUnavailable):
                    await self._link.listen([*self._sets, _channel(self._link, self._worker)], hear)
            finally:
                self._listens = False
            self._on_arrival()  # Messages may have been missed meanwhile.

        await endure("listening to the broker", listen, RECONNECT_S)

    def _accept(self, message: bytes) -> None:
        """A delivery was given to this worker while it waited."""
        key, member, score, left = _decode(message)
        self._given.append(_delivery(key, member.encode(), score.encode()))
        self._more = left > 0
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEPT_S, self._give_back)

    def _give_back(self) -> None:
        """A worker that does not ask for what it was given is busy, or about to end."""
        self._start(self._release_given())

    async def _release_given(self) -> None:
        with suppress(BrokerUnavailable):
            await self.release(self._take_given(len(self._given)))


def _key(link: RedisLink, place: Place) -> str:
    """The part in braces decides on which server a cluster keeps a key: all keys of a place are on one."""
    name = "/".join(each.replace("%", "%25").replace("}", "%7D") for each in place)
    return link.key(f"job_queue:{{{name}}}")


def _channel(link: RedisLink, worker: str) -> str:
    return link.key(f"job_queue:to:{worker}")


def _delivery(key: str, member: bytes, score: bytes) -> Delivery:
    run_id, _, token = member.decode().rpartition(":")
    return Delivery(run_id, int(token), (key, member, score))


def _bands(priorities: Sequence[int], ordering: Ordering) -> list[int]:
    """Ranges of scores: from, up to, and what to subtract from the scores to compare them by rank. Where rank and score
    are the same, adjacent ranges are one."""
    step = STEPS["strict"]
    if ordering == "strict" and len(priorities) == priorities[-1] - priorities[0] + 1:
        return [priorities[0] * step, (priorities[-1] + 1) * step, 0]
    shift = step - STEPS[ordering]
    return [bound for each in priorities for bound in (each * step, (each + 1) * step, each * shift)]


def _keys(key: str) -> list[str]:
    return [key, f"{key}:taken", f"{key}:owners", f"{key}:waiting"]


def _by_set(deliveries: Sequence[Delivery]) -> dict[str, list[tuple[bytes, bytes]]]:
    sets: defaultdict[str, list[tuple[bytes, bytes]]] = defaultdict(list)
    for delivery in deliveries:
        match delivery.receipt:
            case (str(key), bytes(member), bytes(score)):
                sets[key].append((member, score))
    return sets
