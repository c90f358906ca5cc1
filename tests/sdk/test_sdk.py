"""Submitting on a real SQLite store: options, handles, waiting, trying again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

import mainspring
from mainspring import Mainspring, Retry, manual
from mainspring.core.instants import HOUR, MINUTE, to_datetime
from mainspring.core.model import Run, RunOptions
from mainspring.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    RunFailed,
    WaitTimeout,
)
from mainspring.sdk.task import Task
from mainspring.store import RunFilter
from sdk_work import claim, stored, work


@pytest.fixture
async def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Mainspring]:
    monkeypatch.chdir(tmp_path)
    async with Mainspring(f"sqlite:///{tmp_path}/store.db", durable=False) as app:
        yield app


def options_of(run: Run) -> RunOptions:
    return msgspec.json.decode(run.options, type=RunOptions)


class TestSubmission:
    @pytest.fixture
    def encode(self, app: Mainspring) -> Task[..., str]:
        @app.task(priority=2, queue="films", timeout="10m", tags=["film"])
        def encode(video: str) -> str:
            return video.upper()

        return encode

    async def test_a_run_has_the_options_of_its_task(self, app: Mainspring, encode: Task[..., str]) -> None:
        run = await stored(app, await encode.submit(video="v1"))
        assert (run.task, run.state, run.priority, run.queue, run.region) == (
            "encode",
            "pending",
            2,
            "films",
            "default",
        )
        assert (run.namespace, run.key, run.expires_at, run.due_at) == ("default", None, None, run.created_at)
        assert options_of(run) == encode.defaults.options

    async def test_a_submission_overrides_what_it_names_and_nothing_else(
        self, app: Mainspring, encode: Task[..., str]
    ) -> None:
        bound = encode.options(
            priority=1, delay="5m", retry=Retry(0), key="v1", region="eu", expires=timedelta(hours=1)
        )
        run = await stored(app, await bound.submit("v1"))
        assert (run.priority, run.queue, run.key, run.region) == (1, "films", "v1", "eu")
        assert (run.due_at, run.expires_at) == (run.created_at + 5 * MINUTE, run.due_at + HOUR)
        assert options_of(run) == RunOptions(timeout=10 * MINUTE, retry=Retry(0), tags=("film",))
        assert (await stored(app, await encode.submit("v1"))).priority == 2

    async def test_a_run_can_be_due_at_an_instant(self, app: Mainspring, encode: Task[..., str]) -> None:
        with pytest.raises(InvalidInput, match=r"at: .* is not in the future"):
            await encode.options(at="0002-01-01T00:00:00Z").submit("v1")
        with pytest.raises(InvalidInput, match=r"at: .* is not in the future"):
            await encode.options(at="2020-01-01T00:00:00Z").submit_many([{"video": "v1"}])
        run = await stored(app, await encode.options(at="2099-01-01T00:00:00Z").submit("v1"))
        assert to_datetime(run.due_at) == datetime(2099, 1, 1, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("words", "field"),
        [
            ({"delay": "5m", "at": "2099-01-01T00:00:00Z"}, "at"),
            ({"at": datetime(2099, 1, 1)}, "at"),
            ({"when": "any_finished"}, "when"),
            ({"on_failure": "run"}, "on_failure"),
            ({"after": ["x"], "when": "never"}, "when"),
            ({"after": "x"}, "after"),
            ({"key": ""}, "key"),
            ({"expires": "0s"}, "expires"),
            ({"video": "v1"}, "video"),
        ],
    )
    def test_a_wrong_option_is_refused_by_name(self, encode: Task[..., str], words: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInput) as refusal:
            encode.options(**words)
        assert refusal.value.field == field

    async def test_joining_a_transaction_needs_postgresql(self, encode: Task[..., str]) -> None:
        with pytest.raises(InvalidInput, match="PostgreSQL") as refusal:
            await encode.options(connection=object()).submit("v1")
        assert refusal.value.field == "connection"

    async def test_many_are_submitted_in_order_in_one_transaction(
        self, app: Mainspring, encode: Task[..., str]
    ) -> None:
        handles = await encode.submit_many({"video": f"v{number}"} for number in range(1_000))
        runs = await (await app.open()).list_runs(RunFilter(limit=2_000))
        assert [run.id for run in reversed(runs)] == [handle.id for handle in handles]
        assert [run.args for run in reversed(runs)] == [f'{{"video":"v{number}"}}' for number in range(1_000)]
        assert await encode.submit_many([]) == []

    async def test_the_same_idempotency_key_is_the_same_run(self, encode: Task[..., str]) -> None:
        once = encode.options(idempotency_key="upload-1")
        assert (await once.submit("v1")).id == (await once.submit(video="v1")).id
        with pytest.raises(Conflict, match="upload-1"):
            await once.submit("v2")
        with pytest.raises(InvalidInput, match="2 runs at once"):
            await once.submit_many([{"video": "v1"}, {"video": "v1"}])

    async def test_runs_of_one_key_follow_each_other(self, app: Mainspring, encode: Task[..., str]) -> None:
        runs = [await encode.options(key="v1", queue="default").submit(f"part {number}") for number in range(3)]
        assert [(await stored(app, run)).state for run in runs] == ["pending", "blocked", "blocked"]
        assert [await work(app), (await stored(app, runs[1])).state] == [1, "pending"]

    async def test_a_task_with_a_limit_has_no_more_runs_at_once(self, app: Mainspring) -> None:
        @app.task(limit=2)
        def heavy() -> None: ...

        await heavy.submit_many([{}] * 5)
        assert len(await claim(app)) == 2

    async def test_a_run_waits_for_the_runs_it_is_after(self, app: Mainspring) -> None:
        @app.task
        def step(fails: bool = False) -> None:
            assert not fails

        first, second = await step.submit(), await step.submit(fails=True)
        third = await step.options(after=[first, second.id]).submit()
        fourth = await step.options(after=[second], on_failure="run").submit()
        assert (await stored(app, third)).state == "blocked"
        await work(app)
        assert (await stored(app, third)).state == "skipped"
        assert (await stored(app, fourth)).state == "pending"

    async def test_a_task_can_be_submitted_by_its_name(self, app: Mainspring, encode: Task[..., str]) -> None:
        run = await stored(app, await app.submit("encode", {"video": "v1"}, priority=1))
        assert (run.task, run.priority, run.queue, run.args) == ("encode", 1, "films", '{"video":"v1"}')
        with pytest.raises(InvalidInput, match="video"):
            await app.submit(encode, {})

    async def test_a_name_that_another_program_knows_takes_any_arguments(self, app: Mainspring) -> None:
        run = await stored(app, await app.submit("thumbnail", {"self": 1, "of": ["v1"]}))
        assert (run.task, run.args) == ("thumbnail", '{"self":1,"of":["v1"]}')
        wrong: Any
        for wrong in ([], ["v1"], {1: "v1"}):
            with pytest.raises(InvalidInput, match="args"):
                await app.submit("thumbnail", wrong)

    async def test_a_task_of_another_app_is_not_taken_for_ones_own(
        self, app: Mainspring, encode: Task[..., str]
    ) -> None:
        other = Mainspring(name="other")
        with pytest.raises(InvalidInput, match="belongs to app 'default'"):
            await other.submit(encode, {"video": "v1"})


class TestHandles:
    @pytest.fixture
    def halve(self, app: Mainspring) -> Task[..., int]:
        @app.task
        def halve(number: int) -> int:
            if number % 2:
                raise ValueError(f"{number} is odd")
            return number // 2

        return halve

    async def test_the_result_is_what_the_function_returned(self, app: Mainspring, halve: Task[..., int]) -> None:
        handle = await halve.submit(8)
        waiting = asyncio.create_task(handle.result(timeout=10))
        await work(app)
        assert await waiting == 4
        assert await handle.result() == 4

    async def test_a_failed_run_raises_its_state_and_reason(self, app: Mainspring, halve: Task[..., int]) -> None:
        handle = await halve.submit(7)
        await work(app)
        with pytest.raises(RunFailed, match="7 is odd") as failure:
            await handle.result(timeout="10s")
        assert (failure.value.run_id, failure.value.state) == (handle.id, "failed")
        assert (await handle.wait()).state == "failed"

    async def test_a_wait_ends_with_its_timeout_and_the_run_goes_on(
        self, app: Mainspring, halve: Task[..., int]
    ) -> None:
        handle = await halve.submit(8)
        with pytest.raises(WaitTimeout, match=r"has not ended within 0\.01 s"):
            await handle.result(timeout="10ms")
        await work(app)
        assert await handle.result(timeout=0) == 4

    async def test_one_read_serves_all_waiting_handles(
        self, app: Mainspring, halve: Task[..., int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handles = await halve.submit_many([{"number": 2 * number} for number in range(100)])
        looks = 0
        store = await app.open()
        look = store.finished

        async def counted(run_ids: Any) -> list[Run]:
            nonlocal looks
            looks += 1
            return await look(run_ids)

        monkeypatch.setattr(store, "finished", counted)
        results = asyncio.gather(*(handle.result(timeout=30) for handle in handles))
        await work(app)
        assert await results == list(range(100))
        assert looks < 50

    async def test_several_may_wait_for_one_run_and_one_may_give_up(
        self, app: Mainspring, halve: Task[..., int]
    ) -> None:
        handle = await halve.submit(8)
        waits = [asyncio.create_task(handle.result()) for _ in range(3)]
        await asyncio.sleep(0)
        waits[0].cancel()
        await work(app)
        async with asyncio.timeout(10):
            assert await asyncio.gather(*waits[1:]) == [4, 4]
        assert waits[0].cancelled()

    async def test_a_waiting_run_can_be_cancelled_and_an_ended_one_cannot(
        self, app: Mainspring, halve: Task[..., int]
    ) -> None:
        handle = await halve.submit(8)
        assert await handle.cancel("a mistake") == "cancelled"
        assert (await handle.status()).reason == "a mistake"
        with pytest.raises(RunFailed, match="cancelled: a mistake"):
            await handle.result()
        with pytest.raises(Conflict):
            await app.runs.cancel(handle.id)

    async def test_a_canceller_without_a_reason_is_named(self, app: Mainspring, halve: Task[..., int]) -> None:
        handle = await halve.submit(8)
        await app.runs.cancel(handle.id)
        assert (await handle.status()).reason == "cancelled by app default"

    async def test_a_run_that_is_not_there_is_not_found(self, app: Mainspring) -> None:
        with pytest.raises(NotFound):
            await app.runs.get("01hzzzzzzzzzzzzzzzzzzzzzzz")
        with pytest.raises(NotFound):
            await app.runs.handle("01hzzzzzzzzzzzzzzzzzzzzzzz").wait()

    async def test_a_handle_by_id_has_the_type_of_its_task(self, app: Mainspring) -> None:
        @app.task
        def moment() -> datetime:
            return datetime(2026, 3, 1, tzinfo=UTC)

        run_id = (await moment.submit()).id
        await work(app)
        assert await app.runs.handle(run_id, moment).result(10) == datetime(2026, 3, 1, tzinfo=UTC)
        assert await app.runs.handle(run_id).result(10) == "2026-03-01T00:00:00Z"
        run = await app.runs.handle(run_id).wait(10)
        assert (type(run), run.run_id, run.result) == (mainspring.Run, run_id, "2026-03-01T00:00:00Z")
        assert run.finished_at is not None
        assert run.finished_at.tzinfo is UTC


class TestRetry:
    async def test_a_failed_run_is_repeated_as_a_new_one(self, app: Mainspring) -> None:
        healthy = False

        @app.task(limit=4)
        def upload(video: str) -> str:
            assert healthy, "no network"
            return video

        failed = await upload.options(priority=3, key="v1", region="default", tags=["x"]).submit("v1")
        await work(app)
        healthy = True
        again = app.runs.handle((await app.runs.retry(failed.id)).run_id, upload)
        old, new = await stored(app, failed), await stored(app, again)
        for field in ("task", "args", "options", "priority", "queue", "region", "key", "job", "fire_at", "namespace"):
            assert getattr(new, field) == getattr(old, field), field
        assert (new.retry_of, new.state, new.attempt) == (failed.id, "pending", 0)
        await work(app)
        assert await again.result(timeout=10) == "v1"

    async def test_a_repetition_is_bound_by_the_limit_of_its_task(self, app: Mainspring) -> None:
        @app.task(limit=1)
        def upload() -> None:
            raise ConnectionError

        failed = await upload.submit_many([{}, {}])
        while await work(app):
            pass
        for run in failed:
            await app.runs.retry(run.id)
        assert len(await claim(app)) == 1

    async def test_only_what_has_ended_without_success_is_repeated(self, app: Mainspring) -> None:
        @app.task
        def nothing() -> None: ...

        handle = await nothing.submit()
        with pytest.raises(Conflict, match="is pending"):
            await app.runs.retry(handle.id)
        await work(app)
        with pytest.raises(Conflict, match="has succeeded"):
            await app.runs.retry(handle.id)

    async def test_the_run_of_a_firing_keeps_its_place_in_the_job(self, app: Mainspring) -> None:
        @app.job(manual(), overlap="queue")
        def close_books() -> None:
            raise ValueError("unbalanced")

        await app.sync_jobs()
        firing = await app.jobs.trigger("close_books")
        assert firing.run_id is not None
        await work(app)
        again = await app.runs.retry(firing.run_id)
        old, new = await app.runs.get(firing.run_id), await app.runs.get(again.run_id)
        assert (new.job, new.job_id, new.fire_at) == ("close_books", old.job_id, old.fire_at)
        await app.jobs.trigger("close_books")
        assert len(await claim(app)) == 1, "the next firing waits in line behind the repetition"
