"""What the standard library and bubblewrap themselves cost: `python -m bench.executors.baselines MEASURE PARAMS`."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

from bench.executors.marking import mark
from bench.harness.script import Answer, Params, serve
from mainspring.process.eventloop import new_loop

TRUE = ["/bin/true"]
SHOWN = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
BWRAP = ["bwrap", "--unshare-all", "--die-with-parent", *SHOWN, *TRUE]


def _programs(argv: list[str], params: Params) -> Answer:
    run = partial(subprocess.run, argv, capture_output=True, check=True)
    samples = [_timed(run) for _ in range(params["count"])]
    with ThreadPoolExecutor(params["processes"]) as pool:
        began = time.perf_counter()
        for each in [pool.submit(run) for _ in range(params["count"])]:
            each.result()
        rate = params["count"] / (time.perf_counter() - began)
    return {"rates": [rate], "samples_ms": samples}


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def _functions(pool: Executor, params: Params) -> Answer:
    """By `run_in_executor`, as many at once as ours."""

    async def all_of_them() -> float:
        loop, left = asyncio.get_running_loop(), iter(range(params["count"]))
        await loop.run_in_executor(pool, mark, None)

        async def some() -> None:
            for _ in left:
                await loop.run_in_executor(pool, mark, None)

        began = time.perf_counter()
        await asyncio.gather(*(some() for _ in range(params["concurrency"])))
        return params["count"] / (time.perf_counter() - began)

    with pool, asyncio.Runner(loop_factory=new_loop) as runner:
        return {"rates": [runner.run(all_of_them())]}


if __name__ == "__main__":
    serve(
        {
            "subprocess": partial(_programs, TRUE),
            "bubblewrap": partial(_programs, BWRAP),
            "threads": lambda params: _functions(ThreadPoolExecutor(params["concurrency"]), params),
            "processes": lambda params: _functions(ProcessPoolExecutor(params["processes"]), params),
        }
    )
