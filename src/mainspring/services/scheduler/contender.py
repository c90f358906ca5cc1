"""Contention for each firing (`coordination="lock"`): the node that gets the job's lease fires it.

The lease only spares the others a vain write: the store accepts one firing of an instant from any node. So
where the lease cannot be asked, every node tries, as in a `cluster`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mainspring.core.instants import Duration
from mainspring.core.model import Hold, Job
from mainspring.errors import MainspringError
from mainspring.lease import Lease
from mainspring.services.loop import log

AT_ONCE = 50
"""The most leases that are requested at a time."""


class Contender:
    """Contends for leases of jobs in the name of one node."""

    def __init__(self, lease: Lease, owner: str, ttl: Duration) -> None:
        self._lease = lease
        self._owner = owner
        self.ttl = ttl
        """After this time the winner has fired, or has died."""
        self._silent = False

    @asynccontextmanager
    async def contest(self, jobs: Sequence[Job]) -> AsyncIterator[frozenset[str]]:
        """The ids of the jobs that are this node's to fire, for as long as the body runs."""
        holds: dict[str, Hold | None] = {}
        try:
            for start in range(0, len(jobs), AT_ONCE):
                some = jobs[start : start + AT_ONCE]
                for job, asked in zip(some, await self._ask(some), strict=True):
                    if not isinstance(asked, BaseException):
                        holds[job.id] = asked
            yield frozenset(job.id for job in jobs if holds.get(job.id, True))
        finally:
            won = [hold for hold in holds.values() if hold is not None]
            await asyncio.gather(*map(self._lease.release, won), return_exceptions=True)

    async def _ask(self, jobs: Sequence[Job]) -> list[Hold | BaseException | None]:
        asking = [self._lease.acquire(f"firing:{job.namespace}:{job.name}", self._owner, self.ttl) for job in jobs]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        trouble = [answer for answer in answers if isinstance(answer, BaseException)]
        for error in trouble:
            if not isinstance(error, MainspringError):
                raise error
        if trouble and not self._silent:
            log.warning("jobs are fired without their leases, since these cannot be had: %s", trouble[0])
        self._silent = bool(trouble)
        return answers
