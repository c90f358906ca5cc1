"""What is due, for a broker; and claims of what a broker delivered."""

from __future__ import annotations

import asyncio

import msgspec

from mainspring.conformance.store_samples import new_run, worker
from mainspring.core.instants import SECOND
from mainspring.core.model import Gate, Report
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

TTL = 30 * SECOND


class DispatchSuite:
    """A broker carries names of runs: whether they are given, and to whom, the store decides."""

    async def test_what_is_due_is_told_with_its_token_and_place(self, store: Store, clock: ManualClock) -> None:
        now = store.now()
        runs = [new_run(n, due_at=now - n, priority=3, queue="mail", region="eu") for n in (1, 2)]
        await store.submit(runs)
        due, next_at = await store.due_runs(10)
        assert [(notice.run_id, notice.token) for notice in due] == [(runs[1].id, 0), (runs[0].id, 0)]
        assert {(each.namespace, each.queue, each.region, each.priority) for each in due} == {("default", "mail", "eu", 3)}
        assert [notice.due_at for notice in due] == [now - 2, now - 1]
        assert next_at is None

    async def test_what_will_be_due_is_told_when_it_is(self, store: Store, clock: ManualClock) -> None:
        later = store.now() + 5 * SECOND
        await store.submit([new_run(1, due_at=later), new_run(2, due_at=later + SECOND)])
        assert await store.due_runs(10) == ([], later)
        clock.advance(5 * SECOND)
        due, next_at = await store.due_runs(10)
        assert [notice.run_id for notice in due] == [new_run(1).id]
        assert next_at == later + SECOND

    async def test_of_each_line_the_longest_due_are_told(self, store: Store) -> None:
        now = store.now()
        runs = [new_run(n, due_at=now - n, priority=n % 2 + 1) for n in range(1, 9)]
        await store.submit(runs)
        due, _ = await store.due_runs(2)
        assert {notice.run_id for notice in due} == {new_run(n).id for n in (5, 6, 7, 8)}

    async def test_what_is_claimed_blocked_or_ended_is_not_due(self, store: Store) -> None:
        now = store.now()
        await store.submit([new_run(1, due_at=now), new_run(2, due_at=now, after=(new_run(1).id,))])
        assert len(await store.claim(worker("w"), 10, TTL, "strict")) == 1
        assert await store.due_runs(10) == ([], None)

    async def test_what_was_delivered_is_claimed_as_by_a_claim(self, store: Store) -> None:
        now = store.now()
        await store.submit([new_run(n, due_at=now) for n in range(4)])
        named = [(new_run(n).id, 0) for n in (2, 0)]
        claims = await store.claim_these(worker("w"), named, TTL)
        assert [claim.run_id for claim in claims] == [run_id for run_id, _ in named]
        assert [claim.token for claim in claims] == [1, 1]
        assert (await store.get_run("default", claims[0].run_id)).state == "running"
        verdicts = await store.report([_success(claim.run_id, claim.token, now) for claim in claims])
        assert verdicts == ["accepted", "accepted"]
        rest = await store.claim(worker("v"), 10, TTL, "strict")
        assert {claim.run_id for claim in rest} == {new_run(1).id, new_run(3).id}

    async def test_a_delivery_that_is_late_doubled_or_forged_finds_nothing(self, store: Store) -> None:
        await store.submit([new_run(1, due_at=store.now())])
        run_id = new_run(1).id
        forged = [(run_id, 7), ("no-such-run", 0)]
        assert await store.claim_these(worker("w"), forged, TTL) == []
        assert len(await store.claim_these(worker("w"), [(run_id, 0)], TTL)) == 1
        assert await store.claim_these(worker("v"), [(run_id, 0)], TTL) == []
        await store.hand_back([(run_id, 1)])
        assert await store.claim_these(worker("v"), [(run_id, 0)], TTL) == []
        assert len(await store.claim_these(worker("v"), [(run_id, 1)], TTL)) == 1

    async def test_a_delivery_before_its_time_or_to_the_wrong_worker_finds_nothing(self, store: Store) -> None:
        now = store.now()
        await store.submit([new_run(1, due_at=now + SECOND), new_run(2, due_at=now)])
        assert await store.claim_these(worker("w"), [(new_run(1).id, 0)], TTL) == []
        named = [(new_run(2).id, 0)]
        wrong = [
            {"queues": ("mail",)},
            {"regions": ("eu",)},
            {"tasks": ("other",)},
            {"namespace": "other"},
        ]
        for words in wrong:
            stranger = msgspec.structs.replace(worker("w"), **words)
            assert await store.claim_these(stranger, named, TTL) == []
        assert len(await store.claim_these(worker("w"), named, TTL)) == 1

    async def test_of_many_who_get_the_same_delivery_one_claims_it(self, store: Store) -> None:
        await store.submit([new_run(n, due_at=store.now()) for n in range(20)])
        named = [(new_run(n).id, 0) for n in range(20)]
        answers = await asyncio.gather(*(store.claim_these(worker(f"w{n}"), named, TTL) for n in range(8)))
        claimed = [claim.run_id for claims in answers for claim in claims]
        assert len(claimed) == len(set(claimed))
        rest = await store.claim_these(worker("late"), named, TTL)
        assert len(claimed) + len(rest) == 20

    async def test_gates_hold_for_deliveries_too(self, store: Store) -> None:
        gate = Gate("narrow", 1)
        await store.submit([new_run(n, due_at=store.now(), gates=(gate,)) for n in range(3)])
        claims = await store.claim_these(worker("w"), [(new_run(n).id, 0) for n in range(3)], TTL)
        assert len(claims) == 1
        await store.report([_success(claims[0].run_id, claims[0].token, store.now())])
        due, _ = await store.due_runs(10)
        assert len(due) == 1


def _success(run_id: str, token: int, now: int) -> Report:
    return Report(run_id=run_id, token=token, state="succeeded", outcome="succeeded", started_at=now, finished_at=now)
