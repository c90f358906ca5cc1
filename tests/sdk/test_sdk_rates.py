"""`@app.task(rate="…")` and `per`, on both stores: how many runs of a task may start in a time on all workers together,
and how many at once, for each value of an argument."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring, every, manual
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.load.rate_limits import Pace, format_pace, parse_pace
from mainspring.core.tasks.limits import FARTHEST, Turns, share_of
from mainspring.errors import InvalidInput
from store_places import places

BOUND_S = 60
STARTS: list[float] = []


def make_app(url: str) -> Mainspring:
    app = Mainspring(url, name="rated", concurrency=4)

    @app.task(rate="5/2s")
    async def call() -> None:
        STARTS.append(time.monotonic())

    @app.task(rate="1/h")
    async def rare() -> None: ...

    @app.task
    async def free() -> str:
        return "free"

    @app.task(rate="2/h", per="tenant")
    async def mail(tenant: str, text: str = "") -> str:
        return tenant

    return app


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    STARTS.clear()
    with places(request.param, tmp_path) as make:
        yield make()


async def test_two_workers_together_keep_the_rate(url: str) -> None:
    one, other = make_app(url), make_app(url)
    limited = await one.tasks["call"].submit_many([{}] * 12)
    began = time.monotonic()
    async with one.running(), other.running():
        ended = [await run.wait(BOUND_S) for run in limited]
    assert [(run.state, run.attempt) for run in ended] == [("succeeded", 1)] * 12
    assert len(STARTS) == 12
    assert max(STARTS) - began > 2.7, "five at once, and then one every 0.4 s"


async def test_what_has_to_wait_says_why_and_keeps_no_other_task_waiting(url: str) -> None:
    app = make_app(url)
    rare = await app.tasks["rare"].submit_many([{}] * 6)
    async with app.running():
        assert await (await app.tasks["free"].submit()).result(BOUND_S) == "free"
        async with asyncio.timeout(BOUND_S):
            while True:
                runs = [await run.status() for run in rare]
                if sorted(run.state for run in runs) == ["pending"] * 5 + ["succeeded"]:
                    break
                await asyncio.sleep(0.02)
    waiting = [run for run in runs if run.state == "pending"]
    assert any("its task starts 1/1h at most" in run.reason for run in waiting)
    assert all(run.attempt == 0 for run in waiting)


@pytest.mark.parametrize(
    ("written", "pace"),
    [
        ("10/s", Pace(10, SECOND)),
        ("1/m", Pace(1, MINUTE)),
        ("100/2h", Pace(100, 2 * HOUR)),
        (" 3 / 5m", Pace(3, 5 * MINUTE)),
    ],
)
def test_a_rate_is_a_count_in_a_time(written: str, pace: Pace) -> None:
    assert parse_pace(written, "rate") == pace
    assert parse_pace(format_pace(pace), "rate") == pace


@pytest.mark.parametrize("written", ["", "10", "10/", "0/s", "-1/s", "x/s", "1/0s", "1/x", 10])
def test_what_is_no_rate_is_refused(written: object) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        Mainspring().task(rate=written)(lambda: None)  # type: ignore[call-overload]  # What is refused.


def test_a_rate_belongs_to_the_task() -> None:
    app = Mainspring()
    task = app.task(name="t", rate="1/s")(lambda: None)
    with pytest.raises(InvalidInput, match="belongs to the task"):
        app.job(every("1s"), rate="1/s")(task)


async def test_a_rate_per_value_of_an_argument_keeps_no_other_value_waiting(url: str) -> None:
    app = make_app(url)
    mail = app.tasks["mail"]
    many = await mail.submit_many([{"tenant": "acme", "text": str(number)} for number in range(20)])
    async with app.running():
        assert await (await mail.submit(tenant="globex")).result(BOUND_S) == "globex"
        async with asyncio.timeout(BOUND_S):
            while True:
                runs = [await run.status() for run in many]
                if sorted(run.state for run in runs) == ["pending"] * 18 + ["succeeded"] * 2:
                    break
                await asyncio.sleep(0.02)
    waiting = [run for run in runs if run.state == "pending"]
    assert {run.attempt for run in waiting} == {0}
    assert 'its task starts 2/1h at most for tenant="acme"' in {run.reason for run in waiting}


class Crowd:
    """A task that counts how many of its runs run at once, by tenant."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.within: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.together = 0
        self.sync = app.task(limit=2, per="tenant")(self.work)

    async def work(self, tenant: str) -> None:
        self.within[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.within[tenant])
        self.together = max(self.together, self.within.total())
        await asyncio.sleep(0.03)
        self.within[tenant] -= 1


async def test_a_limit_per_value_of_an_argument_is_counted_for_each(url: str) -> None:
    crowd = Crowd(Mainspring(url, name="crowd", concurrency=8))
    other = Mainspring(url, name="other")  # It knows the task by name only, as a caller over HTTP does.
    app = crowd.app
    async with app.running():
        runs = await crowd.sync.submit_many([{"tenant": each} for each in ("acme", "globex") for _ in range(6)])
        calls = [crowd.sync.call(each) for each in ("acme", "globex") for _ in range(3)]
        group = await app.group(*calls).submit()
        named = [await other.submit("work", {"tenant": "acme"}) for _ in range(4)]
        ended = [await run.wait(BOUND_S) for run in (*runs, *group.runs, *named)]
    await other.close()
    assert {run.state for run in ended} == {"succeeded"}
    assert crowd.most == {"acme": 2, "globex": 2}
    assert crowd.together > 2, "tenants do not wait for each other"


async def test_a_job_and_a_repeated_run_count_for_their_value_too(url: str) -> None:
    before = Mainspring(url, name="crowd")  # The task had no limit when it was submitted.
    run = await before.task(name="work")(lambda tenant: None).submit(tenant="globex")
    await run.cancel()
    await before.close()
    crowd = Crowd(Mainspring(url, name="crowd"))
    async with crowd.app as app:
        await app.jobs.add("nightly", manual(), task=crowd.sync, args={"tenant": "acme"})
        await app.jobs.trigger("nightly")
        await app.runs.retry(run.id)
        store = await app.open()
        gates = {gate.name for gate in await store.list_gates("default", 10)}
    assert gates == {'task:work:tenant="acme"', 'task:work:tenant="globex"'}


def test_what_per_cannot_mean_is_refused_where_it_is_written() -> None:
    app = Mainspring()

    def work(tenant: str) -> None: ...

    for words, problem in (
        ({"limit": 2, "per": "customer"}, "is not an argument"),
        ({"per": "tenant"}, "has nothing to count"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            app.task(**words)(work)
    assert not app.tasks


def test_runs_that_wait_for_a_rate_take_turns() -> None:
    turns, rate = Turns(), Pace(1, MINUTE)
    waits = [turns.take("acme", 20 * SECOND, rate, 0) for _ in range(4)]
    assert waits == [20 * SECOND, 80 * SECOND, 140 * SECOND, 200 * SECOND]
    assert turns.take("globex", SECOND, rate, 0) == SECOND
    assert max(turns.take("acme", 20 * SECOND, rate, 0) for _ in range(100)) == FARTHEST
    assert turns.take("acme", SECOND, rate, HOUR) == SECOND, "turns that have passed are over"


def test_a_long_value_stands_by_its_digest() -> None:
    assert share_of("tenant", '{"tenant":"acme","n":1}') == ':tenant="acme"'
    assert share_of("tenant", '{"n":1}') == ":tenant="
    assert len(share_of("tenant", '{"tenant":"%s"}' % ("x" * 5_000))) < 100
