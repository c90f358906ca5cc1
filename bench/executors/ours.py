"""Mainspring's executors: `python -m bench.executors.ours MEASURE PARAMS`.

`alone` is an executor without a worker and a store around it, `drain` the whole of it on a SQLite file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Coroutine
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.executors.deeds import app as deeds
from bench.executors.marking import count_marks, rate_of_marks
from bench.harness.script import Answer, Params, check_all_ran, serve, wait_async
from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.core.instants import MILLISECOND, SECOND
from mainspring.core.model import Claim, RunOptions
from mainspring.core.states import SUCCEEDED
from mainspring.core.tasks.isolation import parse_isolation
from mainspring.executor import AttemptContext, RunContext
from mainspring.executors.registry import ExecutorRegistry
from mainspring.process.eventloop import new_loop
from mainspring.services.worker.runner import Runner
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.stores.sql import load_queries
from mainspring.wiring import POOL_PROGRAM, build_runtime

CLOCK = SystemClock()
_COUNT = load_queries("sqlite", "runs")["count_states"]


def _run(work: Coroutine[Any, Any, Answer]) -> Answer:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


def _attempt(task: str, args: str, options: RunOptions, number: int = 0) -> AttemptContext:
    claim = Claim(f"run-{number}", 1, task, args, "{}", 0, 0, 5, 0, "default", None, None, 0, 0)
    attempt = AttemptContext(claim, options)
    attempt.now = CLOCK.now
    attempt.context = RunContext(claim, None, attempt.write, lambda _fraction, _note: None)
    return attempt


def _work(params: Params) -> tuple[str, str, RunOptions]:
    """A function by its name, or a command under an isolation."""
    if task := params.get("task"):
        options = deeds.tasks[task].defaults.options
        if options.isolation is not None and options.isolation.confined and sys.base_prefix.startswith("/root/"):
            # No other user could start this Python.
            isolation = parse_isolation(f"{options.isolation.level},user=root")
            options = msgspec.structs.replace(options, isolation=isolation)
        return task, "{}", options
    return "command", '{"argv":["/bin/true"]}', RunOptions(isolation=parse_isolation(params["isolation"]))


def alone(params: Params) -> Answer:
    """How long one takes after the other, and how many a second there are with several at once."""

    async def measure() -> Answer:
        registry = ExecutorRegistry(deeds.tasks, Settings(concurrency=params["concurrency"]), POOL_PROGRAM)
        work, count = _work(params), params["count"]

        async def one() -> None:
            outcome = await registry(work[0]).run(_attempt(*work))
            if outcome.kind != "succeeded":
                raise SystemExit(f"void: {outcome.failure}")

        async def some() -> None:
            for _ in left:
                await one()

        left = iter(range(params["concurrency"]))
        await asyncio.gather(*(some() for _ in range(params["concurrency"])))
        samples = []
        for _ in range(min(count, 1000)):
            began = time.perf_counter()
            await one()
            samples.append((time.perf_counter() - began) * 1000)
        left = iter(range(count))
        began = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(params["concurrency"])))
        rate = count / (time.perf_counter() - began)
        registry.close()
        return {"rates": [rate], "samples_ms": samples}

    return _run(measure())


def _file(params: Params) -> str:
    return f"{params['folder']}/bench.db"


def _app(params: Params) -> Mainspring:
    """The tasks on a store of their own."""
    url = params.get("store") or f"sqlite:///{_file(params)}"
    app = Mainspring(url, concurrency=params["concurrency"])
    for name, task in deeds.tasks.items():
        app.task(name=name, isolation=task.defaults.options.isolation)(task.function)
    return app


def drain(params: Params) -> Answer:
    """Runs that wait, claimed, executed, reported and recorded."""

    async def measure() -> Answer:
        app, count, file = _app(params), params["count"], Path(params["folder"]) / "marks"
        async with app:
            await app.tasks[params["task"]].submit_many([{"file": str(file)}] * count)
            runtime = build_runtime(app, app.settings, schedule=True, work=True)
            await runtime.start()
            store = await app.open()
            await wait_async(lambda: count_marks(file) >= count, params["limit_s"] - 10)
            await _recorded(store, count)
            await runtime.stop()
        check_all_ran(count_marks(file), count)
        return {"rates": [rate_of_marks(file)]}

    return _run(measure())


async def _recorded(store: Store, count: int) -> None:
    """Until this many are recorded as succeeded."""
    while True:
        if (await store.count_runs("default")).get(SUCCEEDED, 0) >= count:
            return
        await asyncio.sleep(0.02)


async def _recorded_in(file: str, count: int) -> None:
    """The same, seen through connections of its own: what the page cache of one of the worker's would keep of looking
    through the whole file again and again is nothing that a worker holds."""

    def look() -> int:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            counts: dict[str, int] = dict(connection.execute(_COUNT, ("default",)).fetchall())
        return counts.get(SUCCEEDED, 0)

    while True:
        if await asyncio.to_thread(look) >= count:
            return
        await asyncio.sleep(0.02)


_POLITE = "(setsid sleep {mark} &); exec sleep {mark}"
_DEAF = "trap '' TERM; (setsid sleep {mark} &); sleep {mark}; sleep {mark}"
"""Shells with a daemon each. How long it sleeps identifies the owner of a process."""


def deadline(params: Params) -> Answer:
    """From a deadline to the moment at which the whole tree is dead and that is known; with the grace taken off for a
    tree that does not listen."""

    async def measure() -> Answer:
        ended = asyncio.Event()
        registry = ExecutorRegistry({}, Settings(), POOL_PROGRAM)
        runner = Runner(registry, 10, CLOCK, CLOCK.now, CLOCK.now, ended.set)
        grace_s = 0.0 if params["polite"] else 2.0
        samples = []
        for number in range(params["count"]):
            mark = f"600.{os.getpid()}{number}"
            script = (_POLITE if params["polite"] else _DEAF).format(mark=mark)
            args = msgspec.json.encode({"argv": ["sh", "-c", script]}).decode()
            isolation = parse_isolation(params["isolation"])
            attempt = _attempt("command", args, RunOptions(timeout=300 * MILLISECOND, isolation=isolation), number)
            ended.clear()
            runner.begin([attempt])
            await ended.wait()
            report = runner.done.popleft()
            alive = _count_alive(mark)
            if alive or report.outcome != "timed_out" or report.finished_at is None:
                raise SystemExit(f"void: {report.outcome}, {alive} alive")
            late = (report.finished_at - attempt.started_at - 300 * MILLISECOND) / SECOND - grace_s
            samples.append(late * 1000)
        registry.close()
        return {"samples_ms": samples}

    return _run(measure())


def _count_alive(mark: str) -> int:
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            count += mark.encode() in (folder / "cmdline").read_bytes()
    return count


def memory(params: Params) -> Answer:
    """What a worker holds after each hundredth of this many runs of all kinds."""

    async def measure() -> Answer:
        app, held = _app(params), []
        async with app:
            runtime = build_runtime(app, app.settings, schedule=True, work=True)
            await runtime.start()
            store = await app.open()
            batch, done = params["count"] // 100, 0
            while done < params["count"]:
                for task, share in (("noop_async", 0.6), ("noop_thread", 0.3), ("noop_process", 0.1)):
                    await app.tasks[task].submit_many([{}] * round(batch * share))
                done += batch
                await (_recorded(store, done) if params.get("store") else _recorded_in(_file(params), done))
                held.append(_resident_mb())
            await runtime.stop()
        return {"held_mb": held}

    return _run(measure())


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    serve({"alone": alone, "drain": drain, "deadline": deadline, "memory": memory})
