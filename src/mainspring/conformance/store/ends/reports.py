"""What workers say about their claims: renewals, reports, hand-backs, output."""

from __future__ import annotations

import msgspec

from mainspring.conformance.store.samples import (
    TTL,
    a_run,
    a_worker,
    another_try,
    failure,
    new_id,
    register,
    seen,
    states,
    submit,
    success,
    take,
    take_one,
)
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import Claim, LogLine, NewRun, Progress, Report
from mainspring.store import RunFilter, Store
from mainspring.testing.clock import ManualClock


async def claimed(store: Store, clock: ManualClock, **changes: object) -> tuple[NewRun, Claim]:
    """A run in the hands of worker-1."""
    run = a_run(clock, **changes)
    await submit(store, run)
    return run, await take_one(store, a_worker("worker-1"))


async def lost(store: Store, clock: ManualClock) -> None:
    """Every claim runs out."""
    clock.advance(TTL + 1)
    await store.recover(HOUR, 1_000)


class ReportSuite:
    """The holder of the newest token has the last word, once."""

    async def test_a_success_is_recorded_with_its_result(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        started = clock.now() + 1
        clock.advance(2_345_678)
        report = msgspec.structs.replace(success(claim, '{"x":"Ü"}'), started_at=started, finished_at=clock.now())
        assert await store.report([report]) == ["accepted"]
        stored = await seen(store, run)
        assert (stored.state, stored.result, stored.error, stored.attempt) == ("succeeded", '{"x":"Ü"}', None, 1)
        assert (stored.started_at, stored.finished_at, stored.worker) == (started, clock.now(), "worker-1")
        assert (stored.claimed_until, stored.token) == (None, claim.token)

    async def test_a_result_that_is_null_is_not_a_missing_one(self, store: Store, clock: ManualClock) -> None:
        results = [None, "null", '""', ""]
        runs = [a_run(clock) for _ in results]
        await store.submit(runs)
        claims = await take(store)
        await store.report([success(claim, result) for claim, result in zip(claims, results, strict=True)])
        assert [(await seen(store, run)).result for run in runs] == results

    async def test_a_large_result_survives(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        result = '"' + "é" * (512 * 1024) + '"'
        await store.report([success(claim, result)])
        assert (await seen(store, run)).result == result

    async def test_a_failure_is_recorded_with_its_error(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        assert await store.report([failure(claim, "ValueError: no; no retries left")]) == ["accepted"]
        stored = await seen(store, run)
        assert (stored.state, stored.reason) == ("failed", "ValueError: no; no retries left")
        assert (stored.error, stored.result) == (failure(claim).error, None)
        assert await take(store) == []

    async def test_a_run_may_say_that_it_was_not_needed(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        await store.report([Report(run.id, claim.token, "skipped", "skipped", "nothing new")])
        stored = await seen(store, run)
        assert (stored.state, stored.reason) == ("skipped", "nothing new")

    async def test_a_retry_is_due_after_its_delay_on_the_stores_clock(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        clock.advance(3 * SECOND)
        reported_at = clock.now()
        assert await store.report([another_try(claim, MINUTE, "no; retry 1 of 3 in 1m")]) == ["accepted"]
        stored = await seen(store, run)
        assert (stored.state, stored.due_at, stored.attempt) == ("pending", reported_at + MINUTE, 1)
        assert (stored.reason, stored.claimed_until, stored.losses) == ("no; retry 1 of 3 in 1m", None, 0)
        assert stored.attempt_ended_at == reported_at
        assert [each.attempt_ended_at for each in await store.list_runs(RunFilter())] == [reported_at]
        clock.advance(MINUTE - 1)
        assert await take(store) == []
        clock.advance(1)
        again = await take_one(store)
        assert (again.run_id, again.attempt) == (run.id, 1)

    async def test_every_attempt_is_remembered_in_order(self, store: Store, clock: ManualClock) -> None:
        run, first = await claimed(store, clock)
        began = clock.now()
        clock.advance(SECOND)
        times = {"started_at": began, "finished_at": clock.now()}
        await store.report([msgspec.structs.replace(another_try(first, 0, "first"), **times)])
        second = await take_one(store, a_worker("worker-2"))
        assert len(await store.list_attempts(run.id)) == 1
        await lost(store, clock)
        third = await take_one(store, a_worker("worker-3"))
        await store.report([success(third)])
        attempts = await store.list_attempts(run.id)
        assert [attempt.attempt for attempt in attempts] == [1, 2, 3]
        assert [attempt.outcome for attempt in attempts] == ["failed", "lost", "succeeded"]
        assert [attempt.worker for attempt in attempts] == ["worker-1", "worker-2", "worker-3"]
        assert [attempt.token for attempt in attempts] == [first.token, second.token, third.token]
        kept = attempts[0]
        assert (kept.run_id, kept.started_at, kept.finished_at) == (run.id, began, began + SECOND)
        assert (kept.reason, kept.error) == ("first", another_try(first).error)
        assert await store.list_attempts(new_id(clock)) == []

    async def test_a_repeated_report_is_known_and_changes_nothing(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        await store.report([success(claim, "1")])
        before = await seen(store, run)
        clock.advance(SECOND)
        assert await store.report([success(claim, "1")]) == ["repeated"]
        assert await store.report([failure(claim)]) == ["repeated"]
        assert await seen(store, run) == before
        assert len(await store.list_attempts(run.id)) == 1

    async def test_a_repeated_retry_is_known_even_after_the_next_claim(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        await store.report([another_try(claim)])
        assert await store.report([another_try(claim)]) == ["repeated"]
        again = await take_one(store)
        before = await seen(store, run)
        assert await store.report([another_try(claim)]) == ["repeated"]
        assert await seen(store, run) == before
        await store.report([success(again)])
        assert await store.report([another_try(claim)]) == ["repeated"]
        assert await states(store, run) == ["succeeded"]

    async def test_a_report_given_twice_in_one_batch_counts_once(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        assert await store.report([another_try(claim), another_try(claim)]) == ["accepted", "repeated"]
        assert (await seen(store, run)).attempt == 1

    async def test_the_word_of_a_worker_that_was_overtaken_is_refused(self, store: Store, clock: ManualClock) -> None:
        run, old = await claimed(store, clock)
        await lost(store, clock)
        before = await seen(store, run)
        assert await store.report([success(old, '"too late"')]) == ["stale"]
        assert await seen(store, run) == before
        new = await take_one(store, a_worker("worker-2"))
        before = await seen(store, run)
        assert await store.report([failure(old)]) == ["stale"]
        assert await seen(store, run) == before
        assert await store.report([success(new)]) == ["accepted"]
        assert await store.report([failure(old)]) == ["stale"]
        assert [attempt.outcome for attempt in await store.list_attempts(run.id)] == ["lost", "succeeded"]

    async def test_the_word_of_a_worker_that_was_lost_and_cancelled_is_refused(
        self, store: Store, clock: ManualClock
    ) -> None:
        run, claim = await claimed(store, clock)
        await store.request_cancel("default", run.id, "not needed")
        await lost(store, clock)
        assert await store.report([success(claim)]) == ["stale"]
        assert await states(store, run) == ["cancelled"]

    async def test_a_token_that_was_never_given_is_refused(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        assert await store.report([msgspec.structs.replace(success(claim), token=claim.token + 1)]) == ["stale"]
        assert await states(store, run) == ["running"]

    async def test_a_report_on_an_unknown_run_is_stale(self, store: Store, clock: ManualClock) -> None:
        _, claim = await claimed(store, clock)
        unknown = msgspec.structs.replace(success(claim), run_id=new_id(clock))
        assert await store.report([unknown, success(claim)]) == ["stale", "accepted"]

    async def test_a_late_report_is_accepted_while_no_other_worker_has_the_run(
        self, store: Store, clock: ManualClock
    ) -> None:
        run, claim = await claimed(store, clock)
        clock.advance(HOUR)
        assert await store.report([success(claim)]) == ["accepted"]
        assert await states(store, run) == ["succeeded"]

    async def test_one_bad_report_does_not_spoil_the_batch(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(6)]
        await store.submit(runs)
        claims = await take(store)
        reports = [success(claim, '"fine"') for claim in claims]
        nasty = "bad \ud800 and \x00 text"
        reports[1] = msgspec.structs.replace(reports[1], result=nasty)
        reports[3] = msgspec.structs.replace(failure(claims[3]), reason=nasty, error=nasty)
        reports[4] = msgspec.structs.replace(reports[4], token=999)
        verdicts = await store.report(reports)
        assert verdicts == ["accepted", "accepted", "accepted", "accepted", "stale", "accepted"]
        wanted = ["succeeded", "succeeded", "succeeded", "failed", "running", "succeeded"]
        assert await states(store, *runs) == wanted
        assert "bad" in (await seen(store, runs[3])).reason
        assert (await seen(store, runs[5])).result == '"fine"'

    async def test_verdicts_come_in_the_order_of_the_reports(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(60)]
        await store.submit(runs)
        claims = await take(store)
        reports = [success(claim) for claim in claims]
        await store.report(reports[::3])
        stale = [msgspec.structs.replace(report, token=0) if n % 3 == 1 else report for n, report in enumerate(reports)]
        assert await store.report(list(reversed(stale))) == ["accepted", "stale", "repeated"] * 20

    async def test_a_success_stands_although_a_cancellation_was_requested(
        self, store: Store, clock: ManualClock
    ) -> None:
        run, claim = await claimed(store, clock)
        await store.request_cancel("default", run.id, "not needed")
        assert await store.report([success(claim, "42")]) == ["accepted"]
        stored = await seen(store, run)
        assert (stored.state, stored.result) == ("succeeded", "42")

    async def test_a_failure_after_a_cancel_request_ends_cancelled(self, store: Store, clock: ManualClock) -> None:
        for report in (failure, another_try):
            run, claim = await claimed(store, clock)
            await store.request_cancel("default", run.id, "not needed")
            assert await store.report([report(claim)]) == ["accepted"]
            stored = await seen(store, run)
            assert stored.state == "cancelled"
            assert "not needed" in stored.reason
            assert [attempt.outcome for attempt in await store.list_attempts(run.id)] == ["cancelled"]

    async def test_a_worker_hears_of_cancel_requests(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        other, other_claim = await claimed(store, clock)
        await store.request_cancel("default", run.id, "not needed")
        assert list(await store.cancels([run.id, other.id])) == [run.id]
        held = [(run.id, claim.token), (other.id, other_claim.token)]
        renewal = await store.renew(a_worker("worker-1"), held, TTL)
        assert renewal.held == frozenset(held)
        assert list(renewal.cancels) == [run.id]
        assert "not needed" in renewal.cancels[run.id]

    async def test_a_renewed_claim_lives_longer(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        clock.advance(TTL - 1)
        await store.renew(a_worker("worker-1"), [(run.id, claim.token)], TTL)
        assert (await seen(store, run)).claimed_until == clock.now() + TTL
        clock.advance(TTL - 1)
        assert (await store.recover(HOUR, 100)).lost == 0
        assert (await seen(store, run)).token == claim.token

    async def test_a_renewal_is_a_heartbeat(self, store: Store, clock: ManualClock) -> None:
        worker = await register(store, clock, "worker-1")
        clock.advance(MINUTE)
        assert (await store.renew(worker, [], TTL)).held == frozenset()
        (known,) = await store.list_workers("default")
        assert known.heartbeat_at == clock.now()

    async def test_claims_that_were_lost_or_ended_are_not_held(self, store: Store, clock: ManualClock) -> None:
        taken, claim = await claimed(store, clock)
        await lost(store, clock)
        ended, ended_claim = await claimed(store, clock, priority=1)
        await store.report([success(ended_claim)])
        asked = [(taken.id, claim.token), (ended.id, ended_claim.token), (new_id(clock), 1)]
        for worker in (a_worker("worker-2"), a_worker("worker-1")):
            again = await take_one(store, worker)
            clock.advance(1)
            assert (await store.renew(a_worker("worker-1"), asked, TTL)).held == frozenset()
            assert (await seen(store, taken)).claimed_until == again.claimed_until
            await store.hand_back([(again.run_id, again.token)])

    async def test_a_claim_handed_back_was_no_attempt(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        clock.advance(SECOND)
        assert await store.hand_back([(run.id, claim.token)]) == 1
        stored = await seen(store, run)
        assert (stored.state, stored.attempt, stored.losses) == ("pending", 0, 0)
        assert (stored.claimed_until, stored.due_at <= clock.now()) == (None, True)
        assert await store.list_attempts(run.id) == []
        again = await take_one(store, a_worker("worker-2"))
        assert (again.attempt, again.token > claim.token) == (0, True)

    async def test_a_worker_that_handed_a_claim_back_can_no_longer_report(
        self, store: Store, clock: ManualClock
    ) -> None:
        run, claim = await claimed(store, clock)
        await store.hand_back([(run.id, claim.token)])
        assert await store.report([success(claim)]) == ["stale"]
        again = await take_one(store, a_worker("worker-2"))
        await store.hand_back([(run.id, claim.token)])
        assert await store.report([success(claim)]) == ["stale"]
        assert (await store.renew(a_worker("worker-1"), [(run.id, claim.token)], TTL)).held == frozenset()
        assert await store.report([success(again)]) == ["accepted"]

    async def test_a_run_handed_back_after_a_cancel_request_ends_cancelled(
        self, store: Store, clock: ManualClock
    ) -> None:
        run, claim = await claimed(store, clock)
        await store.request_cancel("default", run.id, "not needed")
        await store.hand_back([(run.id, claim.token)])
        assert await states(store, run) == ["cancelled"]

    async def test_output_is_kept_in_order(self, store: Store, clock: ManualClock) -> None:
        run, other = a_run(clock), a_run(clock)
        await submit(store, run, other)
        await take(store)
        lines = [LogLine(run.id, 1, clock.now() + n, "stdout", f"line {n} é") for n in range(5)]
        await store.record([lines[0], LogLine(other.id, 1, clock.now(), "stderr", "other"), *lines[1:3]], [])
        await store.record(lines[3:], [])
        logged = await store.list_logs(run.id)
        assert [line for _, line in logged] == lines
        numbers = [number for number, _ in logged]
        assert numbers == sorted(set(numbers))
        assert numbers[0] > 0
        assert await store.list_logs(run.id, after=numbers[1], limit=2) == logged[2:4]
        assert await store.list_logs(run.id, after=numbers[-1]) == []
        assert await store.have_written({run.id: numbers[-1], other.id: 0, "none": 0}) == [other.id]
        assert sorted(await store.have_written({run.id: numbers[3], other.id: 0})) == sorted([run.id, other.id])
        assert await store.have_written({}) == []

    async def test_lines_are_counted_by_run(self, store: Store, clock: ManualClock) -> None:
        run, other = a_run(clock), a_run(clock)
        await submit(store, run, other)
        await take(store)
        for each, count in ((other, 7), (run, 3), (other, 2), (run, 1)):
            await store.record([LogLine(each.id, 1, clock.now(), "stdout", "text") for _ in range(count)], [])
        assert await store.count_logs(run.id, 100) == 4
        assert await store.count_logs(other.id, 100) == 9
        assert await store.count_logs(other.id, 5) == 5
        assert await store.count_logs("no such run", 5) == 0

    async def test_one_bad_line_does_not_spoil_the_rest(self, store: Store, clock: ManualClock) -> None:
        run, _ = await claimed(store, clock)
        texts = ["before", "bad \ud800 and \x00 text", "", "after"]
        await store.record([LogLine(run.id, 1, clock.now(), "stdout", text) for text in texts], [])
        logged = [line.text for _, line in await store.list_logs(run.id)]
        assert (len(logged), logged[0], logged[2], logged[3]) == (4, "before", "", "after")

    async def test_only_the_holder_reports_progress(self, store: Store, clock: ManualClock) -> None:
        run, claim = await claimed(store, clock)
        await store.record([], [Progress(run.id, claim.token, 0.25, "a quarter")])
        stored = await seen(store, run)
        assert (stored.progress, stored.progress_note) == (0.25, "a quarter")
        await store.record([], [Progress(run.id, claim.token - 1, 0.75, "stale")])
        assert (await seen(store, run)).progress == 0.25
        await store.report([success(claim)])
        assert (await seen(store, run)).progress_note == "a quarter"
