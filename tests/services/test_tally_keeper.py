"""Tallies equal what the events say, whichever of several keepers counts, and whatever reply is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from stage import JumpingClock

from mainspring.conformance.store.samples import a_run, a_worker, failure, success
from mainspring.core.answers import SeenFailure
from mainspring.core.instants import DAY, MINUTE
from mainspring.core.runs.tallies import Tally, TallyKey
from mainspring.errors import StoreUnavailable
from mainspring.services.chores.tally_keeper import TallyKeeper
from mainspring.stores.sqlite.store import SqliteStore


class ForgetfulStore(SqliteStore):
    """Loses some of the replies to what it has written."""

    def __init__(self, clock: JumpingClock, random: Random) -> None:
        super().__init__(":memory:", clock, inline=True)
        self._random = random

    async def add_tallies(
        self, expected: int | None, position: int, tallies: Mapping[TallyKey, Tally], failures: Sequence[SeenFailure]
    ) -> bool:
        """See the port."""
        await asyncio.sleep(0)  # Another keeper may come first.
        counted = await super().add_tallies(expected, position, tallies, failures)
        if self._random.random() < 0.3:
            raise StoreUnavailable("the reply is lost")
        return counted


@pytest.mark.parametrize("seed", range(5))
async def test_every_end_is_counted_once(clock: JumpingClock, seed: int) -> None:
    random = Random(seed)
    store = ForgetfulStore(clock, random)
    keepers = [TallyKeeper(store, lambda: True, clock, Random(number)) for number in range(2)]
    reported: Counter[str] = Counter()
    try:
        for _ in range(20):
            await store.submit([a_run(clock) for _ in range(random.randint(1, 5))])
            for claim in await store.claim(a_worker(), 100, MINUTE, "strict"):
                fails = random.random() < 0.4
                reported["failed" if fails else "succeeded"] += 1
                await store.report([failure(claim) if fails else success(claim)])
            while await store.number_events(100):
                pass
            clock.advance(MINUTE)
            await asyncio.gather(*(keeper.turn() for keeper in keepers), return_exceptions=True)
        for _ in range(50):  # Until a reply arrives: what was written is known then.
            await asyncio.gather(*(keeper.turn() for keeper in keepers), return_exceptions=True)
        rows = await store.list_tallies("default", "all", clock.now() - DAY, clock.now())
        counted: Counter[str] = Counter()
        for _, tally in rows:
            counted.update(tally.outcomes)
        assert counted == reported
        groups = await store.list_errors("default")
        assert sum(group.count for group in groups) == reported["failed"]
        assert len(await store.runs_of_error("default", groups[0].id, limit=1_000)) == reported["failed"]
    finally:
        await store.close()
