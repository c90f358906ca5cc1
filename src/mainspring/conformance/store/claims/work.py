"""Claims: which worker gets which run, and when."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from mainspring.conformance.store.claims.gates import GateSuite
from mainspring.conformance.store.claims.lines import LineSuite
from mainspring.conformance.store.ends.reports import ReportSuite
from mainspring.conformance.store.samples import (
    TTL,
    a_run,
    a_worker,
    another_try,
    gated,
    in_line,
    options,
    register,
    seen,
    states,
    submit,
    success,
    take,
    take_one,
)
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import Claim
from mainspring.core.runs.priority import rank
from mainspring.store import Store
from mainspring.testing.clock import ManualClock


def ids(claims: list[Claim]) -> list[str]:
    """Whose claims these are, in order."""
    return [claim.run_id for claim in claims]


class WorkSuite(ReportSuite, GateSuite, LineSuite):
    """A due run goes to one worker at a time, the best first."""

    async def test_a_claim_carries_what_the_worker_needs(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, args='{"film":"é"}', priority=2, options=options(timeout=HOUR), job="encoding", idx=3)
        await submit(store, run)
        claim = await take_one(store, a_worker("worker-7"))
        carried = (claim.run_id, claim.task, claim.args, claim.options, claim.priority, claim.due_at)
        assert carried == (run.id, run.task, run.args, run.options, 2, run.due_at)
        assert (claim.job, claim.idx, claim.namespace) == ("encoding", 3, "default")
        assert (claim.attempt, claim.losses, claim.claimed_until) == (0, 0, clock.now() + TTL)
        stored = await seen(store, run)
        assert (stored.state, stored.worker, stored.token) == ("running", "worker-7", claim.token)
        assert stored.claimed_until == claim.claimed_until

    async def test_only_runs_of_the_priorities_that_a_worker_takes_are_claimed(
        self, store: Store, clock: ManualClock
    ) -> None:
        runs = {priority: a_run(clock, priority=priority) for priority in (1, 2, 5, 10)}
        await submit(store, runs[5])
        assert await take(store, a_worker(priorities=(1, 2))) == []
        await submit(store, *(runs[priority] for priority in (10, 2, 1)))
        for ordering in ("strict", "ageing"):
            assert await store.claim(a_worker(priorities=(3, 4)), 10, TTL, ordering) == []
        assert ids(await store.claim(a_worker(priorities=(5, 10)), 10, TTL, "ageing")) == [runs[5].id, runs[10].id]
        assert ids(await take(store, a_worker(priorities=(1, 2)))) == [runs[1].id, runs[2].id]

    async def test_the_next_that_will_be_due_is_of_the_priorities_that_a_worker_takes(
        self, store: Store, clock: ManualClock
    ) -> None:
        now = clock.now()
        await submit(store, a_run(clock, priority=1, due_at=now + HOUR), a_run(clock, priority=4, due_at=now + MINUTE))
        assert await store.next_due(a_worker(priorities=(1, 2))) == now + HOUR
        assert await store.next_due(a_worker(priorities=(4,))) == now + MINUTE
        assert await store.next_due(a_worker(priorities=(9, 10))) is None

    async def test_a_claimed_run_is_given_to_no_other_worker(self, store: Store, clock: ManualClock) -> None:
        await submit(store, a_run(clock))
        await take_one(store, a_worker("worker-1"))
        assert await take(store, a_worker("worker-2")) == []
        assert await take(store, a_worker("worker-1")) == []

    async def test_workers_that_claim_at_once_share_the_runs(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock, priority=1 + n % 10) for n in range(200)]
        await store.submit(runs)
        workers = [a_worker(f"worker-{n}") for n in range(8)]
        answers = await asyncio.gather(*(take(store, worker, 5) for worker in workers for _ in range(6)))
        taken = Counter(claim.run_id for claims in answers for claim in claims)
        assert set(taken.values()) == {1}
        assert sorted(taken) == sorted(run.id for run in runs)

    async def test_runs_that_are_due_soon_are_claimed_ahead_if_asked_for(
        self, store: Store, clock: ManualClock
    ) -> None:
        now = clock.now()
        soon, later = a_run(clock, due_at=now + SECOND), a_run(clock, due_at=now + HOUR)
        at_once = a_run(clock, priority=9)
        await submit(store, later, soon, at_once)
        claims = await store.claim(a_worker(), 10, TTL, "strict", ahead=MINUTE)
        assert {claim.run_id: claim.due_at for claim in claims} == {at_once.id: now, soon.id: now + SECOND}
        assert (await seen(store, soon)).started_at == now + SECOND
        assert await take(store, a_worker("worker-2")) == []

    async def test_what_needs_care_is_not_claimed_ahead(self, store: Store, clock: ManualClock) -> None:
        soon = clock.now() + SECOND
        careful = [gated(clock, "press", due_at=soon), a_run(clock, due_at=soon, expires_at=soon + HOUR)]
        await submit(store, *careful)
        assert await store.claim(a_worker(), 10, TTL, "strict", ahead=MINUTE) == []
        clock.set(soon)
        claims = await store.claim(a_worker(), 10, TTL, "strict", ahead=MINUTE)
        assert sorted(ids(claims)) == sorted(run.id for run in careful)

    async def test_what_was_claimed_ahead_and_given_back_is_due_when_it_was(
        self, store: Store, clock: ManualClock
    ) -> None:
        run = a_run(clock, due_at=clock.now() + MINUTE)
        await submit(store, run)
        (claim,) = await store.claim(a_worker(), 10, TTL, "strict", ahead=HOUR)
        await store.hand_back([(claim.run_id, claim.token)])
        assert await take(store) == []
        assert (await seen(store, run)).due_at == run.due_at

    async def test_claiming_beside_reporting_and_submitting_doubles_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        runs = [a_run(clock) for _ in range(150)]
        started: Counter[str] = Counter()

        async def work(name: str) -> None:
            worker = a_worker(name)
            while sum(started.values()) < len(runs):
                claims = await take(store, worker, 7)
                started.update(ids(claims))
                assert await store.report([success(claim) for claim in claims]) == ["accepted"] * len(claims)
                await asyncio.sleep(0)

        submissions = [store.submit(runs[n : n + 10]) for n in range(0, len(runs), 10)]
        everything = asyncio.gather(*submissions, *(work(f"worker-{n}") for n in range(4)))
        await asyncio.wait_for(everything, 30)
        assert started == Counter(run.id for run in runs)

    async def test_a_claim_gives_no_more_than_was_asked_for(self, store: Store, clock: ManualClock) -> None:
        await store.submit([a_run(clock) for _ in range(10)])
        assert [len(await take(store, limit=4)) for _ in range(4)] == [4, 4, 2, 0]

    async def test_the_order_is_priority_then_due_time_then_commit(self, store: Store, clock: ManualClock) -> None:
        late, early = clock.now() - SECOND, clock.now() - MINUTE
        wanted = [
            a_run(clock, priority=1, due_at=late),
            a_run(clock, priority=2, due_at=early),
            a_run(clock, priority=2, due_at=late),
            a_run(clock, priority=2, due_at=late),
            a_run(clock, priority=10, due_at=early),
        ]
        for position in (4, 2, 1, 0, 3):
            await submit(store, wanted[position])
        assert ids(await take(store)) == [run.id for run in wanted]

    async def test_equal_runs_are_served_in_commit_order_whatever_their_ids(
        self, store: Store, clock: ManualClock
    ) -> None:
        runs = [a_run(clock) for _ in range(5)]
        for run in reversed(runs):
            await submit(store, run)
        assert ids(await take(store, limit=2)) == [runs[4].id, runs[3].id]
        assert ids(await take(store)) == [run.id for run in reversed(runs[:3])]

    async def test_the_order_holds_across_queues_and_claims(self, store: Store, clock: ManualClock) -> None:
        worker = a_worker(queues=("films", "sounds"), regions=("eu", "us"))
        runs = [
            a_run(clock, priority=1 + n * 7 % 10, queue=("films", "sounds")[n % 2], region=("eu", "us")[n // 2 % 2])
            for n in range(40)
        ]
        await store.submit(runs)
        answers = [await take(store, worker, 5) for _ in range(8)]
        assert [len(claims) for claims in answers] == [5] * 8
        served = [claim for claims in answers for claim in claims]
        assert ids(served) == [run.id for run in sorted(runs, key=lambda run: run.priority)]

    async def test_ageing_lets_a_low_priority_that_waited_long_go_first(self, store: Store, clock: ManualClock) -> None:
        now = clock.now()
        waits = [(10, 9_500), (9, 7_000), (1, 0), (5, 4_100), (5, 3_900), (2, 1_000), (1, 3_000)]
        runs = [a_run(clock, priority=priority, due_at=now - wait * SECOND) for priority, wait in waits]
        await store.submit(runs)
        wanted = sorted(runs, key=lambda run: rank(run.priority, run.due_at, "ageing"))
        served = [claim for _ in range(4) for claim in await take(store, limit=2, ordering="ageing")]
        assert ids(served) == [run.id for run in wanted]

    async def test_strict_order_never_lets_a_lower_priority_go_first(self, store: Store, clock: ManualClock) -> None:
        old = a_run(clock, priority=2, due_at=clock.now() - 300 * 24 * HOUR)
        new = a_run(clock, priority=1)
        await submit(store, old, new)
        assert ids(await take(store)) == [new.id, old.id]

    async def test_a_run_is_not_claimed_before_it_is_due(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, due_at=clock.now() + MINUTE)
        await submit(store, run)
        clock.advance(MINUTE - 1)
        assert await take(store) == []
        clock.advance(1)
        assert ids(await take(store)) == [run.id]

    async def test_a_run_past_its_starting_deadline_is_not_claimed(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, expires_at=clock.now() + MINUTE)
        await submit(store, run)
        clock.advance(MINUTE + 1)
        assert await take(store) == []

    async def test_a_worker_gets_only_what_it_serves(self, store: Store, clock: ManualClock) -> None:
        ours = a_run(clock, queue="films", region="eu", task="decode")
        others = [
            a_run(clock, queue="sounds", region="eu", task="decode"),
            a_run(clock, queue="films", region="us", task="decode"),
            a_run(clock, queue="films", region="eu", task="encode"),
        ]
        foreign = a_run(clock, namespace="tenant-b", queue="films", region="eu", task="decode")
        await store.submit([foreign, *others, ours])
        worker = a_worker(queues=("films", "images"), regions=("eu",), tasks=("decode", "mix"))
        assert ids(await take(store, worker)) == [ours.id]
        assert await states(store, *others) == ["pending"] * 3
        assert (await store.get_run("tenant-b", foreign.id)).state == "pending"

    async def test_runs_for_others_do_not_hide_ours(self, store: Store, clock: ManualClock) -> None:
        await store.submit([a_run(clock, task="decode", priority=1) for _ in range(300)])
        ours = a_run(clock, priority=10)
        await submit(store, ours)
        assert ids(await take(store, limit=1)) == [ours.id]

    async def test_each_claim_raises_the_token(self, store: Store, clock: ManualClock) -> None:
        await submit(store, a_run(clock))
        first = await take_one(store)
        await store.hand_back([(first.run_id, first.token)])
        second = await take_one(store)
        await store.report([another_try(second)])
        third = await take_one(store)
        clock.advance(TTL + 1)
        await store.recover(HOUR, 100)
        fourth = await take_one(store)
        assert 0 < first.token < second.token < third.token < fourth.token

    async def test_runs_that_were_lost_with_their_worker_are_given_together(
        self, store: Store, clock: ManualClock
    ) -> None:
        runs = [a_run(clock) for _ in range(5)]
        await store.submit(runs)
        await take(store, a_worker("worker-1"))
        clock.advance(TTL + 1)
        await store.recover(HOUR, 100)
        claims = await take(store, a_worker("worker-2"))
        assert sorted(ids(claims)) == sorted(run.id for run in runs)
        assert {claim.losses for claim in claims} == {1}

    async def test_a_run_that_was_lost_twice_is_given_alone(self, store: Store, clock: ManualClock) -> None:
        await self._is_given_alone(store, clock, max_losses=3, losses=2)

    async def test_a_run_that_must_not_be_lost_again_is_given_alone(self, store: Store, clock: ManualClock) -> None:
        await self._is_given_alone(store, clock, max_losses=1, losses=1)

    async def _is_given_alone(self, store: Store, clock: ManualClock, *, max_losses: int, losses: int) -> None:
        poison = a_run(clock, priority=5, options=options(max_losses=max_losses))
        await submit(store, poison)
        for _ in range(losses):
            await take_one(store, a_worker("worker-1"))
            clock.advance(TTL + 1)
            await store.recover(HOUR, 100)
        neighbours = [a_run(clock, priority=priority) for priority in (1, 5, 5, 10)]
        await store.submit(neighbours)
        answers = [await take(store, a_worker("worker-2")) for _ in range(6)]
        assert [claim.losses for claims in answers for claim in claims if claim.run_id == poison.id] == [losses]
        assert all(len(claims) == 1 for claims in answers if poison.id in ids(claims))
        assert sorted(claim.run_id for claims in answers for claim in claims) == sorted(
            run.id for run in (poison, *neighbours)
        )

    async def test_a_look_says_what_next_due_says(self, store: Store, clock: ManualClock) -> None:
        worker, now = a_worker(), clock.now()
        assert (await store.look(worker, idle=True)).due_at is None
        await store.submit([a_run(clock, due_at=now + MINUTE), a_run(clock, task="unknown", due_at=now)])
        assert (await store.look(worker, idle=True)).due_at == now + MINUTE
        assert await store.claim(worker, 10, MINUTE, "strict") == []
        assert (await store.look(worker, fresh=False)).due_at == now + MINUTE
        clock.advance(2 * MINUTE)
        assert (await store.look(worker)).due_at == now + MINUTE
        assert len(await store.claim(worker, 10, MINUTE, "strict")) == 1
        assert (await store.look(worker, fresh=False)).due_at is None

    async def test_a_look_that_counts_as_a_heartbeat_is_one(self, store: Store, clock: ManualClock) -> None:
        worker = a_worker()
        await store.register(worker)
        clock.advance(MINUTE)
        outlook = await store.look(worker, idle=True)
        (row,) = await store.list_workers("default")
        assert not outlook.alive or row.heartbeat_at == clock.now()

    async def test_next_due_is_the_earliest_run_that_this_worker_may_take(
        self, store: Store, clock: ManualClock
    ) -> None:
        now = clock.now()
        assert await store.next_due(a_worker()) is None
        await submit(
            store,
            a_run(clock, due_at=now + 3 * MINUTE, priority=1),
            a_run(clock, due_at=now + 2 * MINUTE, priority=9),
            a_run(clock, due_at=now + MINUTE, task="decode"),
            a_run(clock, due_at=now + MINUTE, queue="films"),
            a_run(clock, due_at=now + MINUTE, region="eu"),
        )
        assert await store.next_due(a_worker()) == now + 2 * MINUTE
        clock.advance(2 * MINUTE)
        await take_one(store)
        assert await store.next_due(a_worker()) == now + 3 * MINUTE

    async def test_what_came_due_since_the_last_claim_is_next(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, due_at=clock.now() + 1)
        await submit(store, run)
        assert await take(store) == []
        clock.advance(2)
        assert await store.next_due(a_worker()) == run.due_at

    async def test_what_cannot_start_yet_is_not_next(self, store: Store, clock: ManualClock) -> None:
        head = a_run(clock, task="decode")
        await submit(store, head, a_run(clock, after=(head.id,)))
        await submit(store, in_line(clock, "key:a", task="decode"), in_line(clock, "key:a"))
        await submit(store, gated(clock, "g"), gated(clock, "g"))
        await take(store)
        assert await store.next_due(a_worker()) is None

    async def test_workers_are_listed_as_they_announced_themselves(self, store: Store, clock: ManualClock) -> None:
        served = {"queues": ("a", "b"), "regions": ("eu",), "tasks": ("encode", "decode"), "concurrency": 7}
        worker = await register(
            store, clock, "worker-é", app="films", host="host-1", pid=4711, started_at=clock.now() - HOUR, **served
        )
        await register(store, clock, "elsewhere", namespace="tenant-a")
        assert await store.list_workers("default") == [worker]
        other = await register(store, clock, "worker-2")
        assert await store.list_workers("default") == sorted([worker, other], key=lambda each: each.id)
        assert await store.list_workers("default", worker.id) == [worker]
        assert await store.list_workers("tenant-a", worker.id) == []

    async def test_a_worker_announces_a_change_by_registering_again(self, store: Store, clock: ManualClock) -> None:
        await register(store, clock, "worker-1")
        await register(store, clock, "worker-2")
        await register(store, clock, "worker-1", state="draining")
        known = {worker.id: worker.state for worker in await store.list_workers("default")}
        assert known == {"worker-1": "draining", "worker-2": "active"}
        await register(store, clock, "worker-1", state="stopped")
        known = {worker.id: worker.state for worker in await store.list_workers("default")}
        assert known.get("worker-1", "stopped") == "stopped"

    async def test_a_worker_hears_with_its_heartbeat_that_it_is_asked_to_drain(
        self, store: Store, clock: ManualClock
    ) -> None:
        await register(store, clock, "worker-1")
        await register(store, clock, "worker-2")
        await submit(store, a_run(clock))
        claim = await take_one(store, a_worker("worker-1"))
        held = [(claim.run_id, claim.token)]
        asked = await store.request_drain("default", "worker-1")
        assert asked is not None
        assert (asked.id, asked.state, asked.drain_requested_at) == ("worker-1", "active", clock.now())
        renewal = await store.renew(a_worker("worker-1"), held, TTL)
        assert (renewal.held, renewal.cancels, renewal.drain) == (frozenset(held), {}, True)
        assert (await store.renew(a_worker("worker-1"), [], TTL)).drain
        assert not (await store.renew(a_worker("worker-2"), [], TTL)).drain
        clock.advance(MINUTE)
        for name in ("worker-1", "worker-2"):
            outlook = await store.look(a_worker(name), idle=True)
            assert outlook.drain is (outlook.alive and name == "worker-1")

    async def test_a_worker_stays_asked_to_drain_until_it_has_stopped(self, store: Store, clock: ManualClock) -> None:
        await register(store, clock, "worker-1")
        since = clock.now()
        await store.request_drain("default", "worker-1")
        clock.advance(SECOND)
        again = await store.request_drain("default", "worker-1")
        assert again is not None
        assert again.drain_requested_at == since
        await register(store, clock, "worker-1", state="draining")
        (row,) = await store.list_workers("default")
        assert (row.state, row.drain_requested_at) == ("draining", since)

    async def test_a_worker_is_listed_with_the_version_that_it_announced(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.register(msgspec.structs.replace(a_worker("worker-1"), version="1.2.3", pools=((1, 4), (5, 2))))
        assert [worker.version for worker in await store.list_workers("default")] == ["1.2.3"]
        assert [worker.pools for worker in await store.list_workers("default")] == [((1, 4), (5, 2))]
        asked = await store.request_drain("default", "worker-1")
        assert asked is not None
        assert asked.version == "1.2.3"

    async def test_only_a_live_worker_of_the_namespace_can_be_asked_to_drain(
        self, store: Store, clock: ManualClock
    ) -> None:
        await register(store, clock, "worker-1")
        assert await store.request_drain("default", "worker-0") is None
        assert await store.request_drain("tenant-a", "worker-1") is None
        clock.advance(HOUR)
        await store.recover(MINUTE, 10)
        assert await store.request_drain("default", "worker-1") is None
        await register(store, clock, "worker-1", state="stopped")
        assert await store.request_drain("default", "worker-1") is None
