"""Gates: how many runs may be in at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

import msgspec

from mainspring.conformance.store.samples import (
    TTL,
    a_run,
    a_worker,
    another_try,
    failure,
    finish_all,
    gated,
    in_line,
    new_id,
    options,
    seen,
    states,
    submit,
    success,
    take,
    take_one,
    unfinished,
)
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND
from mainspring.core.model import Claim, Gate, NewRun, Report
from mainspring.core.tasks.limits import task_gate
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

CAPACITIES = {"gate-1": 1, "gate-2": 2, "gate-5": 5}


class GateSuite:
    """No more runs are in a gate than it has places, whatever happens; and a free place does not stay free."""

    async def test_a_gate_lets_in_as_many_as_it_has_places(self, store: Store, clock: ManualClock) -> None:
        runs = [gated(clock, "task:encode", capacity=2) for _ in range(5)]
        await store.submit(runs)
        claims = await take(store)
        assert [claim.run_id for claim in claims] == [runs[0].id, runs[1].id]
        assert await take(store, a_worker("worker-2")) == []
        assert await store.gate_holders("default", "task:encode") == (2, 2)

    async def test_a_run_before_a_full_gate_is_blocked_and_names_it(self, store: Store, clock: ManualClock) -> None:
        runs = [gated(clock, "task:encode") for _ in range(2)]
        await store.submit(runs)
        await take(store)
        stored = await seen(store, runs[1])
        assert (stored.state, stored.blocked_on, stored.token) == ("blocked", "task:encode", 0)

    async def test_a_freed_place_goes_to_the_best_waiting_run(self, store: Store, clock: ManualClock) -> None:
        runs = [gated(clock, "g", priority=priority) for priority in (1, 9, 2, 5, 2)]
        await store.submit(runs)
        served = []
        for _ in runs:
            claim = await take_one(store)
            assert await take(store) == []
            served.append(claim.run_id)
            await store.report([success(claim)])
        assert served == [runs[position].id for position in (0, 2, 4, 3, 1)]

    async def test_a_place_is_freed_however_a_run_leaves(self, store: Store, clock: ManualClock) -> None:
        async def lose(_: Claim) -> None:
            clock.advance(TTL + 1)
            await store.recover(HOUR, 100)

        async def cancel(claim: Claim) -> None:
            await store.request_cancel("default", claim.run_id, "not needed")
            await store.report([failure(claim)])

        leaving: dict[str, Callable[[Claim], Awaitable[object]]] = {
            "success": lambda claim: store.report([success(claim)]),
            "failure": lambda claim: store.report([failure(claim)]),
            "retry": lambda claim: store.report([another_try(claim, HOUR)]),
            "hand-back": lambda claim: store.hand_back([(claim.run_id, claim.token)]),
            "loss": lose,
            "cancel": cancel,
        }
        for how, leave in leaving.items():
            gate = f"gate:{how}"
            first, second = gated(clock, gate, options=options(max_losses=0)), gated(clock, gate, priority=1)
            await submit(store, first)
            claim = await take_one(store)
            await submit(store, second)
            assert await take(store) == [], how
            await leave(claim)
            assert await store.gate_holders("default", gate) == (0, 1), how
            after = await take_one(store)
            assert after.run_id == second.id, how
            await store.report([success(after)])
            await finish_all(store, clock)

    async def test_a_run_needs_a_place_in_all_of_its_gates(self, store: Store, clock: ManualClock) -> None:
        both = gated(clock, "a", "b")
        only_a, only_b = gated(clock, "a"), gated(clock, "b")
        await submit(store, only_a, only_b)
        claims = await take(store)
        await submit(store, both)
        assert await take(store) == []
        await store.report([success(claims[0])])
        assert await take(store) == []
        assert await store.gate_holders("default", "a") == (0, 1)
        await store.report([success(claims[1])])
        assert [claim.run_id for claim in await take(store)] == [both.id]
        assert await store.gate_holders("default", "a") == (1, 1)
        assert await store.gate_holders("default", "b") == (1, 1)

    async def test_a_gate_of_another_namespace_is_another_gate(self, store: Store, clock: ManualClock) -> None:
        ours, theirs = gated(clock, "g"), gated(clock, "g", namespace="tenant-a")
        await submit(store, ours, theirs)
        await take(store, a_worker("worker-1"))
        await take(store, a_worker("worker-2", namespace="tenant-a"))
        assert await states(store, ours, theirs) == ["running", "running"]

    async def test_a_full_gate_does_not_hold_up_runs_that_do_not_need_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        crowd = [gated(clock, "g", priority=1) for _ in range(150)]
        free = a_run(clock, priority=10)
        await submit(store, *crowd, free)
        first = await take_one(store)
        assert first.run_id == crowd[0].id
        assert (await take_one(store)).run_id == free.id

    async def test_a_run_that_waited_for_another_then_waits_at_its_gate(self, store: Store, clock: ManualClock) -> None:
        upstream, head = a_run(clock), in_line(clock, "key:a")
        waiting = [gated(clock, "g", after=(upstream.id,)), gated(clock, "g", lines=head.lines)]
        await submit(store, upstream, head, *waiting)
        await store.report([success(claim) for claim in await take(store)])
        first = await take_one(store)
        assert await take(store) == []
        assert await store.gate_holders("default", "g") == (1, 1)
        await store.report([success(first)])
        second = await take_one(store)
        assert {first.run_id, second.run_id} == {run.id for run in waiting}

    async def test_a_gate_is_there_as_long_as_a_run_may_need_it(self, store: Store, clock: ManualClock) -> None:
        job_id, fire_at = new_id(clock), clock.now() + 30 * DAY
        gates = ("task:encode", f"firing:{job_id}:{fire_at}")
        run = gated(clock, *gates, job_id=job_id, job="films", fire_at=fire_at, due_at=fire_at)
        await submit(store, run)
        clock.advance(30 * DAY)
        await store.clean(DAY, DAY, DAY, 100)
        assert (await take_one(store)).run_id == run.id
        for gate in gates:
            assert await store.gate_holders("default", gate) == (1, 1)

    async def test_a_gate_of_one_value_goes_with_the_last_run_that_needs_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        names = [task_gate("encode", 1, "user", f'{{"user": {number}}}').name for number in range(3)]
        runs = [gated(clock, name) for name in names]
        later = gated(clock, names[2], due_at=clock.now() + DAY)
        await submit(store, *runs, later)
        first, second, third = await take(store)
        await store.report([success(first), success(third)])
        await store.clean(DAY, DAY, DAY, 100)
        gates = await store.list_gates("default", 10)
        assert [(gate.name, gate.used) for gate in gates] == [(names[1], 1), (names[2], 0)]
        await store.report([success(second)])
        clock.advance(DAY)
        assert (await take_one(store)).run_id == later.id
        await submit(store, again := gated(clock, names[0]))
        assert (await take_one(store)).run_id == again.id

    async def test_a_claim_handed_back_twice_frees_one_place(self, store: Store, clock: ManualClock) -> None:
        await store.submit([gated(clock, "g", capacity=2) for _ in range(3)])
        claim, _ = await take(store)
        back = (claim.run_id, claim.token)
        assert await store.hand_back([back, back]) == 1
        await store.hand_back([back])
        assert await store.gate_holders("default", "g") == (1, 2)

    async def test_a_blocked_run_can_be_cancelled_and_is_not_missed(self, store: Store, clock: ManualClock) -> None:
        runs = [gated(clock, "g") for _ in range(3)]
        await store.submit(runs)
        claim = await take_one(store)
        await take(store)
        assert await store.request_cancel("default", runs[1].id, "not needed") == "cancelled"
        await store.report([success(claim)])
        assert (await take_one(store)).run_id == runs[2].id

    async def test_a_freed_run_that_is_cancelled_does_not_take_the_place_along(
        self, store: Store, clock: ManualClock
    ) -> None:
        runs = [gated(clock, "g") for _ in range(3)]
        await store.submit(runs)
        claim = await take_one(store)
        await take(store)
        await store.report([success(claim)])
        await store.request_cancel("default", runs[1].id, "not needed")
        assert (await take_one(store)).run_id == runs[2].id

    async def test_a_place_offered_to_a_run_that_no_worker_serves_goes_to_another(
        self, store: Store, clock: ManualClock
    ) -> None:
        head = gated(clock, "g")
        await submit(store, head)
        claim = await take_one(store)
        unserved, served = gated(clock, "g", queue="nobody", priority=1), gated(clock, "g", priority=9)
        await submit(store, unserved, served)
        await take(store, a_worker("worker-2", queues=("nobody", "default")))
        await store.report([success(claim)])
        await store.recover(HOUR, 100)
        assert (await take_one(store)).run_id == served.id

    async def test_whatever_happens_a_gate_is_never_over_full_and_no_run_waits_for_ever(
        self, store: Store, clock: ManualClock
    ) -> None:
        for seed in range(3):
            walk = _Walk(store, clock, Random(seed))
            for _ in range(120):
                await walk.step()
                await walk.check()
            clock.advance(TTL + 1)
            await finish_all(store, clock)
            assert await unfinished(store) == []
            for gate in CAPACITIES:
                used, _ = await store.gate_holders("default", gate)
                assert used == 0


class _Walk:
    """Everything that may happen to gated runs, in any order."""

    def __init__(self, store: Store, clock: ManualClock, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random
        self._gates: dict[str, tuple[Gate, ...]] = {}
        self._claims: list[Claim] = []

    async def step(self) -> None:
        moves = [self._submit, self._claim, self._claim, self._report, self._hand_back, self._cancel, self._lose]
        await self._random.choice(moves)()

    async def check(self) -> None:
        """The runs that run are the gates' holders, and no more than their capacity."""
        running = [run.id for run in await unfinished(self._store) if run.state == "running"]
        inside = Counter(gate.name for run_id in running for gate in self._gates[run_id])
        for name, capacity in CAPACITIES.items():
            assert inside[name] <= capacity
            if any(gate.name == name for gates in self._gates.values() for gate in gates):
                assert await self._store.gate_holders("default", name) == (inside[name], capacity)

    async def _submit(self) -> None:
        batch: list[NewRun] = []
        for _ in range(self._random.randint(1, 4)):
            names = self._random.sample(sorted(CAPACITIES), self._random.randint(0, 2))
            run = a_run(self._clock, gates=tuple(Gate(name, CAPACITIES[name]) for name in names))
            later = self._clock.now() + self._random.choice([0, 0, 5 * SECOND])
            run = msgspec.structs.replace(
                run, priority=self._random.randint(1, 10), due_at=later, options=options(max_losses=1)
            )
            self._gates[run.id] = run.gates
            batch.append(run)
        await self._store.submit(batch)

    async def _claim(self) -> None:
        worker = a_worker(f"worker-{self._random.randint(1, 3)}")
        self._claims += await take(self._store, worker, self._random.randint(1, 6))

    async def _report(self) -> None:
        self._random.shuffle(self._claims)
        later = partial(another_try, delay=MINUTE)
        words: list[Callable[[Claim], Report]] = [success, success, failure, another_try, later]
        reports = [self._random.choice(words)(claim) for claim in self._claims[:3]]
        self._claims = self._claims[2:]  # One of them is reported again later: its reply was lost.
        await self._store.report(reports)

    async def _hand_back(self) -> None:
        await self._store.hand_back([(claim.run_id, claim.token) for claim in self._claims[:1]])

    async def _cancel(self) -> None:
        known = await unfinished(self._store)
        if known:
            await self._store.request_cancel("default", self._random.choice(known).id, "not needed")

    async def _lose(self) -> None:
        self._clock.advance(self._random.choice([SECOND, TTL + 1]))
        await self._store.recover(HOUR, 100)
