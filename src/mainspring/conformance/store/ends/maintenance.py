"""Recovery and cleaning."""

from __future__ import annotations

import asyncio

import msgspec

from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import (
    TTL,
    a_job,
    a_run,
    a_worker,
    another_try,
    failure,
    finish,
    finish_all,
    in_line,
    new_events,
    number_all,
    options,
    register,
    seen,
    states,
    submit,
    success,
    take,
    take_one,
    trigger,
)
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration
from mainspring.core.model import Gate, JobPolicy, LogLine
from mainspring.core.states import FINAL
from mainspring.errors import NotFound
from mainspring.store import MOST_ENDED_WORKERS, RunFilter, Store
from mainspring.testing.clock import ManualClock

DEAD_AFTER = 10 * SECOND
PASSES = 20


async def clean(store: Store, runs: Duration = DAY, firings: Duration = DAY, events: Duration = DAY) -> int:
    """One pass without a limit that matters."""
    return await store.clean(runs, firings, events, 1_000)


def out_of_time_in(clock: ManualClock, total: Duration) -> str:
    """The options of a run whose total timeout begins now."""
    return options(total_timeout=total, give_up_at=clock.now() + total)


async def forgets(store: Store, runs: Duration) -> bool:
    """Whether something goes, in the first pass or a later one: a store may leave for the next what is being read."""
    for _ in range(PASSES):
        if await clean(store, runs=runs):
            return True
    return False


class MaintenanceSuite:
    """What is lost is found, once; history is kept as long as it should be; unfinished work is never forgotten."""

    async def test_a_run_whose_claim_ran_out_is_due_again(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock)
        await submit(store, run)
        claim = await take_one(store, a_worker("worker-1"))
        clock.advance(TTL - 1)
        assert (await store.recover(HOUR, 100)).lost == 0
        clock.advance(2)
        assert (await store.recover(HOUR, 100)).lost == 1
        stored = await seen(store, run)
        assert (stored.state, stored.losses, stored.attempt) == ("pending", 1, 1)
        assert (stored.claimed_until, "worker-1" in stored.reason) == (None, True)
        (attempt,) = await store.list_attempts(run.id)
        assert (attempt.outcome, attempt.worker, attempt.token) == ("lost", "worker-1", claim.token)
        assert (await take_one(store, a_worker("worker-2"))).losses == 1

    async def test_a_store_is_called_idle_only_if_nothing_can_soon_be_lost_or_late(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, a_run(clock))
        claim = await take_one(store)
        assert not (await store.recover(HOUR, 100)).idle
        await store.report([success(claim)])
        await submit(store, a_run(clock, due_at=clock.now() + HOUR, expires_at=clock.now() + 2 * HOUR))
        assert not (await store.recover(HOUR, 100)).idle

    async def test_a_run_that_waits_past_its_total_timeout_fails(self, store: Store, clock: ManualClock) -> None:
        bounded = a_run(clock, options=out_of_time_in(clock, MINUTE))
        blocked = a_run(clock, after=(bounded.id,), on_failure="run", options=out_of_time_in(clock, MINUTE + SECOND))
        first, second = (in_line(clock, "key:k", options=out_of_time_in(clock, MINUTE)) for _ in range(2))
        unbounded = a_run(clock)
        await submit(store, bounded, blocked, first, second, unbounded)
        clock.advance(MINUTE - 1)
        assert (await store.recover(HOUR, 100)).expired == 0
        await new_events(store)
        clock.advance(1)
        assert not (await store.recover(HOUR, 100)).idle
        for run in (bounded, first, second):
            stored = await seen(store, run)
            assert (stored.state, stored.reason) == ("failed", "not started within its total timeout of 1m")
            assert (stored.attempt, stored.started_at, stored.finished_at) == (0, None, clock.now())
            assert await store.list_attempts(run.id) == []
        assert (await seen(store, unbounded)).state == "pending"
        assert (await seen(store, blocked)).state == "pending", "its upstream has ended"
        failed = [event for event in await new_events(store) if event.kind == "run.failed"]
        assert {event.run_id for event in failed} == {bounded.id, first.id, second.id}
        clock.advance(SECOND)
        await store.recover(HOUR, 100)
        assert (await seen(store, blocked)).state == "failed"

    async def test_a_blocked_run_fails_at_its_total_timeout_and_what_follows_it_is_judged(
        self, store: Store, clock: ManualClock
    ) -> None:
        upstream = a_run(clock)
        blocked = a_run(clock, after=(upstream.id,), options=out_of_time_in(clock, MINUTE))
        last = a_run(clock, after=(blocked.id,))
        await submit(store, upstream, blocked, last)
        clock.advance(MINUTE)
        await store.recover(HOUR, 100)
        assert (await seen(store, blocked)).state == "failed"
        ended = await seen(store, last)
        assert ended.state in FINAL
        assert blocked.id in ended.reason
        await finish(store, upstream)
        assert (await seen(store, blocked)).state == "failed"

    async def test_a_total_timeout_that_passes_while_a_run_waits_for_its_retry_fails_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = a_run(clock, options=out_of_time_in(clock, MINUTE), gates=(Gate("g", 1),))
        await submit(store, run)
        await store.report([another_try(await take_one(store), 10 * SECOND)])
        clock.advance(MINUTE)
        await store.recover(HOUR, 100)
        stored = await seen(store, run)
        assert (stored.state, stored.attempt) == ("failed", 1)
        assert stored.reason == "not done within its total timeout of 1m; attempt 2 was not started"
        assert [attempt.outcome for attempt in await store.list_attempts(run.id)] == ["failed"]
        free = a_run(clock, gates=(Gate("g", 1),))
        await submit(store, free)
        assert (await take_one(store)).run_id == free.id

    async def test_a_run_that_is_executed_is_left_to_its_worker_when_its_total_timeout_ends(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, run := a_run(clock, options=out_of_time_in(clock, SECOND)))
        claim = await take_one(store)
        clock.advance(2 * SECOND)
        await store.recover(HOUR, 100)
        assert (await seen(store, run)).state == "running"
        assert await store.report([success(claim)]) == ["accepted"]

    async def test_of_a_starting_deadline_and_a_total_timeout_the_earlier_counts(
        self, store: Store, clock: ManualClock
    ) -> None:
        end = out_of_time_in(clock, MINUTE)
        early = a_run(clock, expires_at=clock.now() + MINUTE - 1, options=end)
        late = a_run(clock, expires_at=clock.now() + MINUTE + 1, options=end)
        await submit(store, early, late)
        clock.advance(HOUR)
        await store.recover(DAY, 100)
        assert [(await seen(store, run)).state for run in (early, late)] == ["skipped", "failed"]

    async def test_as_many_runs_as_are_out_of_time_end_in_one_pass_as_it_may_take(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, *(a_run(clock, options=out_of_time_in(clock, SECOND)) for _ in range(25)))
        clock.advance(SECOND)
        assert [(await store.recover(HOUR, 10)).expired for _ in range(4)] == [10, 10, 5, 0]

    async def test_recovering_twice_counts_a_loss_once(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock)
        await submit(store, run)
        await take_one(store)
        clock.advance(TTL + 1)
        assert [(await store.recover(HOUR, 100)).lost for _ in range(3)] == [1, 0, 0]
        assert (await seen(store, run)).losses == 1

    async def test_a_run_that_is_lost_too_often_fails_and_says_why(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, options=options(max_losses=2))
        await submit(store, run)
        for losses in (1, 2, 3):
            assert await states(store, run) == ["pending"]
            await take_one(store, a_worker(f"worker-{losses}"))
            clock.advance(TTL + 1)
            assert (await store.recover(HOUR, 100)).ended == (("failed",) if losses == 3 else ())
        stored = await seen(store, run)
        assert (stored.state, stored.losses, stored.attempt) == ("failed", 3, 3)
        assert "lost 3 times" in stored.reason
        assert [attempt.outcome for attempt in await store.list_attempts(run.id)] == ["lost"] * 3

    async def test_a_run_that_is_lost_when_its_total_timeout_has_ended_fails(
        self, store: Store, clock: ManualClock
    ) -> None:
        end = clock.now() + 2 * TTL
        run = a_run(clock, options=options(total_timeout=2 * TTL, give_up_at=end))
        await submit(store, run)
        await take_one(store)
        clock.advance(TTL + 1)
        assert (await store.recover(HOUR, 100)).ended == ()
        assert await states(store, run) == ["pending"]
        await take_one(store)
        clock.advance(TTL + 1)
        assert (await store.recover(HOUR, 100)).ended == ("failed",)
        stored = await seen(store, run)
        assert (stored.state, stored.losses) == ("failed", 2)
        assert "its total timeout of 20s leaves no time for another attempt" in stored.reason

    async def test_a_lost_run_whose_cancellation_was_requested_ends_cancelled(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = a_run(clock)
        await submit(store, run)
        await take_one(store)
        await store.request_cancel("default", run.id, "not needed")
        clock.advance(TTL + 1)
        assert (await store.recover(HOUR, 100)).ended == ("cancelled",)
        stored = await seen(store, run)
        assert (stored.state, "not needed" in stored.reason) == ("cancelled", True)

    async def test_live_claims_are_left_alone(self, store: Store, clock: ManualClock) -> None:
        dead, live = a_run(clock), a_run(clock)
        await submit(store, dead)
        await take_one(store, a_worker("worker-1"))
        clock.advance(TTL)
        await submit(store, live)
        claim = await take_one(store, a_worker("worker-2"))
        clock.advance(1)
        assert (await store.recover(HOUR, 100)).lost == 1
        stored = await seen(store, live)
        assert (stored.state, stored.token, stored.losses) == ("running", claim.token, 0)

    async def test_recovery_goes_on_where_its_limit_stopped_it(self, store: Store, clock: ManualClock) -> None:
        await store.submit([a_run(clock) for _ in range(7)])
        await take(store)
        clock.advance(TTL + 1)
        found = [(await store.recover(HOUR, 3)).lost for _ in range(4)]
        assert sum(found) == 7
        assert max(found) <= 3

    async def test_a_run_past_its_starting_deadline_is_skipped_and_says_so(
        self, store: Store, clock: ManualClock
    ) -> None:
        deadline = clock.now() + MINUTE
        waiting, head = a_run(clock, expires_at=deadline, task="nobody's"), in_line(clock, "key:a", task="nobody's")
        blocked, started = in_line(clock, "key:a", expires_at=deadline), a_run(clock, expires_at=deadline)
        in_time = a_run(clock, expires_at=deadline + HOUR, task="nobody's")
        await submit(store, waiting, head, blocked, started, in_time)
        claim = await take_one(store)
        clock.advance(MINUTE + 1)
        await store.renew(a_worker(), [(claim.run_id, claim.token)], HOUR)
        assert (await store.recover(HOUR, 100)).expired == 2
        assert await states(store, waiting, blocked) == ["skipped", "skipped"]
        assert await states(store, started, in_time, head) == ["running", "pending", "pending"]
        assert (await seen(store, waiting)).reason
        assert await store.list_attempts(waiting.id) == []

    async def test_a_run_that_started_in_time_may_be_tried_again_after_its_deadline(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = a_run(clock, expires_at=clock.now() + MINUTE)
        await submit(store, run)
        await store.report([another_try(await take_one(store), HOUR)])
        clock.advance(HOUR)
        assert (await store.recover(DAY, 100)).expired == 0
        assert (await take_one(store)).run_id == run.id

    async def test_a_silent_worker_is_dead_and_reported_once(self, store: Store, clock: ManualClock) -> None:
        silent = await register(store, clock, "silent")
        lively = await register(store, clock, "lively")
        clock.advance(DEAD_AFTER - 1)
        await store.renew(lively, [], TTL)
        assert (await store.recover(DEAD_AFTER, 100)).dead_workers == ()
        clock.advance(2)
        assert (await store.recover(DEAD_AFTER, 100)).dead_workers == ("silent",)
        assert (await store.recover(DEAD_AFTER, 100)).dead_workers == ()
        known = {worker.id: worker.state for worker in await store.list_workers("default")}
        assert known["lively"] == "active"
        assert known.get("silent", "dead") == "dead"
        await store.register(msgspec.structs.replace(silent, heartbeat_at=clock.now()))
        known = {worker.id: worker.state for worker in await store.list_workers("default")}
        assert known["silent"] == "active"

    async def test_a_worker_that_said_goodbye_is_not_dead(self, store: Store, clock: ManualClock) -> None:
        await register(store, clock, "polite", state="stopped")
        await register(store, clock, "silent")
        clock.advance(HOUR)
        assert (await store.recover(DEAD_AFTER, 100)).dead_workers == ("silent",)

    async def test_history_is_forgotten_when_it_is_old_enough(self, store: Store, clock: ManualClock) -> None:
        old, new = a_run(clock), a_run(clock)
        await submit(store, old)
        await finish(store, old)
        await store.record([LogLine(old.id, 1, clock.now(), "stdout", "text")], [])
        clock.advance(DAY)
        await submit(store, new)
        await finish(store, new, failure)
        clock.advance(1)
        assert await forgets(store, runs=DAY)
        with refused(NotFound):
            await seen(store, old)
        assert (await store.list_attempts(old.id), await store.list_logs(old.id)) == ([], [])
        assert await states(store, new) == ["failed"]
        assert len(await store.list_attempts(new.id)) == 1

    async def test_unfinished_work_is_never_cleaned(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "nightly"))
        firing = await trigger(store, clock, "nightly", "by hand")
        running = a_run(clock, priority=1)
        runs = [running, a_run(clock, due_at=clock.now() + 900 * DAY), a_run(clock, after=(running.id,))]
        await store.submit(runs)
        await take_one(store)
        await store.record([LogLine(running.id, 1, clock.now(), "stdout", "text")], [])
        clock.advance(400 * DAY)
        await clean(store, 0, 0, 0)
        assert await states(store, *runs) == ["running", "pending", "blocked"]
        assert len(await store.list_logs(running.id)) == 1
        assert [row.run_id for row in await store.list_firings(firing.job_id)] == [firing.run_id]

    async def test_a_job_keeps_as_many_runs_as_it_says(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "kept", policy=JobPolicy(keep_succeeded=2, keep_failed=1)))
        await store.create_job(a_job(clock, "free"))
        ended: dict[str, list[str]] = {"good": [], "bad": [], "free": []}
        for number in range(4):
            for name, kind, report in (("kept", "good", success), ("kept", "bad", failure), ("free", "free", success)):
                clock.advance(SECOND)
                firing = await trigger(store, clock, name, f"{kind}-{number}")
                await store.report([report(await take_one(store))])
                ended[kind].append(firing.run_id or "")
        await clean(store, runs=DAY)
        left = {run.id for run in await store.list_runs(RunFilter(limit=100))}
        assert left == {*ended["good"][2:], ended["bad"][3], *ended["free"]}

    async def test_a_job_that_keeps_nothing_keeps_nothing(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "kept", policy=JobPolicy(keep_succeeded=0)))
        await trigger(store, clock, "kept", "by hand")
        await finish_all(store, clock)
        await clean(store)
        assert await store.list_runs(RunFilter()) == []
        assert [row.outcome for row in await store.list_firings(job.id)] == ["succeeded"]

    async def test_the_ledger_outlives_the_runs(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly"))
        await trigger(store, clock, "nightly", "by hand")
        await finish_all(store, clock)
        clock.advance(2 * DAY)
        await clean(store, runs=DAY, firings=30 * DAY)
        assert await store.list_runs(RunFilter()) == []
        assert [row.outcome for row in await store.list_firings(job.id)] == ["succeeded"]
        clock.advance(30 * DAY)
        await clean(store, runs=DAY, firings=30 * DAY)
        assert await store.list_firings(job.id) == []

    async def test_cleaning_goes_on_where_its_limit_stopped_it(self, store: Store, clock: ManualClock) -> None:
        await store.submit([a_run(clock) for _ in range(10)])
        await finish_all(store, clock)
        clock.advance(2 * DAY)
        left = 10
        while await store.clean(DAY, 100 * DAY, 100 * DAY, 4):
            now_left = len(await store.list_runs(RunFilter()))
            assert left - 4 <= now_left <= left
            left = now_left
        assert left == 0

    async def test_events_are_forgotten_only_after_they_were_numbered(self, store: Store, clock: ManualClock) -> None:
        await submit(store, a_run(clock))
        clock.advance(2 * DAY)
        await clean(store, events=DAY)
        assert await new_events(store) != []
        assert await store.events_since(0, 100) != []
        clock.advance(2 * DAY)
        await clean(store, events=DAY)
        assert await store.events_since(0, 100) == []

    async def test_events_that_a_listener_has_not_heard_are_kept_four_times_as_long(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, a_run(clock))
        (heard,) = await number_all(store)
        await submit(store, a_run(clock))
        (unheard,) = await number_all(store)
        await store.note_heard("slow", unheard.position)
        clock.advance(3 * DAY)
        await clean(store, events=DAY)
        assert await store.events_since(0, 100) == [unheard]
        await store.note_heard("quick", unheard.position + len(unheard.events))
        await clean(store, events=DAY)
        assert await store.events_since(heard.position, 100) == [unheard]
        clock.advance(2 * DAY)
        await clean(store, events=DAY)
        assert await store.events_since(0, 100) == []

    async def test_events_that_all_listeners_have_heard_are_not_kept_longer(
        self, store: Store, clock: ManualClock
    ) -> None:
        await submit(store, a_run(clock))
        (batch,) = await number_all(store)
        for listener in ("slow", "quick"):
            await store.note_heard(listener, batch.position + len(batch.events))
        clock.advance(2 * DAY)
        await clean(store, events=DAY)
        assert await store.events_since(0, 100) == []

    async def test_numbers_of_forgotten_events_are_not_used_again(self, store: Store, clock: ManualClock) -> None:
        await submit(store, a_run(clock))
        await new_events(store)
        next_position = await store.next_position()
        clock.advance(2 * DAY)
        await clean(store, events=DAY)
        assert await store.next_position() == next_position
        await submit(store, a_run(clock))
        (batch,) = await number_all(store)
        assert batch.position == next_position

    async def test_nothing_is_cleaned_where_there_is_nothing(self, store: Store) -> None:
        assert await clean(store) == 0

    async def test_of_very_many_ended_workers_the_newest_are_kept(self, store: Store, clock: ManualClock) -> None:
        live = await register(store, clock, "live")
        names = [f"ended-{number:04}" for number in range(MOST_ENDED_WORKERS + 5)]
        for some in (names[:5], names[5:]):
            await asyncio.gather(*(register(store, clock, name, state="stopped") for name in some))
            clock.advance(1)
        await store.renew(live, [], TTL)
        await store.register(a_worker("elsewhere", state="stopped", namespace="other"))
        await forgets(store, runs=DAY)
        known = sorted(worker.id for worker in await store.list_workers("default"))
        assert (len(known), known[0], known[-1]) == (MOST_ENDED_WORKERS + 1, "ended-0005", "live")
        assert len(await store.list_workers("other")) == 1
