"""Jobs: declared in code, stored by a sync, added and looked after."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring import Mainspring, Retry, after, at, cron, every
from mainspring.calendars import Calendar, holidays
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND
from mainspring.core.model import Job, RunOptions
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.errors import (
    Conflict,
    InvalidInput,
    NotFound,
)
from mainspring.operations.values.bodies import body_of


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mainspring]:
    monkeypatch.chdir(tmp_path)
    async with Mainspring(f"sqlite:///{tmp_path}/store.db", durable=False) as app:
        yield app


class TestJobs:
    async def job(self, app: Mainspring, name: str) -> Job:
        return await (await app.open()).get_job("default", name)

    async def test_a_job_is_declared_on_a_function_and_stored_by_sync(self, app: Mainspring) -> None:
        @app.job(cron("0 2 * * *", tz="Europe/Berlin"), overlap="forbid", misfire="once", timeout="1h", priority=3)
        def daily_report() -> None: ...

        assert (await app.sync_jobs()).created == ("daily_report",)
        job = await self.job(app, "daily_report")
        assert (job.task, job.app, job.priority) == ("daily_report", "default", 3)
        assert job.trigger == cron("0 2 * * *", tz="Europe/Berlin")
        assert (job.policy.overlap, job.policy.misfire, job.options.timeout) == ("forbid", "once", HOUR)
        assert job.next_fire_at is not None
        assert daily_report.defaults.options.timeout == HOUR

    async def test_a_second_sync_changes_only_what_changed(self, app: Mainspring) -> None:
        app.job(every("1m"), name="a")(app.task(name="work")(lambda: None))
        await app.sync_jobs()
        assert (await app.sync_jobs()).unchanged == ("a",)
        later = Mainspring(app.settings.store)
        later.job(every("2m"), name="a")(later.task(name="work")(lambda: None))
        assert (await later.sync_jobs()).updated == ("a",)
        await later.close()
        assert (await Mainspring(app.settings.store).sync_jobs()).undeclared == ("a",)

    async def test_a_task_may_have_several_jobs_with_their_own_arguments(self, app: Mainspring) -> None:
        @app.job(every("1h"), name="small", args={"size": 1})
        @app.job(every("1d"), name="large", args={"size": 9}, priority=9, tags=["slow"], queue="night")
        @app.task(priority=2, retry=Retry(7))
        def build(size: int) -> None: ...

        await app.sync_jobs()
        small, large = await self.job(app, "small"), await self.job(app, "large")
        assert (small.task, small.args, small.priority) == ("build", '{"size":1}', 2)
        assert (large.task, large.args, large.priority, large.queue) == ("build", '{"size":9}', 9, "night")
        assert small.options == RunOptions(retry=Retry(7))
        assert large.options == RunOptions(retry=Retry(7), tags=("slow",))
        assert build.job_names == ["large", "small"]

    def test_every_policy_can_be_named(self, app: Mainspring) -> None:
        app.calendar(Calendar("public", (holidays("12-25"),)))

        @app.job(
            every("1h"),
            grace="3s",
            catch_up_window="2d",
            catch_up_limit=5,
            start_deadline="10m",
            jitter=30,
            start_at="2026-01-01T00:00:00Z",
            end_at=datetime(2027, 1, 1, tzinfo=UTC),
            max_firings=3,
            calendars=["public"],
            on_excluded="next_day",
            keep_succeeded=0,
            keep_failed=9,
            regions=["eu", "us"],
            completions=4,
            parallelism=2,
            misfire="all",
            overlap="replace",
            key="k",
            limit=6,
            max_losses=0,
            on_key_failure="stop",
        )
        def everything() -> None: ...

        (job,) = app.declared_jobs(0)
        policy = job.policy
        assert (policy.grace, policy.catch_up_window, policy.catch_up_limit) == (3 * SECOND, 2 * DAY, 5)
        assert (policy.start_deadline, policy.jitter, policy.max_firings) == (10 * MINUTE, 30 * SECOND, 3)
        assert policy.start_at is not None
        assert policy.end_at == policy.start_at + 365 * DAY
        assert (policy.calendars, policy.on_excluded) == (("public",), "next_day")
        assert (policy.keep_succeeded, policy.keep_failed) == (0, 9)
        assert (policy.regions, policy.completions, policy.parallelism) == (("eu", "us"), 4, 2)
        assert (policy.misfire, policy.overlap, job.key, job.limit) == ("all", "replace", "k", 6)
        assert (job.options.max_losses, job.options.on_key_failure) == (0, "stop")

    @pytest.mark.parametrize(
        ("field", "value", "remedy"),
        [
            ("overlap", "sometimes", "allow, forbid, queue, replace"),
            ("misfire", "never", "skip, once, all"),
            ("on_excluded", "cry", "skip, next_day"),
            ("completions", 0, "from 1 up"),
            ("keep_failed", -1, "from 0 up"),
            ("regions", [], "at least one"),
            ("grace", "a while", "write it like"),
            ("start_at", "tomorrow", "write it like"),
            ("overlapp", "forbid", "did you mean overlap"),
        ],
    )
    def test_a_wrong_policy_is_refused_by_name_with_what_is_allowed(
        self, app: Mainspring, field: str, value: object, remedy: str
    ) -> None:
        words: Any = {field: value}
        with pytest.raises(InvalidInput, match=remedy) as refusal:
            app.job(every("1h"), **words)
        assert refusal.value.field == field

    def test_a_job_that_ends_before_it_starts_is_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidInput, match="end_at"):
            app.job(every("1h"), start_at="2026-01-02T00:00:00Z", end_at="2026-01-01T00:00:00Z")

    def test_what_is_not_a_trigger_is_refused(self, app: Mainspring) -> None:
        trigger: Any = "0 2 * * *"
        with pytest.raises(InvalidInput, match=r"write cron\("):
            app.job(trigger)

    def test_arguments_that_do_not_fit_are_refused_where_they_are_declared(self, app: Mainspring) -> None:
        def build(size: int) -> None: ...

        for args, field in ((None, "size"), ({"size": 1, "colour": 2}, "colour"), ({"size": object()}, "size")):
            with pytest.raises(InvalidInput) as refusal:
                app.job(every("1h"), args=args, name=f"{field} {args}")(app.tasks.get("build") or build)
            assert refusal.value.field == field
        assert app.declared_jobs(0) == []

    def test_their_types_are_refused_once_all_types_are_known(self, app: Mainspring) -> None:
        @app.job(every("1h"), args={"size": "large"})
        def build(size: int) -> None: ...

        with pytest.raises(InvalidInput, match="size: 'large'"):
            app.declared_jobs(0)

    def test_two_jobs_of_one_name_are_refused_with_both_places(self, app: Mainspring) -> None:
        @app.job(every("1h"))
        @app.task
        def send() -> None: ...

        with pytest.raises(
            InvalidInput, match=r"'send' names two jobs: .*test_sdk_jobs\.py:\d+ and .*test_sdk_jobs\.py"
        ):
            app.job(every("1h"))(send)

    def test_a_limit_belongs_to_the_task(self, app: Mainspring) -> None:
        task = app.task(name="send")(lambda: None)
        with pytest.raises(InvalidInput, match=r"put it into @app\.task"):
            app.job(every("1h"), limit=3)(task)

    async def test_a_job_can_follow_what_a_decorator_returned(self, app: Mainspring) -> None:
        @app.job(every("1h"), name="nightly-import")
        def load() -> None: ...

        @app.job(after(load))
        def report() -> None: ...

        assert set((await app.sync_jobs()).created) == {"nightly-import", "report"}
        with pytest.raises(InvalidInput, match="'idle' has no jobs"):
            after(app.task(name="idle")(lambda: None))

    async def test_a_declared_calendar_is_stored_before_the_jobs_that_obey_it(self, app: Mainspring) -> None:
        closed = app.calendar(Calendar("closed", (holidays("12-25"),)))
        app.job(cron("0 9 * * *"), calendars=[closed])(app.task(name="open_shop")(lambda: None))
        await app.sync_jobs()
        assert await (await app.open()).list_calendars("default") == {"closed": closed}
        with pytest.raises(InvalidInput, match="another calendar"):
            app.calendar(Calendar("closed", (holidays("12-26"),)))

    async def test_a_job_can_be_added_while_the_program_runs(self, app: Mainspring) -> None:
        @app.task(priority=4)
        def build(size: int) -> None: ...

        job = await app.jobs.add("hourly", every("1h"), task=build, args={"size": 3}, overlap="forbid")
        assert (job.task, job.args, job.priority, job.policy["overlap"]) == ("build", {"size": 3}, 4, "forbid")
        assert (job.origin, job.app) == ("call", app.name)
        with pytest.raises(Conflict):
            await app.jobs.add("hourly", every("1h"), task="build", args={"size": 3})
        other = await app.jobs.add("hourly", every("2h"), task="build", args={"size": 4}, replace=True)
        assert (other.job_id, other.version, other.schedule) == (job.job_id, 2, "every 2h")
        assert (other.args, other.policy["overlap"]) == ({"size": 4}, "allow")
        with pytest.raises(InvalidInput, match="size"):
            await app.jobs.add("daily", every("1d"), task="build")
        with pytest.raises(InvalidInput, match="not in the future"):
            await app.jobs.add("once", at("2020-01-01T00:00:00Z"), task=build, args={"size": 3})

    async def test_a_job_can_be_triggered_paused_and_resumed(self, app: Mainspring) -> None:
        app.job(every("1h"), name="hourly")(app.task(name="tick")(lambda: None))
        await app.sync_jobs()
        first = await app.jobs.trigger("hourly", request_id="click")
        assert (await app.jobs.trigger("hourly", request_id="click")).run_id == first.run_id
        assert (await app.jobs.trigger("hourly")).run_id != first.run_id
        (paused,) = await app.jobs.pause("hourly", reason="audit")
        assert (paused.paused_why, paused.paused_at is None) == ("audit", False)
        (resumed,) = await app.jobs.resume("hourly")
        assert resumed.paused_at is None
        with pytest.raises(NotFound):
            await app.jobs.pause("hourly", "daily")
        assert (await self.job(app, "hourly")).paused_at is None


def test_the_body_of_a_job_that_was_made_by_name_says_only_what_was_said() -> None:
    """What is left is filled in from the declaration of its task, also after an edit."""
    made = Job("1", "a", "encode", EveryTrigger(HOUR), options=RunOptions(timeout=MINUTE, said=("timeout",)))
    assert body_of(made) == {"name": "a", "task": "encode", "args": {}, "timeout": "1m", "every": "1h"}
    assert "said" not in body_of(msgspec.structs.replace(made, options=RunOptions(unfit_since=1)))
