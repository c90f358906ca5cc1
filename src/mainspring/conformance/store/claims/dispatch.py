"""What is due, for a broker; and claims of what a broker delivered."""

from __future__ import annotations

import asyncio

from mainspring.broker import Notice
from mainspring.conformance.store.samples import TTL, a_run, a_worker, gated, submit, success, take
from mainspring.core.instants import SECOND
from mainspring.store import Store
from mainspring.testing.clock import ManualClock


class DispatchSuite:
    """A broker carries names of runs: the store decides whether a worker gets them, and which one."""

    async def test_what_is_due_is_returned_with_its_token_and_place(self, store: Store, clock: ManualClock) -> None:
        now = clock.now()
        younger, older = (a_run(clock, due_at=now - n, priority=3, queue="mail", region="eu") for n in (1, 2))
        await submit(store, younger, older)
        due, next_at = await store.due_runs(10)
        place = ("default", "mail", "eu", 3)
        assert due == [Notice(older.id, 0, *place, now - 2), Notice(younger.id, 0, *place, now - 1)]
        assert next_at is None

    async def test_the_order_key_of_a_run_is_its_key_else_its_job(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock, key=key, job_id=job) for key, job in (("k", "j"), (None, "j"), ("k", None), (None, None))]
        await submit(store, *runs)
        due, _ = await store.due_runs(10)
        keys = {notice.run_id: notice.order_key for notice in due}
        assert [keys[run.id] for run in runs] == ["k", "j", "k", ""]

    async def test_what_will_be_due_is_returned_when_it_is(self, store: Store, clock: ManualClock) -> None:
        later = clock.now() + 5 * SECOND
        first, second = a_run(clock, due_at=later), a_run(clock, due_at=later + SECOND)
        await submit(store, first, second)
        assert await store.due_runs(10) == ([], later)
        clock.advance(5 * SECOND)
        due, next_at = await store.due_runs(10)
        assert [notice.run_id for notice in due] == [first.id]
        assert next_at == later + SECOND

    async def test_of_each_line_those_that_are_due_longest_are_returned(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock, due_at=clock.now() - n, priority=n % 2 + 1) for n in range(8)]
        await submit(store, *runs)
        due, _ = await store.due_runs(2)
        assert {notice.run_id for notice in due} == {run.id for run in runs[4:]}

    async def test_what_is_claimed_blocked_or_ended_is_not_due(self, store: Store, clock: ManualClock) -> None:
        first = a_run(clock)
        await submit(store, first, a_run(clock, after=(first.id,)))
        (claim,) = await take(store)
        assert await store.due_runs(10) == ([], None)
        await store.report([success(claim)])
        assert len((await store.due_runs(10))[0]) == 1

    async def test_what_was_delivered_is_claimed_as_by_a_claim(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(4)]
        await submit(store, *runs)
        claims = await store.claim_these(a_worker(), [(runs[2].id, 0), (runs[0].id, 0)], TTL)
        assert [(claim.run_id, claim.token) for claim in claims] == [(runs[2].id, 1), (runs[0].id, 1)]
        assert all(claim.claimed_until == clock.now() + TTL for claim in claims)
        assert (await store.get_run("default", runs[0].id)).state == "running"
        assert await store.report([success(claim) for claim in claims]) == ["accepted", "accepted"]
        assert {claim.run_id for claim in await take(store)} == {runs[1].id, runs[3].id}

    async def test_a_delivery_that_is_late_doubled_or_forged_finds_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = a_run(clock)
        await submit(store, run)
        assert await store.claim_these(a_worker(), [(run.id, 7), ("no-such-run", 0)], TTL) == []
        assert len(await store.claim_these(a_worker(), [(run.id, 0)], TTL)) == 1
        assert await store.claim_these(a_worker("other"), [(run.id, 0)], TTL) == []
        await store.hand_back([(run.id, 1)])
        assert await store.claim_these(a_worker("other"), [(run.id, 0)], TTL) == []
        assert len(await store.claim_these(a_worker("other"), [(run.id, 1)], TTL)) == 1

    async def test_a_delivery_before_its_time_finds_nothing(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, due_at=clock.now() + SECOND)
        await submit(store, run)
        assert await store.claim_these(a_worker(), [(run.id, 0)], TTL) == []
        clock.advance(SECOND)
        assert len(await store.claim_these(a_worker(), [(run.id, 0)], TTL)) == 1

    async def test_a_delivery_to_a_worker_that_may_not_have_it_finds_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = a_run(clock)
        await submit(store, run)
        wrong = [
            a_worker(queues=("mail",)),
            a_worker(regions=("eu",)),
            a_worker(tasks=("other",)),
            a_worker(namespace="other"),
        ]
        for worker in wrong:
            assert await store.claim_these(worker, [(run.id, 0)], TTL) == []
        assert len(await store.claim_these(a_worker(), [(run.id, 0)], TTL)) == 1

    async def test_of_many_callers_that_get_the_same_delivery_one_claims_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        runs = [a_run(clock) for _ in range(20)]
        await submit(store, *runs)
        named = [(run.id, 0) for run in runs]
        answers = await asyncio.gather(*(store.claim_these(a_worker(f"w{n}"), named, TTL) for n in range(8)))
        claimed = [claim.run_id for claims in answers for claim in claims]
        assert len(claimed) == len(set(claimed))
        rest = await store.claim_these(a_worker("late"), named, TTL)
        assert len(claimed) + len(rest) == len(runs)

    async def test_gates_hold_for_deliveries_too(self, store: Store, clock: ManualClock) -> None:
        runs = [gated(clock, "narrow") for _ in range(3)]
        await submit(store, *runs)
        (claim,) = await store.claim_these(a_worker(), [(run.id, 0) for run in runs], TTL)
        assert await store.claim_these(a_worker(), [(run.id, 0) for run in runs], TTL) == []
        await store.report([success(claim)])
        assert len((await store.due_runs(10))[0]) == 1

    async def test_a_delivery_past_its_starting_deadline_is_not_claimed(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, expires_at=clock.now() + SECOND)
        await submit(store, run)
        clock.advance(2 * SECOND)
        assert await store.claim_these(a_worker(), [(run.id, 0)], TTL) == []
