"""Submissions that arrive while others are being written share the next transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mainspring.core.model import NewRun
from mainspring.errors import MainspringError, StoreError, StoreUnavailable
from mainspring.stores.postgres.server.database import Database
from mainspring.stores.postgres.submissions.paths import is_plain
from mainspring.stores.postgres.submissions.submit import accept

GROUP_LIMIT = 500
"""At most this many runs share a transaction; a larger submission has its own."""
SIDE_BY_SIDE = 3
"""How many single submissions are written concurrently while workers take them directly: if they shared a transaction,
workers would have to claim them in another."""

_Answer = asyncio.Future[list[str]]


class _Group:
    """The submissions of one event loop."""

    def __init__(self) -> None:
        self.alone = 0
        """Submissions that their own submitters are writing."""
        self.waiting: list[tuple[Sequence[NewRun], _Answer]] = []
        self.writer: asyncio.Task[None] | None = None


class GroupCommit:
    """A lone submission is written at once, by its submitter. A commit takes about as long for many as for one."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._groups: dict[asyncio.AbstractEventLoop, _Group] = {}

    async def submit(self, runs: Sequence[NewRun]) -> list[str]:
        """See `RunStore.submit`."""
        if not runs:
            return []
        if len(runs) > GROUP_LIMIT:
            return await accept(self._db, runs)
        loop = asyncio.get_running_loop()
        group = self._group(loop)
        if group.writer is not None or group.alone >= self._side_by_side(runs):
            answer: _Answer = loop.create_future()
            group.waiting.append((runs, answer))
            return await answer
        group.alone += 1
        try:
            return await accept(self._db, runs)
        finally:
            group.alone -= 1
            if group.waiting and group.writer is None:
                group.writer = loop.create_task(self._write(group))

    def _side_by_side(self, runs: Sequence[NewRun]) -> int:
        """How many may be written at once, this one among them. Those of one key keep their order."""
        is_lone = len(runs) == 1 and runs[0].key is None and runs[0].idempotency_key is None and is_plain(runs[0])
        return SIDE_BY_SIDE if is_lone and self._db.handover.is_likely() else 1

    def _group(self, loop: asyncio.AbstractEventLoop) -> _Group:
        group = self._groups.get(loop)
        if group is None:
            for ended in [other for other in self._groups if other.is_closed()]:
                del self._groups[ended]
            group = self._groups[loop] = _Group()
        return group

    async def _write(self, group: _Group) -> None:
        try:
            while group.waiting:
                await self._accept(_first(group.waiting))
                await asyncio.sleep(0)  # A submitter that was answered may submit again at once.
        finally:
            group.writer = None
            for _, answer in group.waiting:  # Only if this task itself was cancelled.
                _refuse(answer, StoreUnavailable("the event loop that was to write this submission ends"))
            group.waiting.clear()

    async def _accept(self, submissions: Sequence[tuple[Sequence[NewRun], _Answer]]) -> None:
        together = [run for runs, _ in submissions for run in runs]
        try:
            ids = iter(await accept(self._db, together))
        except StoreError as error:
            for _, answer in submissions:
                _refuse(answer, error)
        except MainspringError:
            # One of them cannot be accepted: which one shows when each has its own transaction.
            for runs, answer in submissions:
                await self._accept_alone(runs, answer)
        else:
            for runs, answer in submissions:
                own = [next(ids) for _ in runs]
                if not answer.done():
                    answer.set_result(own)

    async def _accept_alone(self, runs: Sequence[NewRun], answer: _Answer) -> None:
        try:
            ids = await accept(self._db, runs)
        except MainspringError as error:
            _refuse(answer, error)
        else:
            if not answer.done():
                answer.set_result(ids)


def _refuse(answer: _Answer, error: MainspringError) -> None:
    if not answer.done():
        answer.set_exception(error)


def _first(waiting: list[tuple[Sequence[NewRun], _Answer]]) -> list[tuple[Sequence[NewRun], _Answer]]:
    """Take as many waiting submissions as share a transaction. A submitter that waited too long has left."""
    waiting[:] = [each for each in waiting if not each[1].done()]
    count = size = 0
    for runs, _ in waiting:
        size += len(runs)
        if count and size > GROUP_LIMIT:
            break
        count += 1
    taken = waiting[:count]
    del waiting[:count]
    return taken
