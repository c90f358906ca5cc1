"""Runs that wait for other runs."""

from __future__ import annotations

from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import (
    TTL,
    a_run,
    another_try,
    failure,
    finish,
    in_line,
    new_events,
    new_id,
    number_all,
    options,
    recover_the_rest,
    seen,
    states,
    submit,
    take,
)
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.runs.dependency import JUDGED_AT_ONCE
from mainspring.core.states import State
from mainspring.errors import InvalidInput
from mainspring.store import Store
from mainspring.testing.clock import ManualClock


class DependencySuite:
    """A waiting run is freed when what it waits for allows it, or ends with the reason; it never waits for ever."""

    async def test_a_run_waits_until_all_that_it_depends_on_have_succeeded(
        self, store: Store, clock: ManualClock
    ) -> None:
        first, second = a_run(clock), a_run(clock)
        last = a_run(clock, after=(first.id, second.id))
        await submit(store, first, second, last)
        await finish(store, first)
        assert await states(store, last) == ["blocked"]
        await finish(store, second)
        assert await states(store, last) == ["pending"]
        assert [claim.run_id for claim in await take(store)] == [last.id]

    async def test_a_run_that_depends_on_nothing_any_more_is_an_event(self, store: Store, clock: ManualClock) -> None:
        first, second = a_run(clock), a_run(clock)
        last = a_run(clock, after=(first.id, second.id))
        any_of = a_run(clock, after=(first.id, second.id), when="any_finished")
        spoilt = a_run(clock, after=(first.id, second.id))
        await submit(store, first, second, last, any_of)
        await number_all(store)
        await finish(store, first)
        await submit(store, spoilt)  # The second alone is left for it.
        found = [event for event in await new_events(store) if event.kind == "dependency.ready"]
        assert [(event.run_id, event.reason) for event in found] == [(any_of.id, f"upstream run {first.id} succeeded")]
        await finish(store, second, failure)
        assert [event.kind for event in await new_events(store) if event.kind == "dependency.ready"] == []

    async def test_a_run_in_a_line_is_ready_when_its_upstreams_have_ended(
        self, store: Store, clock: ManualClock
    ) -> None:
        upstream, ahead = a_run(clock), in_line(clock, "key:k")
        both = in_line(clock, "key:k", after=(upstream.id,))
        await submit(store, upstream, ahead, both)
        await number_all(store)
        await finish(store, upstream)
        found = [(event.run_id, event.at) for event in await new_events(store) if event.kind == "dependency.ready"]
        assert found == [(both.id, clock.now())]
        await finish(store, ahead)
        assert [event for event in await new_events(store) if event.kind == "dependency.ready"] == []
        assert await states(store, both) == ["pending"]

    async def test_a_failed_upstream_skips_the_run_and_says_so(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        waiting = a_run(clock, after=(upstream.id,))
        await submit(store, upstream, waiting)
        await finish(store, upstream, failure)
        stored = await seen(store, waiting)
        assert (stored.state, stored.finished_at) == ("skipped", clock.now())
        assert upstream.id in stored.reason
        assert "failed" in stored.reason

    async def test_what_a_failed_upstream_means_is_chosen_by_the_run(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        meant: list[tuple[str, State]] = [("skip", "skipped"), ("fail", "failed"), ("run", "pending")]
        waiting = [a_run(clock, after=(upstream.id,), on_failure=choice) for choice, _ in meant]
        await submit(store, upstream, *waiting)
        await finish(store, upstream, failure)
        assert await states(store, *waiting) == [state for _, state in meant]

    async def test_a_run_that_runs_whatever_happens_still_waits_for_all(self, store: Store, clock: ManualClock) -> None:
        bad, good = a_run(clock), a_run(clock)
        cleanup = a_run(clock, after=(bad.id, good.id), on_failure="run")
        await submit(store, bad, good, cleanup)
        await finish(store, bad, failure)
        assert await states(store, cleanup) == ["blocked"]
        await finish(store, good)
        assert await states(store, cleanup) == ["pending"]

    async def test_any_finished_waits_for_the_first_however_it_ends(self, store: Store, clock: ManualClock) -> None:
        first, second = a_run(clock), a_run(clock)
        waiting = a_run(clock, after=(first.id, second.id), when="any_finished")
        await submit(store, first, second, waiting)
        await finish(store, second, failure)
        assert await states(store, waiting) == ["pending"]
        await finish(store, waiting)
        await finish(store, first)
        assert await states(store, waiting) == ["succeeded"]

    async def test_a_retry_of_the_upstream_is_waited_for(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        waiting = a_run(clock, after=(upstream.id,))
        await submit(store, upstream, waiting)
        await finish(store, upstream, another_try)
        assert await states(store, waiting) == ["blocked"]
        await finish(store, upstream)
        assert await states(store, waiting) == ["pending"]

    async def test_a_run_that_was_skipped_has_dependants_too(self, store: Store, clock: ManualClock) -> None:
        root = a_run(clock)
        child = a_run(clock, after=(root.id,))
        grandchild = a_run(clock, after=(child.id,))
        cleanup = a_run(clock, after=(child.id,), on_failure="run")
        other = a_run(clock, after=(child.id,), when="any_finished")
        strict = a_run(clock, after=(grandchild.id,), on_failure="fail")
        await submit(store, root, child, grandchild, cleanup, other, strict)
        await finish(store, root, failure)
        assert await states(store, child, grandchild, cleanup, other, strict) == [
            "skipped",
            "skipped",
            "pending",
            "pending",
            "failed",
        ]
        assert child.id in (await seen(store, grandchild)).reason

    async def test_a_long_chain_ends_with_its_head(self, store: Store, clock: ManualClock) -> None:
        chain = [a_run(clock)]
        for _ in range(300):
            chain.append(a_run(clock, after=(chain[-1].id,)))
        await store.submit(chain)
        await finish(store, chain[0], failure)
        assert (await seen(store, chain[1])).state == "skipped"
        assert (await store.count_runs("default"))["blocked"] > 0, "all in one transaction: others would wait for it"
        await recover_the_rest(store)
        assert (await seen(store, chain[-1])).state == "skipped"
        assert (await store.count_runs("default")).get("blocked", 0) == 0

    async def test_many_that_wait_for_one_run_are_freed_some_at_a_time(self, store: Store, clock: ManualClock) -> None:
        upstream, other = a_run(clock), a_run(clock)
        waiting = [a_run(clock, after=(upstream.id,)) for _ in range(2 * JUDGED_AT_ONCE)]
        both = a_run(clock, after=(upstream.id, other.id))
        await submit(store, upstream, other)
        await store.submit([*waiting, both])
        await finish(store, upstream)
        assert 0 < (await store.count_runs("default"))["blocked"] < len(waiting)
        gone = [run for run in waiting if (await seen(store, run)).state == "blocked"][-1]
        await store.request_cancel("default", gone.id, "not needed")
        late = a_run(clock, after=(upstream.id,))
        await submit(store, late)
        await recover_the_rest(store)
        assert await states(store, both, gone, late) == ["blocked", "cancelled", "pending"]
        assert (await store.count_runs("default"))["blocked"] == 1
        await finish(store, other)
        assert await states(store, both) == ["pending"]

    async def test_a_cancelled_upstream_counts_as_not_succeeded(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        waiting, cleanup = a_run(clock, after=(upstream.id,)), a_run(clock, after=(upstream.id,), on_failure="run")
        await submit(store, upstream, waiting, cleanup)
        await store.request_cancel("default", upstream.id, "not needed")
        assert await states(store, waiting, cleanup) == ["skipped", "pending"]
        assert "cancelled" in (await seen(store, waiting)).reason

    async def test_an_upstream_that_was_lost_too_often_has_failed(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock, options=options(max_losses=0))
        waiting = a_run(clock, after=(upstream.id,))
        await submit(store, upstream, waiting)
        await take(store)
        clock.advance(TTL + 1)
        await store.recover(HOUR, 100)
        assert await states(store, upstream, waiting) == ["failed", "skipped"]

    async def test_an_upstream_that_expired_was_skipped(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock, expires_at=clock.now() + MINUTE)
        waiting = a_run(clock, after=(upstream.id,), on_failure="fail")
        await submit(store, upstream, waiting)
        clock.advance(2 * MINUTE)
        await store.recover(HOUR, 100)
        assert await states(store, upstream, waiting) == ["skipped", "failed"]

    async def test_a_run_that_ended_early_is_not_freed_by_its_other_upstreams(
        self, store: Store, clock: ManualClock
    ) -> None:
        bad, good = a_run(clock), a_run(clock)
        waiting = a_run(clock, after=(bad.id, good.id))
        await submit(store, bad, good, waiting)
        await finish(store, bad, failure)
        await finish(store, good)
        assert await states(store, waiting) == ["skipped"]
        assert await take(store) == []

    async def test_a_cancelled_run_is_not_freed_by_its_upstream(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        waiting = a_run(clock, after=(upstream.id,))
        await submit(store, upstream, waiting)
        await store.request_cancel("default", waiting.id, "not needed")
        await finish(store, upstream)
        assert await states(store, waiting) == ["cancelled"]

    async def test_an_upstream_that_succeeded_before_is_met(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        await submit(store, upstream)
        await finish(store, upstream)
        waiting = a_run(clock, after=(upstream.id,))
        await submit(store, waiting)
        assert await states(store, waiting) == ["pending"]

    async def test_an_upstream_that_failed_before_is_judged_at_submission(
        self, store: Store, clock: ManualClock
    ) -> None:
        upstream = a_run(clock)
        await submit(store, upstream)
        await finish(store, upstream, failure)
        choices = [
            a_run(clock, after=(upstream.id,)),
            a_run(clock, after=(upstream.id,), on_failure="fail"),
            a_run(clock, after=(upstream.id,), on_failure="run"),
            a_run(clock, after=(upstream.id,), when="any_finished"),
        ]
        dependant = a_run(clock, after=(choices[0].id,))
        assert await submit(store, *choices, dependant) == [run.id for run in (*choices, dependant)]
        assert await states(store, *choices, dependant) == ["skipped", "failed", "pending", "pending", "skipped"]
        assert upstream.id in (await seen(store, choices[0])).reason

    async def test_what_ended_before_counts_beside_what_has_not(self, store: Store, clock: ManualClock) -> None:
        before, later = a_run(clock), a_run(clock)
        await submit(store, before, later)
        await finish(store, before)
        waiting = a_run(clock, after=(before.id, later.id))
        await submit(store, waiting)
        assert await states(store, waiting) == ["blocked"]
        await finish(store, later)
        assert await states(store, waiting) == ["pending"]

    async def test_a_dependency_on_an_unknown_run_is_refused(self, store: Store, clock: ManualClock) -> None:
        lonely = a_run(clock, after=(new_id(clock),))
        with refused(InvalidInput):
            await submit(store, lonely)
        assert await store.find_runs("default", lonely.id) == []

    async def test_a_dependency_cannot_reach_into_another_namespace(self, store: Store, clock: ManualClock) -> None:
        theirs = a_run(clock, namespace="tenant-a")
        await submit(store, theirs)
        with refused(InvalidInput):
            await submit(store, a_run(clock, after=(theirs.id,)))

    async def test_a_circle_of_runs_is_refused(self, store: Store, clock: ManualClock) -> None:
        first, second = new_id(clock), new_id(clock)
        with refused(InvalidInput):
            await submit(store, a_run(clock, id=first, after=(first,)))
        with refused(InvalidInput):
            await submit(store, a_run(clock, id=first, after=(second,)), a_run(clock, id=second, after=(first,)))
        assert await store.find_runs("default", first) == []

    async def test_a_freed_run_still_waits_for_its_due_time(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        waiting = a_run(clock, after=(upstream.id,), due_at=clock.now() + HOUR)
        await submit(store, upstream, waiting)
        await finish(store, upstream)
        assert await take(store) == []
        clock.advance(HOUR)
        assert [claim.run_id for claim in await take(store)] == [waiting.id]

    async def test_dependencies_and_lines_are_both_waited_for(self, store: Store, clock: ManualClock) -> None:
        upstream, head = a_run(clock), in_line(clock, "key:a")
        waiting = in_line(clock, "key:a", after=(upstream.id,))
        await submit(store, upstream, head, waiting)
        await finish(store, upstream)
        assert await states(store, waiting) == ["blocked"]
        await finish(store, head)
        assert await states(store, waiting) == ["pending"]
