"""Hooks and lifespans: in the worker, in threads, and in the processes of its pool."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, Retry, current_run
from mainspring.errors import InvalidInput, MainspringError
from mainspring.executor import RunContext
from mainspring.operations.records import Event
from mainspring.sdk.hooks import MOST_CONTEXT_BYTES, Submission
from mainspring.testing import ManualScheduler

BOUND_S = 30
TRACE: ContextVar[str] = ContextVar("trace", default="none")


@pytest.fixture
def app(tmp_path: Path) -> Mainspring:
    return Mainspring(f"sqlite:///{tmp_path}/store.db", name="hooked", durable=False)


async def test_context_travels_from_submission_to_every_attempt(app: Mainspring) -> None:
    seen: list[tuple[int, str]] = []

    @app.on_submit
    def carry(submission: Submission) -> dict[str, str]:
        return {"trace": f"{TRACE.get()}/{submission.task}/{submission.runs}"}

    @app.on_submit
    def nothing(submission: Submission) -> None: ...

    @app.task(retry=Retry(1, delay="1s"))
    async def work(number: int) -> None:
        run = current_run()
        seen.append((run.attempt, run.context["trace"]))
        if run.attempt == 1:
            raise ConnectionError

    async with ManualScheduler(app) as scheduler:
        TRACE.set("t1")
        await work.submit(1)
        await scheduler.advance("5s")
        await work.submit_many([{"number": 2}, {"number": 3}])
        await scheduler.tick()
    assert seen == [(1, "t1/work/1"), (2, "t1/work/1"), (1, "t1/work/2"), (1, "t1/work/2")]


@pytest.mark.parametrize("limit", [None, 1])
async def test_context_survives_options_that_a_worker_fills_in_and_a_retry(app: Mainspring, limit: int | None) -> None:
    other = Mainspring(app.settings.store, name="submitter", durable=False)
    other.on_submit(lambda submission: {"trace": "t2"})
    seen: list[str] = []

    @app.task(limit=limit, retry=Retry(0))
    async def work() -> None:
        seen.append(current_run().context["trace"])
        raise RuntimeError

    async with other, app:
        handle = await other.submit("work")  # No worker has announced the task yet, so the worker fills in its options.
        async with app.running(schedule=False):
            assert (await handle.wait(BOUND_S)).state == "failed"
            again = await other.runs.retry(handle.id)
            await other.runs.wait(again.run_id, BOUND_S)
    assert seen == ["t2", "t2"]


async def test_a_context_is_small_and_made_of_texts(app: Mainspring) -> None:
    answer: dict[str, Any] = {"n": 1}
    app.on_submit(lambda submission: answer)

    @app.task
    def work() -> None: ...

    async with ManualScheduler(app) as scheduler:
        with pytest.raises(InvalidInput, match="not a text"):
            await work.submit()
        answer["n"] = "x" * MOST_CONTEXT_BYTES
        with pytest.raises(InvalidInput, match="4096"):
            await work.submit()
        assert await scheduler.runs() == []


async def test_hooks_go_around_plain_and_async_tasks_in_order(app: Mainspring) -> None:
    story: list[str] = []

    @app.around
    def outer(run: RunContext) -> Iterator[None]:
        story.append(f"> {run.task} {run.attempt}")
        try:
            yield
        finally:
            story.append(f"< {run.task}")

    @app.around
    async def inner(run: RunContext) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        story.append(">>")
        try:
            yield
        except ValueError as error:
            story.append(f"<< {error}")
            raise
        else:
            story.append("<<")

    @app.task
    def plain() -> str:
        story.append("plain")
        return "p"

    @app.task(retry=Retry(0))
    async def fails() -> None:
        raise ValueError("bad")

    async with ManualScheduler(app) as scheduler:
        handle = await plain.submit()
        await scheduler.tick()
        assert await handle.result(0) == "p"
        assert story == ["> plain 1", ">>", "plain", "<<", "< plain"]
        story.clear()
        failed = await fails.submit()
        await scheduler.tick()
        assert story == ["> fails 1", ">>", "<< bad", "< fails"]
        assert "ValueError: bad" in (await failed.status()).reason
    assert plain() == "p"  # A direct call is no attempt.
    assert story[4:] == ["plain"]


async def test_on_end_is_given_what_the_store_accepted(app: Mainspring) -> None:
    ends: list[Event] = []
    over = asyncio.Event()

    @app.on_end
    def plain(event: Event) -> None:
        ends.append(event)
        raise RuntimeError("a hook that fails changes nothing")

    @app.on_end
    async def later(event: Event) -> None:
        await asyncio.sleep(0.05)
        if event.kind == "run.succeeded":
            over.set()

    @app.task(retry=Retry(1, delay=0.01, jitter=0))
    async def work() -> None:
        if current_run().attempt == 1:
            raise ConnectionError("lost")

    async with app.running():
        handle = await work.submit()
        await handle.wait(BOUND_S)
    assert over.is_set()  # The block waits for hooks that are under way.
    assert [(event.kind, event.run_id, event.attempt) for event in ends] == [
        ("run.retrying", handle.id, 1),
        ("run.succeeded", handle.id, 2),
    ]
    assert "ConnectionError: lost" in ends[0].reason
    assert ends[0].at.tzinfo is not None


async def test_a_worker_lives_within_the_lifespan_and_tasks_have_its_state(app: Mainspring) -> None:
    story: list[str] = []

    @app.lifespan
    async def pool() -> AsyncIterator[list[str]]:
        this = asyncio.current_task()
        story.append("open")
        yield story
        assert asyncio.current_task() is this
        story.append("close")

    @app.task
    def plain() -> None:
        app.state.append("plain")

    @app.task
    async def on_the_loop() -> None:
        app.state.append("async")

    with pytest.raises(MainspringError, match="lifespan"):
        _ = app.state
    async with app:
        async with app.running():
            await (await plain.submit()).result(BOUND_S)
            await (await on_the_loop.submit()).result(BOUND_S)
        assert story == ["open", "plain", "async", "close"]
        async with app.running(work=False):
            assert len(story) == 4  # A process that only schedules executes nothing.
    with pytest.raises(InvalidInput, match="second"):
        app.lifespan(pool)


async def test_a_lifespan_that_fails_keeps_the_worker_from_starting(app: Mainspring) -> None:
    @app.lifespan
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise ConnectionError("no database")
        yield

    with pytest.raises(ConnectionError, match="no database"):
        await app.running().__aenter__()
    assert app.opened is None


def test_what_cannot_be_a_hook_is_refused(app: Mainspring) -> None:
    async def coroutine(anything: Any = None) -> None: ...
    def plain(anything: Any = None) -> None: ...

    wrong: list[tuple[Any, Any]] = [
        (app.lifespan, coroutine),
        (app.on_submit, coroutine),
        (app.around, coroutine),
        (app.around, plain),
    ]
    for declare, function in wrong:
        with pytest.raises(InvalidInput):
            declare(function)


PROCESSES = """
    import asyncio, os, threading
    from mainspring import Mainspring, current_run

    app = Mainspring("sqlite:///store.db", name="pooled", durable=False)

    def note(text):
        with open("story", "a") as file:
            file.write(f"{os.getpid()} {text}\\n")

    @app.lifespan
    async def held():
        loop = asyncio.get_running_loop()
        threading.Thread(target=threading.Event().wait, daemon=True).start()  # As drivers of databases do.
        note("open")
        yield {"loop": loop, "pid": os.getpid()}
        note("close")

    @app.on_submit
    def carry(submission):
        return {"trace": "t3"}

    @app.around
    async def around(run):
        note(f"> {run.task} {run.context['trace']}")
        yield
        note(f"< {run.task}")

    @app.task(isolation="process")
    def plain():
        return app.state["pid"] == os.getpid()

    @app.task(isolation="process")
    async def on_the_loop():
        return app.state["loop"] is asyncio.get_running_loop()

    async def main():
        async with app.running():
            for _ in range(2):
                for task in (plain, on_the_loop):
                    assert await (await task.submit()).result(30) is True
        print(os.getpid())

    if __name__ == "__main__":
        asyncio.run(main())
"""


def test_each_process_of_the_pool_has_its_own_lifespan_and_hooks(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(textwrap.dedent(PROCESSES))
    argv, env = [sys.executable, "work.py"], os.environ | {"MAINSPRING_CONCURRENCY": "1"}
    shown = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env, check=False)
    assert shown.returncode == 0, shown.stderr
    worker = shown.stdout.strip()
    stories: dict[str, list[str]] = {}
    for line in (tmp_path / "story").read_text().splitlines():
        pid, _, text = line.partition(" ")
        stories.setdefault(pid, []).append(text)
    assert stories.pop(worker) == ["open", "close"]
    ((_, story),) = stories.items()
    once = ["> plain t3", "< plain", "> on_the_loop t3", "< on_the_loop"]
    assert story == ["open", *once, *once, "close"]


def test_a_worker_of_the_command_line_lives_within_the_lifespan(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(textwrap.dedent(PROCESSES))
    argv = [sys.executable, "-m", "mainspring", "up", "work.py", "--no-api", "--for", "1s", "--quiet"]
    shown = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert shown.returncode == 0, shown.stderr
    assert [line.split()[1] for line in (tmp_path / "story").read_text().splitlines()] == ["open", "close"]
