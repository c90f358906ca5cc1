"""Job definitions, calendars, and firing by hand."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec

from mainspring.conformance.store.definitions.sync import SyncSuite
from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import (
    a_job,
    finish_all,
    fire,
    options,
    seen,
    take_one,
    trigger,
)
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, parse_instant, to_datetime
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.planning.plans import plan
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.calendar_rules import CronRule, Other, Weekdays, holidays
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import (
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
)
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

HOURLY = EveryTrigger(HOUR)


class JobSuite(SyncSuite):
    """A definition is kept as given, has one name, and changes only for a caller that has seen its newest version."""

    async def test_a_job_is_read_back_as_given(self, store: Store, clock: ManualClock) -> None:
        await store.save_calendar("tenant-a", Calendar("holidays", (holidays("12-25"),)))
        policy = JobPolicy(misfire="all", grace=3 * SECOND, overlap="queue", jitter=7, calendars=("holidays",))
        given = a_job(
            clock,
            "nachtbericht é",
            CronTrigger("0 2 * * *", "Europe/Berlin"),
            namespace="tenant-a",
            app="billing",
            args='{"größe":"4K"}',
            queue="films",
            priority=2,
            key="v1",
            limit=4,
            policy=msgspec.structs.replace(policy, end_at=clock.now() + 900 * DAY, keep_failed=0, regions=("eu", "us")),
            options=RunOptions(timeout=HOUR, retry=Retry(5, delay="2s", on=ValueError), tags=("a",)),
        )
        created = await store.create_job(given)
        stored = await store.get_job("tenant-a", given.name)
        assert stored == created
        assert (stored.version, stored.fired, stored.last_fire_at, stored.paused_at) == (1, 0, None, None)
        assert stored.created_at == stored.updated_at == clock.now()
        for field in ("id", "name", "app", "task", "args", "queue", "priority", "key", "limit"):
            assert getattr(stored, field) == getattr(given, field), field
        assert (stored.trigger, stored.policy, stored.options) == (given.trigger, given.policy, given.options)

    async def test_every_kind_of_trigger_is_read_back(self, store: Store, clock: ManualClock) -> None:
        triggers: dict[str, Trigger] = {
            "cron": CronTrigger("*/5 * * * *"),
            "every": EveryTrigger(1_234_567, anchor=clock.now() - 1),
            "at": AtTrigger(clock.now() + 1),
            "manual": ManualTrigger(),
            "after": AfterTrigger(("cron", "every"), "any_finished", "run"),
        }
        for name, given in triggers.items():
            await store.create_job(a_job(clock, name, given))
        assert {job.name: job.trigger for job in await store.list_jobs("default")} == triggers

    async def test_a_new_job_is_due_when_its_trigger_says(self, store: Store, clock: ManualClock) -> None:
        hourly = await store.create_job(a_job(clock, "hourly", HOURLY))
        assert hourly.next_fire_at == clock.now() + HOUR
        assert (await store.create_job(a_job(clock, "manual"))).next_fire_at is None

    async def test_a_job_is_not_due_when_its_calendars_forbid(self, store: Store, clock: ManualClock) -> None:
        clock.set("2026-01-01T12:00:00Z")
        await store.save_calendar("default", Calendar("off", (holidays("2026-01-02"),)))
        policy = JobPolicy(calendars=("off",))
        job = await store.create_job(a_job(clock, "daily", CronTrigger("0 9 * * *"), policy=policy))
        assert job.next_fire_at == parse_instant("2026-01-03T09:00:00Z")
        await store.save_calendar("default", Calendar("off", (holidays("2026-01-03"),)))
        assert (await store.get_job("default", "daily")).next_fire_at == parse_instant("2026-01-02T09:00:00Z")

    async def test_a_job_is_found_by_name_or_id_in_its_namespace(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly"))
        assert await store.get_job("default", "nightly") == await store.get_job("default", job.id) == job
        for namespace, name in (("tenant-a", "nightly"), ("tenant-a", job.id), ("default", "weekly")):
            with refused(NotFound):
                await store.get_job(namespace, name)

    async def test_a_name_is_used_once_in_a_namespace(self, store: Store, clock: ManualClock) -> None:
        first = await store.create_job(a_job(clock, "nightly"))
        with refused(Conflict):
            await store.create_job(a_job(clock, "nightly", HOURLY))
        assert await store.list_jobs("default") == [first]
        await store.create_job(a_job(clock, "nightly", namespace="tenant-a"))

    async def test_of_many_callers_that_take_a_name_at_once_one_gets_it(self, store: Store, clock: ManualClock) -> None:
        jobs = [a_job(clock, "nightly") for _ in range(10)]
        answers = await asyncio.gather(*(store.create_job(job) for job in jobs), return_exceptions=True)
        assert sum(isinstance(answer, Job) for answer in answers) == 1
        assert sum(isinstance(answer, Conflict) for answer in answers) == 9

    async def test_what_a_job_names_must_exist(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "theirs", namespace="tenant-a"))
        with refused(InvalidInput):
            await store.create_job(a_job(clock, "report", AfterTrigger(("theirs",))))
        with refused(InvalidInput):
            await store.create_job(a_job(clock, "report", policy=JobPolicy(calendars=("x",))))
        assert await store.list_jobs("default") == []

    async def test_jobs_cannot_wait_for_each_other_in_a_circle(self, store: Store, clock: ManualClock) -> None:
        with refused(InvalidInput):
            await store.create_job(a_job(clock, "a", AfterTrigger(("a",))))
        first = await store.create_job(a_job(clock, "a"))
        await store.create_job(a_job(clock, "b", AfterTrigger(("a",))))
        await store.create_job(a_job(clock, "c", AfterTrigger(("b",))))
        with refused(InvalidInput) as refusal:
            await store.edit_job(msgspec.structs.replace(first, trigger=AfterTrigger(("c",))), first.version)
        assert "->" in str(refusal)
        assert await store.get_job("default", "a") == first

    async def test_an_edit_raises_the_version(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly", HOURLY))
        clock.advance(SECOND)
        edited = await store.edit_job(msgspec.structs.replace(job, args='{"x":1}', priority=1), job.version)
        assert edited == await store.get_job("default", "nightly")
        assert (edited.args, edited.priority, edited.version) == ('{"x":1}', 1, job.version + 1)
        assert (edited.updated_at, edited.created_at) == (clock.now(), job.created_at)
        assert edited.next_fire_at == job.next_fire_at

    async def test_a_caller_that_has_not_seen_the_newest_version_cannot_edit(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await store.create_job(a_job(clock, "nightly"))
        newer = await store.edit_job(msgspec.structs.replace(job, args='{"x":1}'), job.version)
        with refused(Conflict):
            await store.edit_job(msgspec.structs.replace(job, args='{"x":2}'), job.version)
        assert await store.get_job("default", "nightly") == newer
        with refused(NotFound):
            await store.edit_job(a_job(clock, "weekly"), 1)

    async def test_an_edited_trigger_moves_the_next_fire_time(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly", HOURLY))
        clock.advance(MINUTE)
        changed = msgspec.structs.replace(job, trigger=EveryTrigger(10 * MINUTE))
        assert (await store.edit_job(changed, job.version)).next_fire_at == job.created_at + 10 * MINUTE

    async def test_an_instant_that_an_edit_gave_up_is_recorded_as_skipped(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await store.create_job(a_job(clock, "nightly", HOURLY))
        clock.advance(HOUR + SECOND)
        await store.edit_job(msgspec.structs.replace(job, trigger=ManualTrigger()), job.version)
        (row,) = await store.list_firings(job.id)
        assert (row.fire_at, row.outcome, bool(row.reason)) == (job.created_at + HOUR, "skipped", True)

    async def test_an_edit_does_not_undo_a_firing(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly", HOURLY))
        clock.advance(HOUR)
        await fire(store, clock, "nightly")
        edited = await store.edit_job(msgspec.structs.replace(job, args='{"x":1}'), job.version)
        assert (edited.fired, edited.last_fire_at) == (1, job.next_fire_at)
        assert edited.next_fire_at == job.created_at + 2 * HOUR

    async def test_a_run_keeps_what_its_job_said_when_it_fired(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly", args='{"v":1}'))
        firing = await trigger(store, clock, "nightly", "1")
        await store.edit_job(msgspec.structs.replace(job, args='{"v":2}'), job.version)
        assert (await seen(store, firing.run_id or "")).args == '{"v":1}'

    async def test_jobs_are_listed_by_name_a_page_at_a_time(self, store: Store, clock: ManualClock) -> None:
        for name in ("d", "b", "a", "c", "e"):
            await store.create_job(a_job(clock, name, app="films" if name in "bd" else "default"))
        await store.create_job(a_job(clock, "z", namespace="tenant-a"))
        assert [job.name for job in await store.list_jobs("default")] == ["a", "b", "c", "d", "e"]
        assert [job.name for job in await store.list_jobs("default", after="b", limit=2)] == ["c", "d"]
        assert [job.name for job in await store.list_jobs("default", app="films")] == ["b", "d"]

    async def test_a_paused_job_says_since_when_and_why(self, store: Store, clock: ManualClock) -> None:
        for name in ("a", "b", "c"):
            await store.create_job(a_job(clock, name, HOURLY))
        paused = await store.pause_jobs("default", ["a", "c"], paused=True, reason="audit")
        assert {(job.name, job.paused_at, job.paused_why) for job in paused} == {
            ("a", clock.now(), "audit"),
            ("c", clock.now(), "audit"),
        }
        known = {job.name: job.paused_at for job in await store.list_jobs("default")}
        assert known == {"a": clock.now(), "b": None, "c": clock.now()}

    async def test_jobs_are_paused_together_or_not_at_all(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "a", HOURLY))
        with refused(NotFound):
            await store.pause_jobs("default", ["a", "nobody"], paused=True, reason="audit")
        assert (await store.get_job("default", "a")).paused_at is None

    async def test_instants_that_passed_in_a_pause_are_recorded_as_skipped(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await store.create_job(a_job(clock, "a", HOURLY))
        await store.pause_jobs("default", ["a"], paused=True, reason="audit")
        clock.advance(3 * HOUR + MINUTE)
        (resumed,) = await store.pause_jobs("default", ["a"], paused=False, reason="")
        assert (resumed.paused_at, resumed.next_fire_at) == (None, job.created_at + 4 * HOUR)
        rows = await store.list_firings(job.id)
        assert [row.fire_at for row in rows] == [job.created_at + hours * HOUR for hours in (3, 2, 1)]
        assert {(row.outcome, row.run_id, "audit" in row.reason) for row in rows} == {("skipped", None, True)}

    async def test_a_pause_in_which_nothing_was_due_leaves_no_trace(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "a", HOURLY))
        await store.pause_jobs("default", ["a"], paused=True, reason="audit")
        clock.advance(MINUTE)
        (resumed,) = await store.pause_jobs("default", ["a"], paused=False, reason="")
        assert resumed.next_fire_at == job.next_fire_at
        assert await store.list_firings(job.id) == []

    async def test_a_removed_job_leaves_its_ledger_and_its_unfinished_runs(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await store.create_job(a_job(clock, "nightly"))
        firing = await trigger(store, clock, "nightly", "1")
        await store.remove_job("default", "nightly")
        with refused(NotFound):
            await store.get_job("default", "nightly")
        assert (await take_one(store)).run_id == firing.run_id
        assert [row.run_id for row in await store.list_firings(job.id)] == [firing.run_id]
        with refused(NotFound):
            await store.remove_job("default", "nightly")

    async def test_a_job_that_others_fire_after_cannot_be_removed(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "extract"))
        await store.create_job(a_job(clock, "report", AfterTrigger(("extract",))))
        with refused(Conflict) as refusal:
            await store.remove_job("default", "extract")
        assert "report" in str(refusal)
        await store.remove_job("default", "report")
        await store.remove_job("default", "extract")

    async def test_a_job_that_has_changed_meanwhile_is_not_removed(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "hourly", HOURLY))
        edited = await store.edit_job(msgspec.structs.replace(job, priority=1), job.version)
        with refused(Conflict):
            await store.remove_job("default", "hourly", job.version)
        await store.remove_job("default", "hourly", edited.version)

    async def test_a_job_fires_by_hand(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "hourly", HOURLY, args='{"x":1}', options=RunOptions(max_losses=9)))
        firing = await trigger(store, clock, "hourly", "request-1")
        assert (firing.job_id, firing.kind, firing.request_id) == (job.id, "manual", "request-1")
        run = await seen(store, firing.run_id or "")
        assert (run.job_id, run.job, run.fire_at, run.args) == (job.id, "hourly", firing.fire_at, job.args)
        assert (run.state, run.options) == ("pending", options(max_losses=9))
        assert (await store.get_job("default", "hourly")).next_fire_at == job.next_fire_at
        await finish_all(store, clock)
        (row,) = await store.list_firings(job.id)
        assert (row.outcome, row.finished_at) == ("succeeded", clock.now())

    async def test_the_same_request_fires_once(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly"))
        first = await trigger(store, clock, "nightly", "request-1")
        clock.advance(SECOND)
        again = await trigger(store, clock, "nightly", "request-1")
        assert (again.fire_at, again.run_id) == (first.fire_at, first.run_id)
        await finish_all(store, clock)
        assert (await trigger(store, clock, "nightly", "request-1")).run_id == first.run_id
        assert len(await store.list_firings(job.id)) == 1

    async def test_a_request_sent_many_times_at_once_fires_once(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly"))
        firings = await asyncio.gather(*(trigger(store, clock, "nightly", "request-1") for _ in range(8)))
        assert len({firing.run_id for firing in firings}) == 1
        assert len(await store.list_firings(job.id)) == 1

    async def test_two_requests_at_one_instant_are_two_firings(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly"))
        firings = [await trigger(store, clock, "nightly", f"request-{n}") for n in range(3)]
        assert len({firing.run_id for firing in firings}) == 3
        assert len(await store.list_firings(job.id)) == 3

    async def test_overlap_holds_for_firing_by_hand_too(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "nightly", policy=JobPolicy(overlap="forbid")))
        first = await trigger(store, clock, "nightly", "request-1")
        refusal = await trigger(store, clock, "nightly", "request-2")
        assert (refusal.outcome, refusal.run_id) == ("skipped", None)
        assert (first.run_id or "") in refusal.reason
        await finish_all(store, clock)
        assert (await trigger(store, clock, "nightly", "request-2")).outcome == "skipped"
        assert (await trigger(store, clock, "nightly", "request-3")).run_id is not None

    async def test_an_unknown_job_cannot_be_fired(self, store: Store, clock: ManualClock) -> None:
        with refused(NotFound):
            await trigger(store, clock, "nobody", "request-1")

    async def test_the_ledger_is_read_newest_first_a_page_at_a_time(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "nightly"))
        fired = []
        for number in range(5):
            clock.advance(SECOND)
            fired.append((await trigger(store, clock, "nightly", str(number))).fire_at)
        page = await store.list_firings(job.id, limit=2)
        assert [row.fire_at for row in page] == [fired[4], fired[3]]
        rest = await store.list_firings(job.id, before=page[-1].fire_at)
        assert [row.fire_at for row in rest] == [fired[2], fired[1], fired[0]]

    async def test_the_newest_rows_of_many_ledgers_are_one_question(self, store: Store, clock: ManualClock) -> None:
        jobs = [await store.create_job(a_job(clock, f"job-{number}")) for number in range(3)]
        for number in range(2):
            clock.advance(SECOND)
            await trigger(store, clock, "job-0", f"first-{number}")
        clock.advance(SECOND)
        await trigger(store, clock, "job-1", "second")
        rows = await store.newest_firings([*(job.id for job in jobs), "nobody"])
        expected = [(await store.list_firings(job.id, limit=1))[0] for job in jobs[:2]]
        assert sorted(rows, key=lambda row: row.fire_at) == expected
        assert await store.newest_firings([]) == []
        several = await store.newest_firings([job.id for job in jobs], 2)
        by_job = [row for job in sorted(jobs, key=lambda job: job.id) for row in several if row.job_id == job.id]
        assert by_job == several
        for job in jobs:
            assert [row for row in several if row.job_id == job.id] == await store.list_firings(job.id, limit=2)

    async def test_calendars_are_kept_by_name_and_replaced(self, store: Store) -> None:
        first = Calendar("off", (holidays("2026-12-25"),), "Europe/Berlin")
        second = Calendar("off", (Weekdays(("sat", "sun")), holidays("12-31/01-01")))
        await store.save_calendar("default", first)
        await store.save_calendar("tenant-a", first)
        await store.save_calendar("default", second)
        assert await store.list_calendars("default") == {"off": second}
        assert await store.list_calendars("tenant-a") == {"off": first}
        assert await store.list_calendars("nobody") == {}

    async def test_what_takes_long_to_find_after_a_change_of_calendar_is_left_to_the_planner(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.save_calendar("default", Calendar("off", (holidays("2027-12-25"),)))
        trigger, policy = CronTrigger("*/2 * * * *"), JobPolicy(calendars=("off",))
        for number in range(8):
            await store.create_job(a_job(clock, f"job-{number}", trigger, policy=policy))
        day = clock.now() - clock.now() % DAY
        rule = CronRule(f"*/2 * {to_datetime(day, 'UTC').day} * *")
        await store.save_calendar("default", Calendar("off", (rule,)))
        marked = [job for job in await store.list_jobs("default") if job.next_fire_at != day + DAY]
        assert 0 < len(marked) < 8
        clock.advance(SECOND)
        assert {job.id for job in marked} <= {job.id for job in await store.due_jobs(clock.now(), 10)}
        plans = [plan(job, clock.now(), await store.list_calendars("default")) for job in marked]
        assert [made.firings for made in plans] == [()] * len(marked), "the mark is no instant"
        assert all(fired.applied for fired in await store.fire(plans, None))
        assert {job.next_fire_at for job in await store.list_jobs("default")} == {day + DAY}

    async def test_a_calendar_is_removed_once_nothing_refers_to_it(self, store: Store, clock: ManualClock) -> None:
        with refused(NotFound):
            await store.remove_calendar("default", "off")
        await store.save_calendar("default", Calendar("off", (holidays("12-25"),)))
        await store.save_calendar("default", Calendar("both", (Other("off"),)))
        await store.create_job(a_job(clock, "report", policy=JobPolicy(calendars=("both",))))
        for name, user in (("off", "calendar both"), ("both", "job report")):
            with refused(Conflict) as refusal:
                await store.remove_calendar("default", name)
            assert user in str(refusal)
        await store.remove_job("default", "report")
        await store.remove_calendar("default", "both")
        await store.remove_calendar("default", "off")
        assert await store.list_calendars("default") == {}

    async def test_saving_a_calendar_again_changes_no_job(self, store: Store, clock: ManualClock) -> None:
        """Also if its author wrote a list of rules, which comes back as a tuple."""
        written = Calendar("off", cast(Any, [holidays("12-25")]))
        await store.save_calendar("default", written)
        before = await store.create_job(a_job(clock, "report", policy=JobPolicy(calendars=("off",))))
        await store.save_calendar("default", written)
        assert await store.get_job("default", "report") == before

    async def test_a_changed_calendar_touches_only_the_jobs_that_obey_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        await store.save_calendar("default", Calendar("off", (holidays("12-25"),)))
        await store.save_calendar("default", Calendar("both", (Other("off"), Weekdays(("sun",)))))
        await store.save_calendar("default", Calendar("apart", (holidays("01-01"),)))
        for name in ("off", "both", "apart"):
            await store.create_job(a_job(clock, name, policy=JobPolicy(calendars=(name,))))
        await store.save_calendar("default", Calendar("off", (holidays("12-26"),)))
        versions = {job.name: job.version for job in await store.list_jobs("default")}
        assert versions == {"off": 2, "both": 2, "apart": 1}
