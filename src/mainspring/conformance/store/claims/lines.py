"""Lines: runs of one key, one after the other in the order in which they were accepted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mainspring.conformance.store.samples import (
    TTL,
    a_run,
    another_try,
    failure,
    finish,
    finish_all,
    in_line,
    options,
    recover_the_rest,
    seen,
    states,
    submit,
    success,
    take,
    take_one,
    unfinished,
)
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.model import Claim, NewRun, Report
from mainspring.core.runs.dependency import JUDGED_AT_ONCE
from mainspring.store import Store
from mainspring.testing.clock import ManualClock


class LineSuite:
    """Commit order within a line, whatever priorities and due times say; and a line goes on when its head has ended."""

    async def test_a_line_is_served_one_at_a_time_in_commit_order(self, store: Store, clock: ManualClock) -> None:
        runs = [in_line(clock, "key:v1") for _ in range(4)]
        for run in reversed(runs):
            await submit(store, run)
        assert await states(store, *runs) == ["blocked", "blocked", "blocked", "pending"]
        for run in reversed(runs):
            claims = await take(store)
            assert [claim.run_id for claim in claims] == [run.id]
            await store.report([success(claims[0])])

    async def test_the_order_of_a_line_beats_priority_and_due_time(self, store: Store, clock: ManualClock) -> None:
        head = in_line(clock, "key:v1", priority=10, due_at=clock.now() + MINUTE)
        urgent = in_line(clock, "key:v1", priority=1)
        await submit(store, head, urgent)
        assert await take(store) == []
        clock.advance(MINUTE)
        assert [claim.run_id for claim in await take(store)] == [head.id]

    async def test_lines_do_not_wait_for_each_other(self, store: Store, clock: ManualClock) -> None:
        runs = [in_line(clock, f"key:v{n}") for n in range(5)]
        foreign = in_line(clock, "key:v0", namespace="tenant-a")
        await submit(store, *runs, foreign)
        assert await states(store, *runs, foreign) == ["pending"] * 6

    async def test_a_retrying_head_holds_its_line(self, store: Store, clock: ManualClock) -> None:
        head, follower = in_line(clock, "key:v1"), in_line(clock, "key:v1")
        await submit(store, head, follower)
        await finish(store, head, lambda claim: another_try(claim, MINUTE))
        assert await take(store) == []
        clock.advance(MINUTE)
        assert [claim.run_id for claim in await take(store)] == [head.id]

    async def test_a_head_that_is_handed_back_or_lost_holds_its_line(self, store: Store, clock: ManualClock) -> None:
        head, follower = in_line(clock, "key:v1"), in_line(clock, "key:v1", priority=1)
        await submit(store, head, follower)
        claim = await take_one(store)
        await store.hand_back([(claim.run_id, claim.token)])
        assert (await take_one(store)).run_id == head.id
        clock.advance(TTL + 1)
        await store.recover(HOUR, 100)
        assert [claim.run_id for claim in await take(store)] == [head.id]
        assert await states(store, follower) == ["blocked"]

    async def test_a_line_goes_on_however_its_head_ends(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        heads = [
            in_line(clock, "key:succeeded"),
            in_line(clock, "key:failed"),
            in_line(clock, "key:cancelled"),
            in_line(clock, "key:skipped", after=(upstream.id,)),
            in_line(clock, "key:expired", expires_at=clock.now() + 1, due_at=clock.now() + HOUR),
        ]
        followers = [in_line(clock, head.lines[0].name) for head in heads]
        await submit(store, upstream, *heads, *followers)
        assert await states(store, *followers) == ["blocked"] * 5
        await store.request_cancel("default", heads[2].id, "not needed")
        await finish(store, heads[0])
        await finish(store, heads[1], failure)
        await finish(store, upstream, failure)
        clock.advance(2)
        await store.recover(HOUR, 100)
        assert await states(store, *heads) == ["succeeded", "failed", "cancelled", "skipped", "skipped"]
        assert await states(store, *followers) == ["pending"] * 5

    async def test_a_head_that_is_lost_too_often_frees_its_line(self, store: Store, clock: ManualClock) -> None:
        head, follower = in_line(clock, "key:v1", options=options(max_losses=0)), in_line(clock, "key:v1")
        await submit(store, head, follower)
        await take_one(store)
        clock.advance(TTL + 1)
        await store.recover(HOUR, 100)
        assert await states(store, head, follower) == ["failed", "pending"]

    async def test_a_line_that_stops_at_a_failure_skips_the_waiting_runs_and_names_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        stop = options(on_key_failure="stop")
        head, second, third = (in_line(clock, "key:v1", options=stop) for _ in range(3))
        dependant, other = a_run(clock, after=(third.id,)), in_line(clock, "key:v2", options=stop)
        await submit(store, head, second, third, dependant, other)
        await finish(store, head, failure)
        assert await states(store, head, second, third) == ["failed", "skipped", "skipped"]
        assert await states(store, dependant, other) == ["skipped", "pending"]
        for run in (second, third):
            assert head.id in (await seen(store, run)).reason

    async def test_a_long_line_that_stops_ends_some_at_a_time_and_none_of_it_begins(
        self, store: Store, clock: ManualClock
    ) -> None:
        stop = options(on_key_failure="stop")
        head, *waiting = (in_line(clock, "key:v1", options=stop) for _ in range(2 * JUDGED_AT_ONCE + 10))
        dependant, other = a_run(clock, after=(waiting[-1].id,)), in_line(clock, "key:v2", options=stop)
        await store.submit([head, *waiting, dependant])
        await finish(store, head, failure)
        await submit(store, other)
        assert await states(store, waiting[0], waiting[-1], other) == ["skipped", "blocked", "pending"]
        later = in_line(clock, "key:v1")
        await submit(store, later)
        await store.request_cancel("default", waiting[-2].id, "not needed")
        assert [claim.run_id for claim in await take(store)] == [other.id], "one that was to end with the head began"
        await recover_the_rest(store)
        assert await states(store, waiting[-1], waiting[-2], dependant) == ["skipped", "cancelled", "skipped"]
        assert await states(store, later) == ["pending"]
        assert (await store.count_runs("default")).get("blocked", 0) == 0
        assert head.id in (await seen(store, waiting[-1])).reason

    async def test_a_line_that_stops_at_a_failure_goes_on_after_a_success(
        self, store: Store, clock: ManualClock
    ) -> None:
        stop = options(on_key_failure="stop")
        head, second = (in_line(clock, "key:v1", options=stop) for _ in range(2))
        await submit(store, head, second)
        await finish(store, head)
        assert await states(store, second) == ["pending"]

    async def test_a_run_that_leaves_a_line_from_the_middle_is_not_waited_for(
        self, store: Store, clock: ManualClock
    ) -> None:
        first, second, third = (in_line(clock, "key:v1") for _ in range(3))
        await submit(store, first, second, third)
        await store.request_cancel("default", second.id, "not needed")
        assert await states(store, first, third) == ["pending", "blocked"]
        await finish(store, first)
        assert await states(store, third) == ["pending"]

    async def test_a_line_may_have_several_places(self, store: Store, clock: ManualClock) -> None:
        runs = [in_line(clock, "job:films", capacity=2) for _ in range(4)]
        await store.submit(runs)
        assert await states(store, *runs) == ["pending", "pending", "blocked", "blocked"]
        await finish(store, runs[1])
        assert await states(store, *runs) == ["pending", "succeeded", "pending", "blocked"]

    async def test_a_line_that_got_more_places_keeps_its_order(self, store: Store, clock: ManualClock) -> None:
        first, second = in_line(clock, "job:films"), in_line(clock, "job:films")
        third = in_line(clock, "job:films", capacity=2)
        await submit(store, first, second)
        await submit(store, third)
        assert await states(store, first, third) == ["pending", "blocked"]
        await finish(store, first)
        assert (await states(store, second)) == ["pending"]

    async def test_a_run_in_two_lines_waits_in_both(self, store: Store, clock: ManualClock) -> None:
        a, b = in_line(clock, "key:a"), in_line(clock, "key:b")
        both, after_both = in_line(clock, "key:a", "key:b"), in_line(clock, "key:b")
        await submit(store, a, b, both, after_both)
        await finish(store, a)
        assert await states(store, both, after_both) == ["blocked", "blocked"]
        await finish(store, b)
        assert await states(store, both, after_both) == ["pending", "blocked"]
        await finish(store, both)
        assert await states(store, after_both) == ["pending"]

    async def test_a_head_that_waits_for_a_run_holds_its_line(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock)
        head, follower = in_line(clock, "key:v1", after=(upstream.id,)), in_line(clock, "key:v1")
        await submit(store, upstream, head, follower)
        assert await states(store, head, follower) == ["blocked", "blocked"]
        await finish(store, upstream)
        assert await states(store, head, follower) == ["pending", "blocked"]

    async def test_a_line_that_has_emptied_starts_anew(self, store: Store, clock: ManualClock) -> None:
        for _ in range(3):
            run = in_line(clock, "key:v1")
            await submit(store, run)
            assert await states(store, run) == ["pending"]
            await finish(store, run)

    async def test_whatever_happens_lines_keep_their_order_and_come_to_an_end(
        self, store: Store, clock: ManualClock
    ) -> None:
        for seed in range(3):
            random = Random(seed)
            accepted: dict[str, list[str]] = {"key:a": [], "key:b": [], "key:c": []}
            for _ in range(80):
                await _step(store, clock, random, accepted)
                alive = {run.id: run.state for run in await unfinished(store)}
                for order in accepted.values():
                    granted = [alive[run_id] != "blocked" for run_id in order if run_id in alive]
                    assert not any(granted[1:]), "only the first of a line may go"
            clock.advance(TTL + 1)
            await finish_all(store, clock)
            assert await unfinished(store) == []


async def _step(store: Store, clock: ManualClock, random: Random, accepted: dict[str, list[str]]) -> None:
    """One of the things that may happen to runs in lines."""
    match random.randint(0, 5):
        case 0 | 1:
            names = random.sample(sorted(accepted), random.randint(1, 2))
            run: NewRun = in_line(clock, *names, priority=random.randint(1, 10), options=options(max_losses=1))
            await submit(store, run)
            for name in names:
                accepted[name].append(run.id)
        case 2 | 3:
            await store.report([_word(random, claim) for claim in await take(store)])
        case 4:
            known = await unfinished(store)
            if known:
                await store.request_cancel("default", random.choice(known).id, "not needed")
        case _:
            await take(store)
            clock.advance(TTL + 1)
            await store.recover(HOUR, 100)


def _word(random: Random, claim: Claim) -> Report:
    words: list[Callable[[Claim], Report]] = [success, failure, another_try]
    return random.choice(words)(claim)
