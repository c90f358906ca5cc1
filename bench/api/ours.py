"""Mainspring's API on a store: with a secret, without a node; or with scheduler and worker, for whole journeys."""

from __future__ import annotations

import asyncio
import os
import sys

from mainspring import Mainspring
from mainspring.api.server import Server
from mainspring.wiring import build_runtime

SECRET = "Zm9yIGJlbmNobWFya3Mgb25seTogbm90IGEgc2VjcmV0IQ=="


def app_on(store: str, port: int) -> Mainspring:
    """As the command would open it, with a rate that is no limit."""
    return Mainspring(store, name="bench", secret=SECRET, host="127.0.0.1", port=port, submit_rate=1_000_000_000)


async def main(store: str, port: int, whole: bool) -> None:
    """Serve until stdin is closed."""
    app = app_on(store, port)

    @app.task
    async def nothing(number: int = 0) -> int:
        return number

    runtime = build_runtime(app, app.settings, schedule=True, work=True) if whole else None
    if runtime is not None:
        await runtime.start()
    server = Server(app, lambda: runtime.node if runtime else None)
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()
    if runtime is not None:
        await runtime.stop()
    await app.close()


if __name__ == "__main__":
    if profile := os.environ.get("BENCH_PROFILE"):
        import cProfile
        import threading

        profiler = cProfile.Profile()
        run = threading.Thread.run

        def profiled(self: threading.Thread) -> None:
            """The API's own thread."""
            if self.name == "mainspring-api":
                profiler.runcall(run, self)
                profiler.dump_stats(str(profile))
            else:
                run(self)

        threading.Thread.run = profiled
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), "whole" in sys.argv))
