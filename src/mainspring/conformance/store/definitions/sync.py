"""Making the stored jobs of an app what its code declares."""

from __future__ import annotations

import msgspec

from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import a_job, fire
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.model import Job, JobPolicy
from mainspring.core.planning.declaring import PAGE, UNDECLARED
from mainspring.core.schedules.triggers import AfterTrigger, EveryTrigger
from mainspring.errors import Conflict, InvalidInput
from mainspring.store import Saved, Store
from mainspring.testing.clock import ManualClock

HOURLY = EveryTrigger(HOUR)


def declared(clock: ManualClock, name: str, **changes: object) -> Job:
    """A job as the code of the app `films` declares it: with another id each time."""
    return msgspec.structs.replace(a_job(clock, name, HOURLY, app="films"), **changes)


async def sync(store: Store, *jobs: Job) -> Saved:
    """Declare these and no others."""
    return await store.sync_jobs("films", "default", jobs)


class SyncSuite:
    """What changed in the code changes in the store; nothing else does."""

    async def test_declared_jobs_are_created(self, store: Store, clock: ManualClock) -> None:
        saved = await sync(store, declared(clock, "a"), declared(clock, "b"))
        assert (sorted(saved.created), saved.updated, saved.unchanged, saved.undeclared) == (["a", "b"], (), (), ())
        stored = await store.get_job("default", "a")
        assert (stored.app, stored.version, stored.next_fire_at) == ("films", 1, clock.now() + HOUR)

    async def test_what_did_not_change_is_left_alone(self, store: Store, clock: ManualClock) -> None:
        await sync(store, declared(clock, "a"))
        before = await store.get_job("default", "a")
        clock.advance(90 * MINUTE)
        assert (await sync(store, declared(clock, "a"))).unchanged == ("a",)
        assert await store.get_job("default", "a") == before

    async def test_a_changed_definition_raises_the_version_and_keeps_the_rest(
        self, store: Store, clock: ManualClock
    ) -> None:
        await sync(store, declared(clock, "a"))
        before = await store.get_job("default", "a")
        clock.advance(HOUR)
        await fire(store, clock, "a")
        await store.pause_jobs("default", ["a"], paused=True, reason="audit")
        clock.advance(MINUTE)
        saved = await sync(store, declared(clock, "a", args='{"x":1}', priority=1))
        assert (saved.updated, saved.created) == (("a",), ())
        after = await store.get_job("default", "a")
        assert (after.id, after.created_at, after.fired) == (before.id, before.created_at, 1)
        assert (after.args, after.priority, after.paused_why) == ('{"x":1}', 1, "audit")
        assert after.version > before.version
        assert after.next_fire_at == before.created_at + 2 * HOUR

    async def test_the_next_fire_time_moves_when_the_trigger_changed(self, store: Store, clock: ManualClock) -> None:
        await sync(store, declared(clock, "a"), declared(clock, "b"))
        clock.advance(MINUTE)
        anchored = EveryTrigger(10 * MINUTE, anchor=clock.now())
        later = JobPolicy(start_at=clock.now() + 24 * HOUR)
        changed = declared(clock, "a", trigger=anchored), declared(clock, "b", policy=later)
        assert sorted((await sync(store, *changed)).updated) == ["a", "b"]
        assert (await store.get_job("default", "a")).next_fire_at == clock.now() + 10 * MINUTE
        moved = (await store.get_job("default", "b")).next_fire_at
        assert moved is not None
        assert moved >= clock.now() + 24 * HOUR

    async def test_undeclared_jobs_are_named_and_not_touched(self, store: Store, clock: ManualClock) -> None:
        await sync(store, declared(clock, "a"), declared(clock, "b"))
        await store.create_job(a_job(clock, "other", app="billing"))
        await store.create_job(a_job(clock, "foreign", app="films", namespace="tenant-a"))
        before = await store.get_job("default", "b")
        saved = await sync(store, declared(clock, "a"))
        assert saved.undeclared == ("b",)
        assert await store.get_job("default", "b") == before

    async def test_a_name_that_another_app_owns_is_a_conflict_and_nothing_is_written(
        self, store: Store, clock: ManualClock
    ) -> None:
        await sync(store, declared(clock, "a"))
        theirs = await store.create_job(a_job(clock, "b", app="billing"))
        before = await store.get_job("default", "a")
        with refused(Conflict):
            await sync(store, declared(clock, "a", priority=1), declared(clock, "b"), declared(clock, "c"))
        assert await store.list_jobs("default") == [before, theirs]

    async def test_a_job_may_fire_after_one_that_is_declared_later(self, store: Store, clock: ManualClock) -> None:
        report = declared(clock, "report", trigger=AfterTrigger(("extract",)))
        assert sorted((await sync(store, report, declared(clock, "extract"))).created) == ["extract", "report"]
        extract = await store.get_job("default", "extract")
        edges = await store.list_edges((await store.get_job("default", "report")).id)
        assert [(edge.upstream, edge.upstream_id) for edge in edges] == [("extract", extract.id)]

    async def test_declared_jobs_cannot_wait_for_each_other_in_a_circle(self, store: Store, clock: ManualClock) -> None:
        first = declared(clock, "a", trigger=AfterTrigger(("b",)))
        with refused(InvalidInput):
            await sync(store, first, declared(clock, "b", trigger=AfterTrigger(("a",))), declared(clock, "c"))
        assert await store.list_jobs("default") == []

    async def test_a_changed_upstream_changes_the_edges(self, store: Store, clock: ManualClock) -> None:
        base = [declared(clock, "a"), declared(clock, "b")]
        await sync(store, *base, declared(clock, "c", trigger=AfterTrigger(("a",))))
        await sync(store, *base, declared(clock, "c", trigger=AfterTrigger(("b",))))
        edges = await store.list_edges((await store.get_job("default", "c")).id)
        assert [edge.upstream for edge in edges] == ["b"]
        await store.remove_job("default", "a")

    async def test_only_what_the_same_code_declared_is_called_undeclared(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.sync_jobs("films", "default", [declared(clock, "ours")], source="one")
        await store.sync_jobs("films", "default", [declared(clock, "theirs")], source="two")
        for origin in ("", "call", "api", "cli"):
            await store.create_job(declared(clock, f"by {origin}", origin=origin))
        saved = await store.sync_jobs("films", "default", [], source="one")
        assert saved.undeclared == ("ours",)

    async def test_a_job_that_code_declares_becomes_that_codes(self, store: Store, clock: ManualClock) -> None:
        """Without a new version: those stored by older programs, and those that were added and are now declared."""
        before = await store.create_job(declared(clock, "a"))
        saved = await store.sync_jobs("films", "default", [declared(clock, "a")], source="one")
        assert (saved.unchanged, saved.updated) == (("a",), ())
        after = await store.get_job("default", "a")
        assert after == msgspec.structs.replace(before, origin="code", source="one")
        edited = await store.edit_job(msgspec.structs.replace(after, priority=1), after.version)
        assert (await store.get_job("default", "a")).origin == edited.origin == "code"

    async def test_a_job_that_is_declared_again_goes_on(self, store: Store, clock: ManualClock) -> None:
        await sync(store, declared(clock, "a"), declared(clock, "b"))
        await store.pause_jobs("default", ["a"], paused=True, reason=UNDECLARED)
        await store.pause_jobs("default", ["b"], paused=True, reason="audit")
        clock.advance(90 * MINUTE)
        saved = await sync(store, declared(clock, "a", priority=1), declared(clock, "b"))
        assert (saved.resumed, saved.updated) == (("a",), ("a",))
        again, other = await store.get_job("default", "a"), await store.get_job("default", "b")
        assert (again.paused_at, again.priority, other.paused_why) == (None, 1, "audit")
        assert again.next_fire_at == clock.now() + 30 * MINUTE

    async def test_more_jobs_than_a_page_are_stored_in_the_order_of_their_needs(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Each page is a transaction, so a later firing comes after an earlier one."""
        count = PAGE + 200
        chain = [declared(clock, f"j{n:05}", trigger=AfterTrigger((f"j{n + 1:05}",))) for n in range(0, count, 300)]
        rest = [declared(clock, f"j{n:05}") for n in range(count + 1) if n % 300]
        saved = await sync(store, *chain, *rest)
        assert len(saved.created) == len(chain) + len(rest)
        saved = await sync(store, *chain, *rest[1:])
        assert (len(saved.unchanged), saved.updated, saved.undeclared) == (len(chain) + len(rest) - 1, (), ("j00001",))

    async def test_what_is_refused_is_refused_before_the_first_page_is_written(
        self, store: Store, clock: ManualClock
    ) -> None:
        many = [declared(clock, f"j{n:05}") for n in range(PAGE + 1)]
        theirs = await store.create_job(a_job(clock, "z", app="billing"))
        circle = [declared(clock, each, trigger=AfterTrigger((other,))) for each, other in (("x", "y"), ("y", "x"))]
        for wrong, error in (
            ([declared(clock, "z")], Conflict),
            ([declared(clock, "y", trigger=AfterTrigger(("nobody",)))], InvalidInput),
            ([declared(clock, "y", policy=JobPolicy(calendars=("none",)))], InvalidInput),
            (circle, InvalidInput),
        ):
            with refused(error):
                await sync(store, *many, *wrong)
            assert await store.list_jobs("default") == [theirs]

    async def test_jobs_are_found_by_their_names(self, store: Store, clock: ManualClock) -> None:
        await sync(store, declared(clock, "a"), declared(clock, "b"))
        await store.create_job(a_job(clock, "c", namespace="tenant-a"))
        found = await store.find_jobs("default", ["a", "c", "x"])
        assert found == [await store.get_job("default", "a")]
        assert await store.find_jobs("default", []) == []
