"""Pressure: what waits can be counted, and what matters least can be let go of."""

from __future__ import annotations

from mainspring.conformance.store.definitions.after import end, outcomes
from mainspring.conformance.store.samples import (
    a_job,
    a_run,
    another_try,
    finish,
    in_line,
    new_events,
    options,
    seen,
    states,
    submit,
    take,
    take_one,
)
from mainspring.core.instants import HOUR, SECOND
from mainspring.core.model import Gate, RunOptions
from mainspring.core.schedules.triggers import AfterTrigger
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
        assert await store.shed("default", "runs wait 400 s", 2) == 2
        assert await store.shed("default", "runs wait 400 s", 2) == 1
        assert await store.shed("default", "runs wait 400 s", 2) == 0
        for run in least:
            ended = await seen(store, run)
            assert (ended.state, ended.reason) == ("skipped", "shed: runs wait 400 s")
        assert [(await seen(store, run)).state for run in (kept, future, follower)] == ["pending"] * 3
        skipped = [event.run_id for event in await new_events(store) if event.kind == "run.skipped"]
        assert sorted(str(run_id) for run_id in skipped) == sorted(run.id for run in least)

    async def test_only_of_the_namespace_that_is_meant(self, store: Store, clock: ManualClock) -> None:
        mine, theirs = a_run(clock, priority=9), a_run(clock, priority=9, namespace="other")
        first = a_run(clock, namespace="other", due_at=clock.now() + HOUR)
        waiting = a_run(clock, namespace="other", after=(first.id,), options=options(under_pressure="run"))
        await submit(store, mine, theirs, first)
        await submit(store, waiting)
        assert await store.shed("default", "runs wait 400 s", 10) == 1
        assert (await store.get_run("other", theirs.id)).state == "pending"
        assert await store.hurry("default", "", 10) == 0
        assert await store.hurry("other", "", 10) == 1
        assert (await store.get_run("other", waiting.id)).state == "pending"

    async def test_for_all_namespaces_at_once_if_none_is_named(self, store: Store, clock: ManualClock) -> None:
        hasty = options(under_pressure="run")
        for namespace in ("default", "other"):
            first = a_run(clock, namespace=namespace, due_at=clock.now() + HOUR)
            await submit(store, first)
            await submit(store, a_run(clock, namespace=namespace, after=(first.id,), options=hasty))
        assert await store.hurry(None, "", 10) == 2

    async def test_no_run_has_waited_longer_than_it_exists(self, store: Store, clock: ManualClock) -> None:
        began = clock.now()
        await submit(store, a_run(clock, due_at=began - 1_000 * HOUR))
        assert [row.oldest_at for row in await store.backlog(10)] == [began]

    async def test_what_has_begun_is_not_shed(self, store: Store, clock: ManualClock) -> None:
        running, tried = a_run(clock, priority=10), a_run(clock, priority=10, gates=(Gate("g", 1),))
        await submit(store, tried)
        await store.report([another_try(await take_one(store))])
        await submit(store, running)
        while not await take(store, limit=2):
            clock.advance(SECOND)
        assert await store.shed("default", "", 10) == 0

    async def test_a_process_knows_how_hard_it_has_it(self, store: Store) -> None:
        strain = store.strain()
        assert strain.waits >= 0
        assert strain.longest_s <= strain.waited_s or strain.waits == 0

    async def test_runs_that_allow_it_do_not_wait_under_pressure(self, store: Store, clock: ManualClock) -> None:
        first, second, key = a_run(clock), a_run(clock), in_line(clock, "key:v1")
        await submit(store, first, second, key)
        hasty = options(under_pressure="run")
        both = a_run(clock, after=(first.id, second.id), options=hasty)
        patient = a_run(clock, after=(first.id,))
        future = a_run(clock, after=(first.id,), options=hasty, due_at=clock.now() + HOUR)
        behind = in_line(clock, "key:v1", after=(first.id,), options=hasty)
        await submit(store, both, patient, future, behind)
        assert await states(store, both, patient, future, behind) == ["blocked"] * 4
        assert await store.hurry("default", "400 runs wait", 10) == 2
        assert await store.hurry("default", "400 runs wait", 10) == 0
        assert await states(store, both, patient, future, behind) == ["pending", "blocked", "blocked", "blocked"], (
            "the last does not wait for a run any more, but its key is another's"
        )
        assert (await seen(store, both)).reason == "does not wait for what it follows: 400 runs wait"
        assert {event.run_id for event in await new_events(store) if event.kind == "run.hurried"} == {
            both.id,
            behind.id,
        }
        await finish(store, first)
        assert await states(store, both, patient) == ["pending", "pending"], "it is freed once, not twice"
        await finish(store, key)
        assert await states(store, behind) == ["pending"]

    async def test_no_more_are_hurried_than_were_asked_for(self, store: Store, clock: ManualClock) -> None:
        first = a_run(clock)
        await submit(store, first)
        await submit(store, *(a_run(clock, after=(first.id,), options=options(under_pressure="run")) for _ in range(3)))
        assert [await store.hurry("default", "", 2) for _ in range(3)] == [2, 1, 0]

    async def test_jobs_that_allow_it_do_not_wait_for_all_before_them(self, store: Store, clock: ManualClock) -> None:
        for name in ("extract", "load"):
            await store.create_job(a_job(clock, name))
        after = AfterTrigger(("extract", "load"))
        patient = await store.create_job(a_job(clock, "patient", after))
        hasty = await store.create_job(a_job(clock, "hasty", after, options=RunOptions(under_pressure="run")))
        assert await store.hurry("default", "400 runs wait", 10) == 0, "nothing has ended yet that it could follow"
        await end(store, clock, "extract")
        assert (await outcomes(store, patient), await outcomes(store, hasty)) == ([], []), "without pressure it waits"
        assert await store.hurry("default", "400 runs wait", 10) == 1
        (event,) = [event for event in await new_events(store) if event.kind == "job.hurried"]
        assert (event.job, event.reason) == ("hasty", "does not wait for what it follows: 400 runs wait")
        await end(store, clock, "extract")
        assert (await outcomes(store, patient), len(await outcomes(store, hasty))) == ([], 1)
        assert await store.hurry("default", "400 runs wait", 10) == 0, "what it fired for is used up"
