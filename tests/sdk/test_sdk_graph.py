"""Graphs of runs, on both stores: chains, groups, fan-in, maps, results of upstream runs, cancellation of a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, Retry, after, current_run, every, manual
from mainspring.errors import Conflict, InvalidInput, RunFailed, WaitTimeout
from mainspring.sdk.graph import Graph
from mainspring.sdk.task import AsyncTask
from store_places import places

BOUND_S = 60


@dataclass
class Part:
    number: int
    text: str


class Work:
    """The tasks of an app, and what they saw."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.within = self.most = 0
        self.go = asyncio.Event()
        self.seen: list[str] = []
        app.task(retry=Retry(0))(self.merge_plainly)
        self.cut_up = app.task(self.cut)
        self.merge_all = app.task(self.merge)
        self.count_all = app.task(self.count)
        self.wait_all = app.task(self.wait)
        self.fail_all = app.task(retry=Retry(0))(self.fail)

    async def cut(self, number: int) -> Part:
        self.within += 1
        self.most = max(self.most, self.within)
        await asyncio.sleep(0.01)
        self.within -= 1
        return Part(number, f"part {number}")

    async def merge(self, title: str) -> str:
        parts = await self.app.upstream(self.cut_up)
        return f"{title}: {', '.join(part.text for part in parts)}"

    def merge_plainly(self) -> list[object]:
        """In a thread."""
        return self.app.sync(self.app.upstream)

    async def count(self) -> list[str]:
        return [f"{run.task} {run.state}" for run in await self.app.runs.upstream()]

    async def wait(self) -> None:
        self.seen.append(current_run().id)
        await self.go.wait()

    async def fail(self) -> None:
        raise ValueError("it does not work")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with places(request.param, tmp_path) as make:
        yield make()


@pytest.fixture
async def work(url: str) -> AsyncIterator[Work]:
    async with Mainspring(url, name="graphs", concurrency=8) as app:
        yield Work(app)


async def test_what_follows_a_group_has_its_results_with_their_type(work: Work) -> None:
    graph = work.app.group(*(work.cut_up.call(number) for number in range(3))).then(work.merge_all.call("film"))
    async with work.app.running():
        group = await graph.submit()
        assert await group.results(BOUND_S) == ["film: part 0, part 1, part 2"]
        assert [run.state for run in await group.wait(BOUND_S)] == ["succeeded"] * 4
        listed = [run.run_id async for run in work.app.runs.list(tag=group.tag)]
    assert listed == [run.id for run in reversed(group.runs)]


async def test_a_plain_function_has_them_too(work: Work) -> None:
    merge = work.app.tasks["merge_plainly"]
    async with work.app.running():
        group = await work.app.chain(work.cut_up.call(7), merge.call()).submit()
        assert await group.results(BOUND_S) == [[{"number": 7, "text": "part 7"}]]


async def test_a_run_that_was_submitted_after_others_has_their_results(work: Work) -> None:
    first, second = await work.cut_up.submit(1), await work.cut_up.submit(2)
    async with work.app.running():
        merged = await work.merge_all.options(after=[second, first]).submit("by hand")
        assert await merged.result(BOUND_S) == "by hand: part 2, part 1"


async def test_the_runs_of_jobs_that_follow_others_have_their_results(work: Work) -> None:
    app, seen = work.app, list[list[str]]()
    ledger: dict[str, list[str]] = {}

    async def note() -> None:
        seen.append([part.text for part in await app.upstream(work.cut_up)])
        ledger[current_run().job or ""] = [str(run.job) for run in await app.runs.upstream()]

    noting = app.task(note)
    await app.jobs.add("left", manual(), task=work.cut_up, args={"number": 1}, completions=2)
    await app.jobs.add("right", manual(), task=work.cut_up, args={"number": 2})
    await app.jobs.add("both", after("right", "left"), task=noting)
    async with app.running():
        for name in ("left", "right"):
            await app.jobs.trigger(name)
        async with asyncio.timeout(BOUND_S):
            while "both" not in ledger:
                await asyncio.sleep(0.01)
        await app.jobs.add("timed", every("1s"), task=noting, dependencies=["left"])
        async with asyncio.timeout(BOUND_S):
            while "timed" not in ledger:
                await asyncio.sleep(0.01)
    assert ledger == {"both": ["right", "left", "left"], "timed": ["left", "left"]}
    assert seen[:2] == [["part 2", "part 1", "part 1"], ["part 1", "part 1"]]


async def test_a_retry_by_hand_stands_for_the_run_that_failed(work: Work) -> None:
    app, seen, good = work.app, list[list[str]](), asyncio.Event()

    async def flaky() -> str:
        if not good.is_set():
            raise ValueError("not yet")
        return "at last"

    async def note() -> None:
        seen.append(await app.upstream())

    await app.jobs.add("flaky", manual(), task=app.task(retry=Retry(0))(flaky))
    await app.jobs.add("then", after("flaky"), task=app.task(note))
    async with app.running():
        failed = (await app.jobs.trigger("flaky")).run_id or ""
        assert (await app.runs.handle(failed).wait(BOUND_S)).state == "failed"
        good.set()
        await app.runs.retry(failed)
        async with asyncio.timeout(BOUND_S):
            while not seen:
                await asyncio.sleep(0.01)
    assert seen == [["at last"]]


async def test_a_chain_goes_on_only_after_success(work: Work) -> None:
    graph = work.app.chain(work.cut_up.call(1), work.fail_all.call(), work.count_all.call())
    async with work.app.running():
        group = await graph.submit()
        states = [run.state for run in await group.wait(BOUND_S)]
        assert states == ["succeeded", "failed", "skipped"]
        with pytest.raises(RunFailed):
            await group.results(BOUND_S)


async def test_what_runs_all_the_same_sees_what_failed_and_has_no_results(work: Work) -> None:
    both = work.app.group(work.cut_up.call(1), work.fail_all.call())
    async with work.app.running():
        group = await both.then(work.count_all.call(), on_failure="run").submit()
        assert await group.results(BOUND_S) == [["cut succeeded", "fail failed"]]
        merging = await both.then(work.app.tasks["merge_plainly"].call(), on_failure="run").submit()
        (run,) = [each for each in await merging.wait(BOUND_S) if each.task == "merge_plainly"]
    assert (run.state, "RunFailed" in str(run.error)) == ("failed", True)


async def test_a_diamond_of_graphs_runs_in_order(work: Work) -> None:
    app, cut, count = work.app, work.cut_up, work.count_all
    left, right = app.chain(cut.call(1), cut.call(2)), app.chain(cut.call(3), cut.call(4))
    graph: Graph[list[str]] = app.chain(cut.call(0), app.group(left, right), count.call())
    assert [step.after for step in graph.steps] == [(), (0,), (1,), (0,), (3,), (2, 4)]
    async with app.running():
        group = await graph.submit()
        ended = await group.wait(BOUND_S)
    started = [run.started_at for run in ended if run.started_at is not None]
    assert (len(started), started[-1]) == (6, max(started))
    assert ended[-1].result == ["cut succeeded", "cut succeeded"]


async def test_a_map_keeps_its_limit(work: Work) -> None:
    async with work.app.running():
        group = await work.cut_up.map(({"number": number} for number in range(12)), limit=2).submit()
        assert [part.number for part in await group.results(BOUND_S)] == list(range(12))
    assert work.most == 2


async def test_a_group_is_cancelled_as_one(work: Work) -> None:
    graph = work.app.group(work.wait_all.call(), work.cut_up.options(delay="1h").call(1)).then(work.count_all.call())
    async with work.app.running():
        group, other = await graph.submit(), await work.cut_up.options(delay="1h").submit(2)
        async with asyncio.timeout(BOUND_S):
            while not work.seen:
                await asyncio.sleep(0.01)
        with pytest.raises(WaitTimeout):
            await group.results("10ms")
        assert await group.cancel("not needed") == 3
        assert [run.state for run in await group.wait(BOUND_S)] == ["cancelled"] * 3
        assert await group.cancel() == 0
        assert (await other.status()).state == "pending"


async def test_a_graph_is_stored_whole_or_not_at_all(work: Work) -> None:
    text: Any = "x"
    with pytest.raises(InvalidInput, match="number"):
        work.app.group(work.cut_up.call(1), work.cut_up.call(text))
    graph = work.app.group(work.cut_up.call(1), work.cut_up.options(after=["nothing"]).call(2))
    with pytest.raises(InvalidInput, match="after"):
        await graph.submit()
    assert [run async for run in work.app.runs.list()] == []
    assert (await work.app.group().submit()).runs == []


async def test_what_cannot_be_part_of_a_graph_is_refused(work: Work, tmp_path: Path) -> None:
    other = Mainspring(f"sqlite:///{tmp_path}/other.db", name="other").task(name="t")(lambda: None)
    cut: AsyncTask[[int], Part] = work.cut_up
    task: Any = cut  # It has to be called first, which types would say.
    with pytest.raises(InvalidInput, match="belongs to app 'other'"):
        work.app.group(cut.call(1)).then(other.call())
    with pytest.raises(InvalidInput, match="idempotency_key"):
        cut.options(idempotency_key="k").call(1)
    with pytest.raises(InvalidInput, match="unique"):
        cut.options(unique="k").call(1)
    with pytest.raises(InvalidInput, match="limit"):
        cut.map([{"number": 1}], limit=0)
    with pytest.raises(InvalidInput, match="neither a call nor a graph"):
        work.app.chain(cut.call(1), task)
    with pytest.raises(InvalidInput, match="selects every run"):
        await work.app.runs.cancel_all()


async def test_a_submission_joins_the_run_that_waits_under_its_unique_key(work: Work) -> None:
    cut = work.cut_up.options(unique="film", delay="1h")
    first = await cut.submit(1)
    assert (await cut.submit(1)).id == first.id
    assert (await work.app.runs.submit("cut", {"number": 1}, unique="film")).run_id == first.id
    assert (await work.app.runs.submit("count", {}, unique="film")).run_id != first.id
    with pytest.raises(Conflict, match=f"run {first.id} of task cut waits under the unique key 'film'"):
        await cut.submit(2)
    await first.cancel()
    second = await cut.submit(2)
    assert second.id != first.id
    with pytest.raises(InvalidInput, match="would stand for 2 runs at once"):
        await cut.submit_many([{"number": 1}, {"number": 2}])
    with pytest.raises(InvalidInput, match="is given together with idempotency_key"):
        work.cut_up.options(unique="film", idempotency_key="k")
