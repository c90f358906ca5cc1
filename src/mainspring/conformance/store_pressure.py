"""Pressure: what waits can be counted, and what matters least can be let go of."""

from __future__ import annotations

from mainspring.conformance.store_samples import a_run, another_try, seen, submit, take, take_one, told
from mainspring.core.instants import HOUR, SECOND
from mainspring.core.model import Gate
from mainspring.store import Backlog, Store
from mainspring.testing.clock import ManualClock


class PressureSuite:
    """Only what is due and untaken counts; and whatever is shed says why."""

    async def test_what_is_due_and_untaken_is_counted_by_namespace_and_priority(
        self, store: Store, clock: ManualClock
    ) -> None:
        assert await store.backlog(100) == []
        began = clock.now()
        await submit(store, *(a_run(clock, priority=5) for _ in range(3)), a_run(clock, priority=9))
        await submit(store, a_run(clock, namespace="other"), a_run(clock, due_at=began + HOUR, priority=1))
        await submit(store, a_run(clock, queue="mail"), a_run(clock, region="mars"))
        clock.advance(SECOND)
        found = await store.backlog(2)
        expected = [
            Backlog("default", "default", "default", 5, 2, began),
            Backlog("default", "default", "default", 9, 1, began),
            Backlog("default", "default", "mars", 5, 1, began), Backlog("default", "mail", "default", 5, 1, began),
            Backlog("other", "default", "default", 5, 1, began),
        ]  # fmt: skip
        assert sorted(found, key=lambda row: (row.namespace, row.queue, row.region, row.priority)) == expected
        await take(store)
        assert sorted(row.queue + row.region for row in await store.backlog(2) if row.namespace == "default") == [
            "defaultmars", "maildefault",
        ]  # fmt: skip

    async def test_the_least_important_are_shed_with_the_reason(self, store: Store, clock: ManualClock) -> None:
        kept = a_run(clock, priority=7)
        least = [a_run(clock, priority=priority) for priority in (8, 9, 10)]
        future = a_run(clock, priority=10, due_at=clock.now() + HOUR)
        follower = a_run(clock, after=(least[0].id,), on_failure="run")
        await submit(store, kept, *least, future, follower)
        assert await store.shed("runs wait 400 s", 2) == 2
        assert await store.shed("runs wait 400 s", 2) == 1
        assert await store.shed("runs wait 400 s", 2) == 0
        for run in least:
            ended = await seen(store, run)
            assert (ended.state, ended.reason) == ("skipped", "shed: runs wait 400 s")
        assert [(await seen(store, run)).state for run in (kept, future, follower)] == ["pending"] * 3
        skipped = [event.run_id for event in await told(store) if event.kind == "run.skipped"]
        assert sorted(str(run_id) for run_id in skipped) == sorted(run.id for run in least)

    async def test_what_has_begun_is_not_shed(self, store: Store, clock: ManualClock) -> None:
        running, tried = a_run(clock, priority=10), a_run(clock, priority=10, gates=(Gate("g", 1),))
        await submit(store, tried)
        await store.report([another_try(await take_one(store))])
        await submit(store, running)
        while not await take(store, limit=2):
            clock.advance(SECOND)
        assert await store.shed("", 10) == 0

    async def test_a_process_knows_how_hard_it_has_it(self, store: Store) -> None:
        strain = store.strain()
        assert strain.waits >= 0
        assert strain.longest_s <= strain.waited_s or strain.waits == 0
