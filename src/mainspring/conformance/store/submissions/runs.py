"""Submitting runs and looking at them."""

from __future__ import annotations

import asyncio

import msgspec

from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import (
    a_job,
    a_run,
    a_worker,
    failure,
    finish,
    gated,
    in_line,
    new_events,
    new_id,
    options,
    seen,
    states,
    submit,
    success,
    take,
    take_one,
    trigger,
)
from mainspring.conformance.store.submissions.dependencies import DependencySuite
from mainspring.core.ids import TAIL
from mainspring.core.instants import DAY, HOUR, SECOND
from mainspring.core.model import NewRun
from mainspring.core.runs.retry import Retry
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.store import RunFilter, Store
from mainspring.testing.clock import ManualClock

MEBIBYTE = 1024 * 1024


async def listed(store: Store, **where: object) -> list[str]:
    """The ids of a listing."""
    return [run.id for run in await store.list_runs(msgspec.structs.replace(RunFilter(), **where))]


class RunSuite(DependencySuite):
    """What was accepted stays accepted, once, as it was given."""

    async def test_what_was_submitted_is_read_back(self, store: Store, clock: ManualClock) -> None:
        run = a_run(
            clock,
            due_at=clock.now() + 1_234_567,
            created_at=clock.now() - 7,
            queue="films",
            region="eu",
            args='{"title":"Amélie 🎬 \\u0000 \u202e \'; --"}',
            priority=3,
            options=options(timeout=HOUR, retry=Retry(7, delay="1s"), tags=("a", "é")),
            expires_at=clock.now() + HOUR + 1,
            retry_of=new_id(clock),
        )
        assert await submit(store, run) == [run.id]
        stored = await seen(store, run)
        for field in (
            "id",
            "namespace",
            "queue",
            "region",
            "task",
            "args",
            "priority",
            "options",
            "due_at",
            "retry_of",
        ):
            assert getattr(stored, field) == getattr(run, field), field
        assert (stored.created_at, stored.expires_at) == (run.created_at, run.expires_at)
        assert (stored.state, stored.token, stored.attempt, stored.losses) == ("pending", 0, 0, 0)

    async def test_what_was_not_given_is_none_and_what_was_empty_is_empty(
        self, store: Store, clock: ManualClock
    ) -> None:
        bare, empty = a_run(clock), a_run(clock, key="", args="")
        await submit(store, bare, empty)
        stored = await seen(store, bare)
        absent = (stored.job_id, stored.job, stored.fire_at, stored.key, stored.expires_at, stored.retry_of)
        assert absent == (None,) * 6
        unknown = (stored.worker, stored.claimed_until, stored.started_at, stored.finished_at, stored.result)
        assert unknown == (None,) * 5
        assert ((await seen(store, empty)).key, (await seen(store, empty)).args) == ("", "")

    async def test_large_arguments_survive(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, args='{"text":"' + "ß" * (MEBIBYTE // 2) + '"}')
        await submit(store, run)
        assert (await seen(store, run)).args == run.args
        assert (await take_one(store)).args == run.args

    async def test_a_run_is_known_in_its_namespace_only(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, namespace="tenant-a")
        await submit(store, run)
        assert (await store.get_run("tenant-a", run.id)).id == run.id
        with refused(NotFound):
            await store.get_run("default", run.id)
        with refused(NotFound):
            await store.get_run("default", new_id(clock))

    async def test_a_submission_repeated_after_a_lost_reply_changes_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        runs = [a_run(clock), a_run(clock), in_line(clock, "key:a")]
        ids = await store.submit([*runs, runs[1]])
        assert ids.pop() == runs[1].id
        assert await store.submit(runs) == ids == [run.id for run in runs]
        assert await listed(store) == sorted(ids, reverse=True)

    async def test_a_run_that_has_ended_is_not_revived_by_submitting_it_again(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = a_run(clock)
        await submit(store, run)
        await finish(store, run)
        assert await submit(store, run) == [run.id]
        assert await states(store, run) == ["succeeded"]
        assert await take(store) == []

    async def test_a_batch_is_accepted_whole_or_not_at_all(self, store: Store, clock: ManualClock) -> None:
        good, bad = a_run(clock), a_run(clock, after=(new_id(clock),))
        with refused(InvalidInput):
            await submit(store, good, bad)
        assert await listed(store) == []
        assert await new_events(store) == []

    async def test_a_large_batch_is_accepted_in_order(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(2_000)]
        assert await store.submit(runs) == [run.id for run in runs]
        assert [claim.run_id for claim in await take(store, limit=2_000)] == [run.id for run in runs]

    async def test_nothing_is_submitted_by_an_empty_batch(self, store: Store) -> None:
        assert await store.submit([]) == []

    async def test_the_same_key_and_request_give_the_same_run(self, store: Store, clock: ManualClock) -> None:
        first = a_run(clock, idempotency_key="order-1", args='{"order":1}')
        await submit(store, first)
        clock.advance(5 * SECOND)
        again = a_run(clock, idempotency_key="order-1", args='{"order":1}')
        assert await submit(store, again) == [first.id]
        assert await listed(store) == [first.id]

    async def test_the_same_key_with_another_request_is_a_conflict(self, store: Store, clock: ManualClock) -> None:
        first = a_run(clock, idempotency_key="order-1", args='{"order":1}')
        await submit(store, first)
        with refused(Conflict):
            await submit(store, a_run(clock), a_run(clock, idempotency_key="order-1", args='{"order":2}'))
        with refused(Conflict):
            await submit(store, msgspec.structs.replace(first, id=new_id(clock), task="decode"))
        assert await listed(store) == [first.id]

    async def test_a_key_outlives_its_run(self, store: Store, clock: ManualClock) -> None:
        first = a_run(clock, idempotency_key="order-1")
        await submit(store, first)
        await finish(store, first)
        assert await submit(store, a_run(clock, idempotency_key="order-1")) == [first.id]
        assert await take(store) == []

    async def test_a_key_means_nothing_in_another_namespace(self, store: Store, clock: ManualClock) -> None:
        ours = a_run(clock, idempotency_key="order-1", args='{"order":1}')
        theirs = a_run(clock, idempotency_key="order-1", args='{"order":2}', namespace="tenant-a")
        await submit(store, ours)
        assert await submit(store, theirs) == [theirs.id]

    async def test_a_key_holds_within_one_batch(self, store: Store, clock: ManualClock) -> None:
        first, again = a_run(clock, idempotency_key="k"), a_run(clock, idempotency_key="k")
        assert await submit(store, first, again) == [first.id, first.id]
        other = a_run(clock, idempotency_key="l"), a_run(clock, idempotency_key="l", task="decode")
        with refused(Conflict):
            await submit(store, *other)
        assert await listed(store) == [first.id]

    async def test_of_many_equal_requests_at_once_one_is_accepted(self, store: Store, clock: ManualClock) -> None:
        requests = [a_run(clock, idempotency_key="order-1") for _ in range(20)]
        answers = await asyncio.gather(*(store.submit([run]) for run in requests))
        assert len({answer[0] for answer in answers}) == 1
        assert len(await listed(store)) == 1

    async def test_runs_are_listed_newest_first_a_page_at_a_time(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(7)]
        await store.submit(runs)
        await finish(store, runs[2])
        await finish(store, runs[5])
        pages: list[str] = []
        while page := await listed(store, limit=3, before=pages[-1] if pages else None):
            assert len(page) <= 3
            pages += page
        assert pages == [run.id for run in reversed(runs)]

    async def test_runs_are_listed_by_state_task_tag_and_namespace(self, store: Store, clock: ManualClock) -> None:
        plain, tagged = a_run(clock), a_run(clock, options=options(tags=("nightly", "eu")))
        other, foreign = a_run(clock, task="decode"), a_run(clock, namespace="tenant-a")
        ended = a_run(clock, options=options(tags=("nightly",)))
        await submit(store, plain, tagged, other, foreign, ended)
        await finish(store, ended)
        assert await listed(store, states=("pending",)) == [other.id, tagged.id, plain.id]
        assert await listed(store, states=("succeeded", "failed")) == [ended.id]
        assert await listed(store, states=("pending", "succeeded"), task="encode") == [ended.id, tagged.id, plain.id]
        assert await listed(store, tag="nightly") == [ended.id, tagged.id]
        assert await listed(store, tag="nightly", states=("succeeded",), task="encode") == [ended.id]
        assert await listed(store, queue="default") == [ended.id, other.id, tagged.id, plain.id]
        assert await listed(store, queue="other") == []
        assert await listed(store, since=other.id) == [ended.id, other.id]
        assert await listed(store, since=other.id, before=ended.id) == [other.id]
        assert await listed(store, tag="night") == []
        assert await listed(store, namespace="tenant-a") == [foreign.id]

    async def test_runs_are_listed_by_job(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "nightly"))
        await submit(store, a_run(clock))
        firing = await trigger(store, clock, "nightly", "by hand")
        assert await listed(store, job="nightly") == [firing.run_id]
        assert await listed(store, job="weekly") == []

    async def test_runs_are_counted_by_state(self, store: Store, clock: ManualClock) -> None:
        done, bad, waiting = a_run(clock), a_run(clock), a_run(clock, due_at=clock.now() + HOUR)
        await submit(store, done, bad, waiting, a_run(clock, namespace="tenant-a"), a_run(clock, after=(waiting.id,)))
        await finish(store, done)
        await finish(store, bad, failure)
        counts = await store.count_runs("default")
        assert {state: number for state, number in counts.items() if number} == {
            "succeeded": 1,
            "failed": 1,
            "pending": 1,
            "blocked": 1,
        }

    async def test_a_run_is_found_by_how_its_id_begins_or_ends(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock, id=new_id(clock)[:-4] + ending) for ending in ("aaaa", "bbbb", "abba")]
        await store.submit(runs)
        await finish(store, runs[0])
        assert await store.find_runs("default", "aaaa") == [runs[0].id]
        assert await store.find_runs("default", "bba") == [runs[2].id]
        assert await store.find_runs("default", runs[1].id) == [runs[1].id]
        assert sorted(await store.find_runs("default", runs[0].id[:8], 10)) == sorted(run.id for run in runs)
        assert len(await store.find_runs("default", runs[0].id[:8])) == 2

    async def test_a_run_is_found_by_how_its_shown_part_begins(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock, id=new_id(clock)[:-TAIL] + tail) for tail in ("3f8kaaaa", "3f9kbbbb", "zzzz3f8k")]
        await store.submit(runs)
        for run in (runs[0], runs[2]):
            await finish(store, run)
        for typed in ("3f8kaaaa", "3f8k", "3f8"):
            assert await store.find_runs("default", typed) == [runs[0].id]
        assert await store.find_runs("default", "3f9") == [runs[1].id]
        assert sorted(await store.find_runs("default", "3f", 10)) == [runs[0].id, runs[1].id]
        assert await store.find_runs("tenant-a", "3f8") == []

    async def test_an_old_run_is_found_by_its_shown_part(self, store: Store, clock: ManualClock) -> None:
        old = a_run(clock, id=new_id(clock)[:-TAIL] + "3f8kaaaa")
        await submit(store, old)
        await finish(store, old)
        clock.advance(15 * DAY)
        newer = [a_run(clock) for _ in range(100)]
        await store.submit(newer)
        for run in newer[:3]:
            await finish(store, run)
        assert await store.find_runs("default", "3f8k") == [old.id]

    async def test_a_typed_prefix_is_no_pattern(self, store: Store, clock: ManualClock) -> None:
        await submit(store, a_run(clock))
        for typed in ("%", "_", "*", "?", "[a-z]", "'", "zzzz"):
            assert await store.find_runs("default", typed) == [], typed
        assert await store.find_runs("tenant-a", "0") == []

    async def test_finished_says_which_runs_have_ended(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(4)]
        await store.submit(runs)
        await finish(store, runs[0])
        await finish(store, runs[1], failure)
        await store.request_cancel("default", runs[2].id, "not needed")
        ended = await store.finished([*(run.id for run in runs), new_id(clock)])
        assert {run.id: run.state for run in ended} == {
            runs[0].id: "succeeded",
            runs[1].id: "failed",
            runs[2].id: "cancelled",
        }

    async def test_a_run_that_has_not_started_is_cancelled_at_once(self, store: Store, clock: ManualClock) -> None:
        waiting, blocked = a_run(clock), in_line(clock, "key:a")
        await submit(store, in_line(clock, "key:a"), waiting, blocked)
        for run in (waiting, blocked):
            assert await store.request_cancel("default", run.id, "wrong film") == "cancelled"
            stored = await seen(store, run)
            assert (stored.state, stored.finished_at) == ("cancelled", clock.now())
            assert "wrong film" in stored.reason
        assert await store.list_attempts(waiting.id) == []

    async def test_a_running_run_is_asked_to_cancel(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock)
        await submit(store, run)
        await take_one(store)
        assert await store.request_cancel("default", run.id, "wrong film") == "running"
        stored = await seen(store, run)
        assert (stored.state, stored.cancel_requested_at) == ("running", clock.now())
        assert "wrong film" in stored.cancel_reason

    async def test_a_run_that_completed_first_is_not_cancelled(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock)
        await submit(store, run)
        await finish(store, run)
        with refused(Conflict):
            await store.request_cancel("default", run.id, "too late")
        assert await states(store, run) == ["succeeded"]

    async def test_a_run_of_another_namespace_cannot_be_cancelled(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock)
        await submit(store, run)
        with refused(NotFound):
            await store.request_cancel("tenant-a", run.id, "mischief")
        with refused(NotFound):
            await store.request_cancel("default", new_id(clock), "no such run")
        assert await states(store, run) == ["pending"]

    async def test_a_blocked_run_names_what_it_waits_for(self, store: Store, clock: ManualClock) -> None:
        upstream, ended, head = a_run(clock), a_run(clock), in_line(clock, "key:a")
        await submit(store, upstream, ended, head)
        await finish(store, ended)
        waiting: NewRun = in_line(clock, "key:a", after=(upstream.id, ended.id))
        await submit(store, waiting, in_line(clock, "key:a"))
        assert sorted(await store.upstream_runs(waiting.id)) == sorted([upstream.id, head.id])
        await finish(store, upstream)
        assert await store.upstream_runs(waiting.id) == [head.id]

    async def test_a_gate_says_how_full_it_is(self, store: Store, clock: ManualClock) -> None:
        await store.submit([gated(clock, "task:encode", capacity=3) for _ in range(5)])
        claims = await take(store, a_worker(), 2)
        assert await store.gate_holders("default", "task:encode") == (2, 3)
        await store.report([success(claims[0])])
        assert await store.gate_holders("default", "task:encode") == (1, 3)
