"""What the instances of an API agree on: answers, limits, revocations, the audit trail."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mainspring.conformance.store.samples import a_run, a_worker
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND
from mainspring.core.load.rate_limits import Pace
from mainspring.core.model import Gate, NewRun
from mainspring.errors import Conflict, NotFound
from mainspring.store import Change, Reply, Reserved, RunFilter, Store
from mainspring.testing.clock import ManualClock

HOLD, KEEP = 30 * SECOND, DAY
PACE = Pace(10, MINUTE)


async def reserved(store: Store, key: str = "key", fingerprint: str = "print", scope: str = "a") -> Reserved:
    """Ask for a key as the API does."""
    return await store.reserve_reply(scope, key, fingerprint, hold=HOLD, keep=KEEP)


def a_change(**words: str) -> Change:
    """A change with its author."""
    plain = Change(namespace="default", subject="ann", action="job.update", target="job:1")
    return msgspec.structs.replace(plain, **words)


class ApiSuite:
    """One answer per key, one budget per name, and a trail that keeps every entry."""

    async def test_of_many_callers_that_ask_for_a_key_at_once_one_takes_it_on(self, store: Store) -> None:
        answers = await asyncio.gather(*(reserved(store) for _ in range(20)))
        assert sum(not each.busy for each in answers) == 1
        assert all(each.reply is None for each in answers)

    async def test_an_answered_key_gives_that_answer(self, store: Store, clock: ManualClock) -> None:
        began = clock.now()
        await reserved(store)
        await store.keep_reply("a", "key", "print", Reply(201, '{"n":1}'), keep=KEEP)
        clock.advance(HOUR)
        assert await reserved(store) == Reserved(began, Reply(201, '{"n":1}'))

    async def test_a_key_used_for_another_request_is_a_conflict(self, store: Store) -> None:
        await reserved(store)
        with pytest.raises(Conflict):
            await reserved(store, fingerprint="other")
        await store.keep_reply("a", "key", "print", Reply(200, ""), keep=KEEP)
        with pytest.raises(Conflict):
            await reserved(store, fingerprint="other")

    async def test_a_key_of_one_scope_says_nothing_in_another(self, store: Store) -> None:
        await reserved(store)
        await store.keep_reply("a", "key", "print", Reply(200, "secret"), keep=KEEP)
        assert (await reserved(store, fingerprint="other", scope="b")).reply is None

    async def test_the_reservation_of_a_caller_that_died_passes_on_with_the_same_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        first = await reserved(store)
        clock.advance(HOLD + 1)
        second = await reserved(store)
        assert (second.busy, second.reply, second.since) == (False, None, first.since)
        assert (await reserved(store)).busy

    async def test_a_key_given_back_is_free_for_any_request(self, store: Store) -> None:
        await reserved(store)
        await store.keep_reply("a", "key", "print", None)
        assert not (await reserved(store, fingerprint="other")).busy

    async def test_giving_back_does_not_take_an_answer_away(self, store: Store) -> None:
        await reserved(store)
        await store.keep_reply("a", "key", "print", Reply(200, "1"), keep=KEEP)
        await store.keep_reply("a", "key", "print", None)
        assert (await reserved(store)).reply == Reply(200, "1")

    async def test_an_answer_is_forgotten_when_its_time_has_passed(self, store: Store, clock: ManualClock) -> None:
        await reserved(store)
        await store.keep_reply("a", "key", "print", Reply(200, "1"), keep=HOUR)
        clock.advance(HOUR + 1)
        again = await reserved(store, fingerprint="other")
        assert (again.reply, again.busy, again.since) == (None, False, clock.now())

    async def test_a_budget_is_shared_and_never_overspent(self, store: Store) -> None:
        answers = await asyncio.gather(*(store.spend("ann", 1, PACE) for _ in range(25)))
        assert sum(each.granted for each in answers) == PACE.amount

    async def test_a_refusal_costs_nothing_and_says_when(self, store: Store, clock: ManualClock) -> None:
        assert (await store.spend("ann", 8, PACE)).granted
        refused = await store.spend("ann", 5, PACE)
        assert (refused.granted, refused.left, refused.wait) == (False, 2, 18 * SECOND)
        clock.advance(refused.wait)
        assert (await store.spend("ann", 5, PACE)).granted

    async def test_budgets_of_other_names_are_their_own(self, store: Store) -> None:
        assert (await store.spend("ann", 10, PACE)).granted
        assert not (await store.spend("ann", 1, PACE)).granted
        assert (await store.spend("bob", 10, PACE)).granted

    async def test_a_revocation_is_known_with_its_time_until_it_matters_no_more(
        self, store: Store, clock: ManualClock
    ) -> None:
        assert await store.revocations() == {}
        began = clock.now()
        await store.revoke("jti:1", HOUR)
        await store.revoke("sub:ann", DAY)
        assert await store.revocations() == {"jti:1": began, "sub:ann": began}
        clock.advance(HOUR + 1)
        assert await store.revocations() == {"sub:ann": began}

    async def test_a_repeated_revocation_counts_from_the_later_time(self, store: Store, clock: ManualClock) -> None:
        await store.revoke("sub:ann", DAY)
        clock.advance(HOUR)
        await store.revoke("sub:ann", MINUTE)
        assert await store.revocations() == {"sub:ann": clock.now()}
        clock.advance(2 * MINUTE)
        assert "sub:ann" in await store.revocations()

    async def test_the_audit_trail_names_the_caller_and_the_change_newest_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.note_changes([a_change(before='{"v":1}', after='{"v":2}', request_id="r1")])
        clock.advance(SECOND)
        await store.note_changes([a_change(subject="bob", target="job:2"), a_change(namespace="other")])
        entries = await store.list_changes("default")
        assert [change.subject for _, change in entries] == ["bob", "ann"]
        first = entries[-1][1]
        assert (first.before, first.after, first.request_id) == ('{"v":1}', '{"v":2}', "r1")
        assert first.at == clock.now() - SECOND
        assert [number for number, _ in entries] == sorted({number for number, _ in entries}, reverse=True)

    async def test_the_audit_trail_takes_targets_of_any_length(self, store: Store) -> None:
        names = ["job:" + 5_000 * "é" + end for end in "ab"]
        await store.note_changes([a_change(target=name) for name in names])
        assert [c.target for _, c in await store.list_changes("default", target=names[0])] == names[:1]

    async def test_the_audit_trail_can_be_narrowed_and_paged(self, store: Store) -> None:
        await store.note_changes([a_change(target=f"job:{n % 2}", subject=f"s{n}") for n in range(6)])
        assert [c.subject for _, c in await store.list_changes("default", target="job:1")] == ["s5", "s3", "s1"]
        assert [c.subject for _, c in await store.list_changes("default", subject="s2")] == ["s2"]
        narrow = await store.list_changes("default", target="job:1", subject="s3")
        assert [c.subject for _, c in narrow] == ["s3"]
        assert await store.list_changes("default", target="job:1", subject="s2") == []
        assert await store.list_changes("default", target="job:1", before=narrow[0][0], subject="s3") == []
        page = await store.list_changes("default", limit=4)
        rest = await store.list_changes("default", before=page[-1][0], limit=4)
        assert [c.subject for _, c in [*page, *rest]] == ["s5", "s4", "s3", "s2", "s1", "s0"]

    async def test_the_audit_trail_is_asked_for_kinds_of_changes_and_spans_of_time(
        self, store: Store, clock: ManualClock
    ) -> None:
        began = clock.now()
        for number in range(12):
            action = ("job.pause", "run.submit", "job.edit")[number % 3]
            await store.note_changes([a_change(action=action, subject="ab"[number % 2], target=f"t{number}")])
            clock.advance(HOUR)
        every = [change for _, change in await store.list_changes("default")]
        for kind in (None, "job.pause", "run.submit", "nothing"):
            for subject in (None, "a"):
                for target in (None, "t4"):
                    for since, until in ((None, None), (began + 3 * HOUR, None), (began + HOUR, began + 5 * HOUR)):
                        words: dict[str, Any] = {"action": kind, "subject": subject, "target": target}
                        fitting = [
                            change
                            for change in every
                            if all(value in (None, getattr(change, name)) for name, value in words.items())
                            and (since or 0) <= change.at < (until or clock.now())
                        ]
                        found = await store.list_changes("default", **words, since=since, until=until)
                        assert [change for _, change in found] == fitting, words
        assert await store.list_changes("default", since=clock.now() + HOUR) == []
        assert await store.list_changes("other", action="job.pause") == []

    async def test_a_change_and_its_row_in_the_trail_are_committed_together(
        self, store: Store, clock: ManualClock
    ) -> None:
        def audit(answer: object) -> list[Change]:
            return [a_change(action="run.submit_batch", after=msgspec.json.encode(answer).decode())]

        runs = [a_run(clock), a_run(clock)]
        ids = await store.submit(runs, audit=audit)
        (change,) = [change for _, change in await store.list_changes("default")]
        assert change.after == msgspec.json.encode(ids).decode()
        assert len(await store.list_runs(RunFilter())) == 2
        for some in ([a_run(clock)], [a_run(clock), a_run(clock)]):
            with pytest.raises(ZeroDivisionError):
                await store.submit(some, audit=lambda _: [a_change(after=str(1 // 0))])
        assert len(await store.list_runs(RunFilter())) == 2
        with pytest.raises(NotFound):
            await store.request_cancel("default", "nothing", "", audit=audit)
        assert len(await store.list_changes("default")) == 1

    async def test_a_submission_that_is_to_be_noted_is_in_the_trail_once_whichever_way_it_goes(
        self, store: Store, clock: ManualClock
    ) -> None:
        def run(subject: str = "ann", **words: Any) -> NewRun:
            return a_run(clock, noted_for=subject, request_id=f"r-{subject}", **words)

        held = Gate("key:k", 1)
        kinds = [run(), run("bob"), run(lines=(held,)), run(gates=(held,)), run(idempotency_key="k"), a_run(clock)]
        for each in kinds:
            await store.submit([each])
            await store.submit([each])
        together = [run(f"s{number}") for number in range(3)]
        await asyncio.gather(*(store.submit([each]) for each in [*together, *together]))
        await store.submit([run("cat"), a_run(clock)])
        entries = [change for _, change in await store.list_changes("default")]
        expected = [run.id for run in [*kinds[:-1], *together]]
        assert sorted(change.target for change in entries if change.subject != "cat") == [
            f"run:{one}" for one in expected
        ]
        assert len(entries) == len(expected) + 1
        assert {change.action for change in entries} == {"run.submit"}
        bob_run, (bob,) = kinds[1], [change for change in entries if change.subject == "bob"]
        assert (bob.request_id, bob.at, bob.before) == ("r-bob", clock.now(), None)
        assert msgspec.json.decode(bob.after or "") == {"task": bob_run.task, "queue": "default", "priority": 5}

    async def test_a_submission_that_a_worker_starts_at_once_is_in_the_trail(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.submit([a_run(clock, noted_for="ann")])
        (claim,) = await store.claim(a_worker(), 10, MINUTE, "strict")
        (change,) = [change for _, change in await store.list_changes("default")]
        assert change.target == f"run:{claim.run_id}"

    async def test_submissions_stay_in_the_trail_as_long_as_runs_and_other_changes_longer(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.submit([a_run(clock, noted_for="ann")])
        await store.note_changes([a_change(action="job.pause")])
        clock.advance(2 * DAY)
        await store.clean(DAY, 3 * DAY, DAY, 100)
        assert [change.action for _, change in await store.list_changes("default")] == ["job.pause"]

    async def test_the_schema_is_the_one_that_the_program_knows(self, store: Store) -> None:
        version, newest = await store.schema()
        assert version == newest > 0

    async def test_what_the_api_kept_is_cleaned_up_in_time(self, store: Store, clock: ManualClock) -> None:
        await reserved(store)
        await store.spend("ann", 1, PACE)
        await store.revoke("jti:1", HOUR)
        await store.note_changes([a_change()])
        clock.advance(2 * DAY)
        assert await store.clean(DAY, DAY, DAY, 100) >= 4
        assert await store.list_changes("default") == []
