"""Paused queues, gates and lines, relations, tallies and error groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from mainspring.conformance.store.samples import (
    TTL,
    a_job,
    a_run,
    a_worker,
    failure,
    finish,
    gated,
    in_line,
    new_id,
    number_all,
    recover_the_rest,
    submit,
    success,
    take,
    trigger,
)
from mainspring.core.answers import SeenFailure
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND
from mainspring.core.model import Claim, Report
from mainspring.core.runs.errors import kind_of_error
from mainspring.core.runs.tallies import Tally, TallyKey, tally_events
from mainspring.core.schedules.triggers import after
from mainspring.errors import NotFound
from mainspring.store import RunFilter, Store
from mainspring.testing.clock import ManualClock


async def _pause(store: Store, queue: str, *, paused: bool = True, reason: str = "repair") -> None:
    found = await store.pause_queue("default", queue, paused=paused, reason=reason)
    assert (found is not None) == paused


class InsightSuite:
    """What pages ask for."""

    async def test_a_paused_queue_is_not_claimed_in_any_way_until_it_is_resumed(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = a_worker("w", queues=("gpu", "default"))
        kept, free = a_run(clock, queue="gpu"), a_run(clock)
        special = gated(clock, "g", queue="gpu")
        await submit(store, kept, free, special)
        await _pause(store, "gpu")
        assert [claim.run_id for claim in await take(store, worker)] == [free.id]
        assert await store.claim_these(worker, [(kept.id, 0), (special.id, 0)], TTL) == []
        assert await store.next_due(worker) is None
        notices, _ = await store.due_runs(10)
        assert notices == []
        alone = a_run(clock, queue="gpu")
        await submit(store, alone)
        assert await take(store, worker) == []
        await _pause(store, "gpu", paused=False)
        assert await store.next_due(worker) is not None
        assert {claim.run_id for claim in await take(store, worker)} == {kept.id, special.id, alone.id}

    async def test_a_pause_is_of_one_namespace_and_keeps_its_instant(self, store: Store, clock: ManualClock) -> None:
        there = a_run(clock, namespace="other", queue="gpu")
        await submit(store, there)
        await _pause(store, "gpu")
        (first,) = await store.paused_queues("default")
        clock.advance(SECOND)
        await _pause(store, "gpu", reason="still")
        (again,) = await store.paused_queues("default")
        assert (again.queue, again.paused_at, again.reason) == ("gpu", first.paused_at, "still")
        assert await store.paused_queues("other") == []
        worker = a_worker("w", namespace="other", queues=("gpu",))
        assert [claim.run_id for claim in await take(store, worker)] == [there.id]

    async def test_what_runs_goes_on_while_its_queue_is_paused(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, queue="gpu")
        await submit(store, run)
        worker = a_worker("w", queues=("gpu",))
        (claim,) = await take(store, worker)
        await _pause(store, "gpu")
        renewed = await store.renew(worker, [(claim.run_id, claim.token)], TTL)
        assert renewed.held == {(claim.run_id, claim.token)}
        assert await store.report([failure(claim)]) == ["accepted"]

    async def test_gates_and_lines_say_how_full_they_are(self, store: Store, clock: ManualClock) -> None:
        inside, waiting = gated(clock, "g"), gated(clock, "g")
        first, second = in_line(clock, "k"), in_line(clock, "k")
        await submit(store, inside, waiting, first, second)
        await take(store)
        (gate,) = await store.list_gates("default", 10)
        assert (gate.name, gate.used, gate.capacity, gate.waiting) == ("g", 1, 1, 1)
        (line,) = await store.list_lines("default", 10)
        assert (line.name, line.capacity, line.length, line.head) == ("k", 1, 2, first.id)
        (place,) = await store.lines_of(second.id)
        assert (place.name, place.length, place.head) == ("k", 1, first.id)
        assert not await store.list_gates("other", 10)
        assert not await store.list_lines("other", 10)

    async def test_dependants_of_runs_and_jobs(self, store: Store, clock: ManualClock) -> None:
        first = a_run(clock)
        others = [a_run(clock, after=(first.id,)) for _ in range(3)]
        await submit(store, first, *others)
        assert await store.dependants(first.id, 2) == sorted(run.id for run in others)[:2]
        up = await store.create_job(a_job(clock, "up"))
        await store.create_job(a_job(clock, "down", after("up")))
        assert await store.dependent_jobs(up.id, 10) == ["down"]

    async def test_the_position_of_an_instant_is_that_of_the_first_event_from_then_on(
        self, store: Store, clock: ManualClock
    ) -> None:
        assert await store.position_at(clock.now()) == await store.next_position()
        instants = []
        for _ in range(9):
            instants.append(clock.now())
            await submit(store, a_run(clock), a_run(clock))  # Two events of one transaction.
            await number_all(store)
            clock.advance(SECOND)
        positions = [await store.position_at(instant) for instant in instants]
        assert all(before < after for before, after in pairwise(positions))
        for instant, position in zip(instants, positions, strict=True):
            batches = await store.events_since(position, 1)
            assert batches[0].events[0].at >= instant
        assert await store.position_at(clock.now()) == await store.next_position()

    async def test_tallies_add_up_once_whichever_node_counts(self, store: Store, clock: ManualClock) -> None:
        assert await store.tallied() is None
        now = clock.now() // HOUR * HOUR
        key = TallyKey("default", "job", now, "a")
        one = {key: Tally({"failed": 1}, {}, {3: 1})}
        assert await store.add_tallies(None, 5, one, [])
        assert not await store.add_tallies(None, 7, one, [])
        assert await store.add_tallies(5, 7, {**one, key._replace(name="b"): Tally({"succeeded": 2}, {}, {})}, [])
        assert not await store.add_tallies(5, 9, one, [])
        assert await store.tallied() == 7
        found = await store.list_tallies("default", "job", now, now + 1)
        assert found == [(key, Tally({"failed": 2}, {}, {3: 2})), (key._replace(name="b"), Tally({"succeeded": 2}))]
        assert await store.list_tallies("default", "job", now, now + 1, name="b") == found[1:]
        assert await store.list_tallies("default", "job", now + 1, now + DAY) == []
        assert await store.list_tallies("other", "job", now, now + 1) == []

    async def test_tallies_of_queues_are_what_the_history_says(self, store: Store, clock: ManualClock) -> None:
        worker, queues = a_worker("w", queues=("gpu", "default")), ("gpu", "default")
        for queue in queues:
            await submit(store, a_run(clock, queue=queue))
            await self._end(store, await take(store, worker))
            await store.create_job(a_job(clock, f"of-{queue}", queue=queue))
            await trigger(store, clock, f"of-{queue}", "once")
            await trigger(store, clock, f"of-{queue}", "twice")
            fails, later = a_run(clock, queue=queue), a_run(clock, queue=queue, due_at=clock.now() + HOUR)
            await submit(store, fails, later, a_run(clock, queue=queue, after=(fails.id,)))
            await submit(store, gated(clock, "g", queue=queue), in_line(clock, "line", queue=queue))
            await store.request_cancel("default", later.id, "no longer needed")
            await self._end(store, await store.claim_these(worker, [(fails.id, 0)], TTL), failure)
            kept, *others = await take(store, worker)
            await self._end(store, others)
            await store.request_cancel("default", kept.run_id, "stop")
            assert await store.hand_back([(kept.run_id, kept.token)]) == 1
            await recover_the_rest(store)
        events = [event for batch in await number_all(store) for event in batch.events]
        assert {event.queue for event in events} == {"gpu", None}, "the usual queue is not written"
        found: dict[str, Tally] = {}
        for key, tally in tally_events(events).items():
            if key.kind == "queue":
                found.setdefault(key.name, Tally({}, {}, {})).add(tally)
        for queue in queues:
            runs = await store.list_runs(RunFilter(queue=queue))
            assert found[queue].accepted == len(runs) == 8
            assert found[queue].outcomes == dict(Counter(run.state for run in runs))
            assert set(found[queue].outcomes) == {"succeeded", "failed", "cancelled", "skipped"}
            assert sum(found[queue].late.values()) == 2, "those of firings, at their first attempt"

    async def _end(self, store: Store, claims: Sequence[Claim], report: Callable[[Claim], Report] = success) -> None:
        assert claims
        assert set(await store.report([report(claim) for claim in claims])) == {"accepted"}

    async def test_the_latest_tallies_of_several_names(self, store: Store, clock: ManualClock) -> None:
        now = clock.now() // HOUR * HOUR
        keys = [TallyKey("default", "job", now - hours * HOUR, name) for name in ("a", "b", "c") for hours in (0, 3, 5)]
        assert await store.add_tallies(None, 5, {key: Tally({"failed": 1}) for key in keys}, [])
        found = await store.newest_tallies("default", "job", ["a", "c", "unknown"], now - 4 * HOUR, 10)
        assert [key for key, _ in found] == [*keys[0:2], *keys[6:8]]
        assert {tally.outcomes["failed"] for _, tally in found} == {1}
        assert [key for key, _ in await store.newest_tallies("default", "job", ["c", "a"], 0, 1)] == [keys[0], keys[6]]
        assert await store.newest_tallies("default", "task", ["a"], 0, 10) == []
        assert await store.newest_tallies("other", "job", ["a"], 0, 10) == []

    async def test_the_oldest_event_that_is_not_counted_says_how_far_counting_has_got(
        self, store: Store, clock: ManualClock
    ) -> None:
        position, instants = await store.next_position(), []
        assert await store.add_tallies(None, position, {}, [])
        assert await store.uncounted_since() is None
        for _ in range(3):
            instants.append(clock.now())
            await submit(store, a_run(clock), a_run(clock))
            clock.advance(SECOND)
        assert await store.uncounted_since() == instants[0]  # Before the events have numbers, too.
        for batch, following in zip(await number_all(store), [*instants[1:], None], strict=True):
            end = batch.position + len(batch.events)
            assert await store.add_tallies(position, end, {}, [])
            assert await store.uncounted_since() == following
            position = end

    async def test_failures_are_kept_by_group(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(3)]
        for run in runs:
            await submit(store, run)
            await finish(store, run, lambda claim: failure(claim, "ValueError: no"))
            clock.advance(MINUTE)
        events = [event for batch in await number_all(store) for event in batch.events]
        ended = {run.id: run for run in await store.finished([run.id for run in runs])}
        seen = [
            SeenFailure(event.run_id, event.namespace, event.at, kind_of_error(ended[event.run_id]))
            for event in events
            if event.kind == "run.failed" and event.run_id is not None
        ]
        assert len(seen) == 3
        assert await store.add_tallies(None, 1, tally_events(events), seen[:2])
        assert await store.add_tallies(1, 2, {}, seen[2:])
        (group,) = await store.list_errors("default")
        assert (group.count, group.last_run, group.type) == (3, runs[2].id, "ValueError")
        assert group.first_at < group.last_at
        assert await store.get_error("default", group.id) == group
        assert [run.id for run in await store.runs_of_error("default", group.id, limit=2)] == [runs[2].id, runs[1].id]
        older = await store.runs_of_error("default", group.id, before=runs[1].id)
        assert [run.id for run in older] == [runs[0].id]
        assert await store.runs_of_error("default", group.id, since=new_id(clock)) == []
        assert await store.list_errors("default", since=group.last_at + 1) == []
        assert await store.list_errors("default", before=(group.last_at, group.id)) == []
        with pytest.raises(NotFound, match=group.id):
            await store.get_error("other", group.id)

    async def test_old_tallies_and_groups_are_forgotten(self, store: Store, clock: ManualClock) -> None:
        now = clock.now() // HOUR * HOUR
        run = a_run(clock)
        await submit(store, run)
        await finish(store, run, failure)
        (ended,) = await store.finished([run.id])
        seen = SeenFailure(run.id, "default", clock.now(), kind_of_error(ended))
        await store.add_tallies(None, 1, {TallyKey("default", "all", now, ""): Tally({"failed": 1}, {}, {})}, [seen])
        clock.advance(3 * DAY)
        for _ in range(3):
            await store.clean(DAY, 2 * DAY, DAY, 1_000)
        assert await store.list_errors("default") == []
        assert await store.list_tallies("default", "all", 0, clock.now()) == []
        assert await store.runs_of_error("default", seen.kind.id) == []
