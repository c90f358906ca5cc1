"""`mainspring.Client` against a real server: what it asks and gets, what it refuses, lists, streams, waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from door import Door, until

from mainspring import Client, Mainspring, Retry, cron, every, manual
from mainspring.calendars import Calendar, weekends
from mainspring.conformance.store.samples import a_worker, failure, success
from mainspring.core.instants import MINUTE
from mainspring.core.model import Claim, LogLine, Report
from mainspring.errors import (
    Conflict,
    InvalidFields,
    InvalidInput,
    MainspringError,
    NotAllowed,
    NotFound,
    RunFailed,
    WaitTimeout,
)
from mainspring.store import Store


@pytest.fixture
async def client(door: Door) -> AsyncIterator[Client]:
    async with Client(door.url, door.token("admin")) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses: the server is shared."""
    return str(request.node.name)


async def execute(door: Door, task: str, report: Any = success, lines: tuple[str, ...] = ()) -> None:
    """What a worker does with one run of a task."""
    store: Store = await door.app.open()
    (claim,) = await store.claim(a_worker("w1", tasks=(task,)), 1, MINUTE, "strict")
    await store.record([LogLine(claim.run_id, 1, store.now(), "stdout", text) for text in lines], [])
    await store.report([report(claim)])


def the_answer(claim: Claim) -> Report:
    return success(claim, "42")


class TestJobs:
    async def test_a_job_is_created_with_the_words_of_the_app(self, client: Client, name: str) -> None:
        words: Any = {"retry": Retry(2, delay="1s"), "timeout": timedelta(minutes=5), "overlap": "queue", "tags": ["x"]}
        job = await client.jobs.add(name, cron("0 2 * * *", tz="Europe/Berlin"), task="t", args={"n": 1}, **words)
        assert (job.name, job.args, job.retries, job.timeout, job.tags) == (name, {"n": 1}, 2, "5m", ["x"])
        assert (job.schedule, job.policy["overlap"]) == ("cron 0 2 * * * in Europe/Berlin", "queue")
        assert job.next_run is not None
        assert job.next_run > datetime.now(UTC)
        assert (await client.jobs.get(job.job_id)).name == name
        assert len(await client.jobs.next(name, 5)) == 5

    @pytest.mark.parametrize("odd", ["team/report", "..", "a?b#c%20&d", "größe", "./x/", "a:b"])
    async def test_any_name_will_do(self, client: Client, odd: str) -> None:
        job = await client.jobs.add(odd, manual(), task="t")
        assert (await client.jobs.get(odd)).job_id == job.job_id
        assert (await client.jobs.edit(odd, priority=1)).priority == 1
        assert [firing async for firing in client.jobs.firings(odd)] == []
        await client.jobs.remove(odd)
        with pytest.raises(NotFound, match="there is no job"):
            await client.jobs.get(odd)

    async def test_what_is_wrong_is_known_before_anything_is_sent(self, client: Client, name: str) -> None:
        with pytest.raises(InvalidInput, match="priority: 11 is not a priority"):
            await client.jobs.add(name, manual(), task="t", priority=11)
        with pytest.raises(NotFound, match="there is no job"):
            await client.jobs.get(name)

    async def test_an_edit_of_an_old_version_is_refused(self, client: Client, name: str) -> None:
        job = await client.jobs.add(name, every("1h"), task="t", timeout="1m", retry=Retry(1, delay="5s"))
        edited = await client.jobs.edit(name, priority=1, retries=7, clear=["timeout"], version=job.version)
        assert (edited.priority, edited.retries, edited.timeout, edited.version) == (1, 7, None, 2)
        with pytest.raises(Conflict, match='has version "2", not "1"'):
            await client.jobs.edit(name, priority=2, version=job.version)
        with pytest.raises(Conflict, match="has version"):
            await client.jobs.remove(name, version=job.version)
        await client.jobs.remove(name, version=2, reason="not needed")

    async def test_an_edit_keeps_what_it_does_not_name(self, door: Door, client: Client, name: str) -> None:
        words: Any = {"retry": Retry(1, delay="5s"), "isolation": "limits,memory=1GB,cpu=5s", "alert": "tell"}
        await client.jobs.add(name, cron("0 0 2 * * ?", dialect="quartz"), task="t", **words)
        await client.jobs.edit(name, retries=4)
        store = await door.app.open()
        job = await store.get_job("default", name)
        assert (job.options.retry.retries, job.options.retry.delays) == (4, (5_000_000,))
        assert (str(job.options.isolation), job.options.alert) == ("limits, cpu 5s, memory 1 GB", "tell")
        assert (await client.jobs.edit(name, trigger=cron("0 3 * * *"))).schedule == "cron 0 3 * * * in UTC"

    async def test_jobs_are_paused_resumed_and_triggered(self, client: Client, name: str) -> None:
        await client.jobs.add(name, manual(), task="t")
        (paused,) = await client.jobs.pause(name, reason="audit")
        assert (paused.state, paused.paused_why) == ("paused", "audit")
        assert [job.name async for job in client.jobs.list(state="paused")] == [name]
        await client.jobs.resume(name)
        first, again = await client.jobs.trigger(name, "r1"), await client.jobs.trigger(name, "r1")
        assert first.run_id == again.run_id
        assert [firing.run_id async for firing in client.jobs.firings(name)] == [first.run_id]
        assert [run.run_id async for run in client.jobs.runs(name)] == [first.run_id]
        (listed,) = [job async for job in client.jobs.list(last=True) if job.name == name]
        assert listed.last
        assert listed.last.run_id == first.run_id

    async def test_a_past_interval_is_run_after_all(self, client: Client, name: str) -> None:
        await client.jobs.add(name, cron("0 * * * *"), task=name)
        now = datetime.now(UTC)
        interval = now - timedelta(hours=5), now - timedelta(minutes=1)
        looked = await client.jobs.backfill(name, *interval, dry_run=True)
        assert [run async for run in client.runs.list(task=name)] == []
        filled = await client.jobs.backfill(name, *interval, reason="it was off")
        ids = {run_id for item in filled.items for run_id in item.run_ids}
        assert {run.run_id async for run in client.runs.list(task=name)} == ids
        assert (filled.count, len(ids)) == (looked.count, looked.count)
        assert (await client.jobs.backfill(name, *interval)).count == 0

    async def test_what_an_app_declares_is_stored_whole_and_found_unchanged(self, client: Client, name: str) -> None:
        app = Mainspring(name="declared")
        off = app.calendar(Calendar("off", (weekends(),)))
        words: Any = {"retry": Retry(delays=["1s", "5s"], on=ValueError), "isolation": "process", "calendars": [off]}
        app.job(cron("0 2 * * *"), name=f"{name}-1", start_at="2020-01-01T00:00:00Z", jitter="5s", **words)(print_it)
        app.job(every("90s", anchor="2020-01-01T00:00:00Z"), name=f"{name}-2", args={"text": "x"}, key="k")(
            app.tasks["print_it"]
        )
        both = [f"{name}-1", f"{name}-2"]
        assert (await client.jobs.sync(app)).created == both
        assert (await client.jobs.sync(app)).unchanged == both
        assert (await client.jobs.sync(Mainspring(name="declared"))).undeclared == both
        assert "off" in [calendar.name for calendar in await client.calendars.list()]


async def go_on(client: Client) -> None:
    """Until an assertion fails."""
    while True:
        await client.workers.list()
        await asyncio.sleep(0.05)


def print_it(text: str = "") -> None: ...


class TestRuns:
    async def test_a_run_is_submitted_waited_for_and_gives_its_result(
        self, door: Door, client: Client, name: str
    ) -> None:
        run = await client.runs.submit(name, {"n": 1}, tags=["x"], delay=0)
        waiting = asyncio.create_task(client.runs.result(run.run_id, timeout="20s"))
        await execute(door, name, the_answer)
        assert await waiting == 42
        assert [each.outcome for each in await client.runs.attempts(run.run_id)] == ["succeeded"]

    async def test_a_failure_is_raised_and_can_be_run_again(self, door: Door, client: Client, name: str) -> None:
        run = await client.runs.submit(name, {"n": 1})
        await execute(door, name, lambda claim: failure(claim, "ValueError: no"))
        with pytest.raises(RunFailed, match="ValueError: no"):
            await client.runs.result(run.run_id)
        assert [each.run_id async for each in client.runs.dead_letters(task=name)] == [run.run_id]
        again = await client.runs.retry(run.run_id, "fixed")
        assert (again.retry_of, again.args) == (run.run_id, {"n": 1})
        assert await client.runs.cancel(again.run_id, "enough") == "cancelled"
        with pytest.raises(Conflict, match="nothing to cancel"):
            await client.runs.cancel(again.run_id)
        assert (await client.runs.rerun(run_ids=[run.run_id], dry_run=True)).count == 1

    async def test_patience_ends(self, client: Client, name: str) -> None:
        run = await client.runs.submit(name)
        with pytest.raises(WaitTimeout, match="is still pending after 10ms"):
            await client.runs.wait(run.run_id, "10ms")

    async def test_many_are_all_accepted_or_none(self, client: Client, name: str) -> None:
        ids = await client.runs.submit_many(name, [{"n": n} for n in range(1200)], priority=2, idempotency_key=name)
        assert (
            await client.runs.submit_many(name, [{"n": n} for n in range(1200)], priority=2, idempotency_key=name)
            == ids
        )
        listed = [run async for run in client.runs.list(task=name)]
        assert [run.run_id for run in listed] == sorted(ids, reverse=True)
        assert {run.priority for run in listed} == {2}
        assert len([run async for run in client.runs.list(task=name, limit=1100)]) == 1100
        bad: list[dict[str, object]] = [{"task": name, "priority": 11}, {"task": name, "priority": 0}, {"task": name}]
        with pytest.raises(InvalidFields) as error:
            await client.runs.submit_batch(bad)
        assert [(each.field, each.value) for each in error.value.faults] == [
            ("runs[0].priority", 11), ("runs[1].priority", 0),
        ]  # fmt: skip
        assert len([run async for run in client.runs.list(task=name)]) == 1200
        assert await client.runs.submit_batch([]) == []

    async def test_a_graph_is_accepted_whole_and_cancelled_by_its_tag(self, client: Client, name: str) -> None:
        graph: list[dict[str, object]] = [{"task": name, "args": {"n": n}, "delay": "1h"} for n in range(3)]
        graph.append({"task": name, "after": ["#0", "#1", "#2"], "on_failure": "run", "delay": "1h"})
        batch = await client.runs.submit_graph(graph, idempotency_key=name)
        assert await client.runs.submit_graph(graph, idempotency_key=name) == batch
        assert batch.tag == f"group:{batch.run_ids[0]}"
        assert (await client.runs.get(batch.run_ids[3])).state == "blocked"
        assert (await client.actions.runs("cancel", tag=batch.tag)).done == 4
        ended = [run.state async for run in client.runs.list(tag=str(batch.tag))]
        assert ended == ["cancelled"] * 4

    async def test_runs_are_found_by_a_part_of_their_id(self, client: Client, name: str) -> None:
        run = await client.runs.submit(name)
        assert [each.run_id for each in await client.runs.find(run.run_id[-8:].upper())] == [run.run_id]
        assert await client.runs.find("!") == []

    async def test_what_it_wrote_is_read_and_followed_to_the_end(self, door: Door, client: Client, name: str) -> None:
        run = await client.runs.submit(name)

        async def follow() -> list[str]:
            return [line.text async for line in client.runs.logs(run.run_id, follow=True)]

        following = asyncio.create_task(follow())
        await execute(door, name, lines=("one", "two", "three"))
        assert await asyncio.wait_for(following, 20) == ["one", "two", "three"]
        assert [line.text async for line in client.runs.logs(run.run_id)] == ["one", "two", "three"]
        assert [line.text async for line in client.runs.logs(run.run_id, tail=2)] == ["two", "three"]

    async def test_the_status_of_a_run_is_short(self, door: Door, client: Client, name: str) -> None:
        run = await client.runs.submit(name)
        assert (await client.runs.status(run.run_id)).state == "pending"
        await execute(door, name)
        for fresh in (True, False):
            status = await client.runs.status(run.run_id, fresh=fresh)
            assert (status.run_id, status.task, status.state, status.attempt) == (run.run_id, name, "succeeded", 1)
        with pytest.raises(NotFound):
            await client.runs.status("nobody")

    async def test_a_transaction_of_the_caller_cannot_be_joined(self, client: Client, name: str) -> None:
        with pytest.raises(InvalidInput, match="cannot be joined over HTTP"):
            await client.runs.submit(name, connection=object())


class TestTheRest:
    async def test_workers_calendars_and_readiness(self, door: Door, client: Client) -> None:
        store = await door.app.open()
        await store.register(a_worker("w9"))
        assert (await client.workers.get("w9")).state == "active"
        assert (await client.workers.status("w9", fresh=True)).state == "active"
        assert "w9" in [worker.worker for worker in await client.workers.list()]
        assert (await client.workers.drain("w9")).drain_requested_at is not None
        saved = await client.calendars.save(Calendar("weekends", (weekends(),), "Europe/Berlin"))
        assert (await client.calendars.get("weekends")) == saved
        assert (await client.ready()).status == "ready"

    async def test_only_admins_read_the_audit_trail(self, door: Door, client: Client, name: str) -> None:
        await client.jobs.add(name, manual(), task="t")
        changes = [change async for change in client.audit.list(limit=3)]
        assert (changes[0].action, changes[0].after["name"]) == ("job.create", name)
        async with Client(door.url, door.token("viewer")) as viewer:
            with pytest.raises(NotAllowed, match="audit:read"):
                await anext(viewer.audit.list())

    async def test_a_revoked_token_is_worthless(self, door: Door, client: Client) -> None:
        async with Client(door.url, door.token("viewer", subject="eve")) as eve:
            await eve.workers.list()
            assert await client.tokens.revoke(subject="eve") == ["sub:eve"]
            with pytest.raises(NotAllowed, match="MAINSPRING_TOKEN"):
                await asyncio.wait_for(go_on(eve), 20)

    async def test_a_namespace_is_chosen(self, door: Door, name: str) -> None:
        token = door.token(grants={"default": ["admin"], "staging": ["admin"]})
        async with Client(door.url, token, namespace="staging") as staging, Client(door.url, token) as production:
            await staging.jobs.add(name, manual(), task="t")
            assert (await staging.jobs.get(name)).namespace == "staging"
            with pytest.raises(NotFound):
                await production.jobs.get(name)

    @pytest.mark.parametrize("token", ["two words", "tökén", "line\nbreak"])
    def test_what_cannot_be_a_token_is_refused_unseen(self, door: Door, token: str) -> None:
        with pytest.raises(InvalidInput, match="no token has") as error:
            Client(door.url, token)
        assert token not in str(error.value)


class TestBlocking:
    def test_code_that_cannot_await_uses_sync(self, door: Door, name: str) -> None:
        client = Client(door.url, door.token("admin"))
        with client.sync as sync:
            run = sync(client.runs.submit, name, {"n": 1})
            assert [each.run_id for each in sync(client.runs.list, task=name)] == [run.run_id]
            for _ in sync(client.runs.list):
                break
            with pytest.raises(NotFound):
                sync(client.jobs.get, "nobody")
        until(lambda: "mainspring-sync" not in [thread.name for thread in threading.enumerate()])
        assert client.sync(client.runs.get, run.run_id).task == name
        client.sync.close()

    async def test_on_an_event_loop_it_is_refused(self, client: Client) -> None:
        with pytest.raises(MainspringError, match="await the same method"):
            client.sync(client.ready)
