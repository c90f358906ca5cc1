"""The status cache on Redis: `job_status:ID` for an hour and `worker_status:ID` for five minutes, each `epoch position
json`; and `status_mark`, which expires soon unless it is moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mainspring.adapter import AdapterContext
from mainspring.cache import Mark
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import MILLISECOND, SECOND, Duration
from mainspring.core.runs.status import Posting, Status
from mainspring.drivers.redis.client import RedisLink, Script, read_url
from mainspring.errors import CacheUnavailable

TIMEOUT: Final = "250ms"
MARK: Final = "status_mark"
MARK_KEPT: Duration = 3 * SECOND
AT_ONCE: Final = 200
"""Written by one script at most, since other clients wait meanwhile."""

WRITE = Script(
    """
for i, key in ipairs(KEYS) do
  local at = 3 * i - 1
  local epoch, position, rest = string.match(redis.call('GET', key) or '', '^(%S+) (%d+) (.*)$')
  local newer = tonumber(position or -1) - tonumber(ARGV[at])
  if epoch ~= ARGV[1] or newer < 0 or (newer == 0 and rest == '') then
    redis.call('SET', key, ARGV[1] .. ' ' .. ARGV[at] .. ' ' .. ARGV[at + 2], 'PX', ARGV[at + 1])
  end
end
return 0
"""
)
ADVANCE = Script(
    """
local there = redis.call('GET', KEYS[1]) or ''
if (string.match(there, '^%S+ %d+') or '') ~= ARGV[1] then
  return there
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return ARGV[2]
"""
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Status).decode


class RedisStatusCache:
    """See `cache.StatusCache`."""

    def __init__(self, url: str, _context: AdapterContext) -> None:
        self._link = RedisLink(read_url(url, "cache", TIMEOUT), CacheUnavailable)

    async def read(self, subject: str) -> tuple[Mark | None, Status | None]:
        mark = _read_mark(await self._link.command("GET", self._link.key(MARK)))
        if mark is None:
            return None, None
        epoch, _, rest = (await self._link.command("GET", self._link.key(subject)) or b"").partition(b" ")
        _, _, status = rest.partition(b" ")
        return mark, _decode(status) if status and epoch.decode() == mark.epoch else None

    async def write(self, epoch: str, postings: Sequence[Posting]) -> None:
        at_once = 1 if self._link.place.kind == "cluster" else AT_ONCE
        for start in range(0, len(postings), at_once):
            some = postings[start : start + at_once]
            words: list[str | bytes | int] = [epoch]
            for _, position, kept, status in some:
                words += (position, kept // MILLISECOND, b"" if status is None else _encode(status))
            await self._link.run(WRITE, [self._link.key(each.subject) for each in some], *words)

    async def advance(self, before: Mark | None, after: Mark) -> Mark | None:
        words = ("" if before is None else _place(before), _written(after), MARK_KEPT // MILLISECOND)
        return _read_mark(await self._link.run(ADVANCE, [self._link.key(MARK)], *words))

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`."""
        return await self._link.describe()

    async def close(self) -> None:
        await self._link.close()


def _place(mark: Mark) -> str:
    return f"{mark.epoch} {mark.position}"


def _written(mark: Mark) -> str:
    return f"{_place(mark)} {'late' if mark.late else 'well'}"


def _read_mark(written: bytes | None) -> Mark | None:
    if not written:
        return None
    epoch, position, how = written.decode().split(" ")
    return Mark(epoch, int(position), how == "late")
