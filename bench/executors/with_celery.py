"""Celery with its prefork pool, on Redis. `python -m bench.executors.with_celery drain PARAMS`.

Its settings are those that its documentation names for speed: no results, no events, no rate limits, messages
acknowledged early, transient, and prefetched a hundred to a process; no gossip, mingle or
heartbeat. One process per core.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from celery import Celery

from bench.executors.marking import count_marks, mark, rate_of_marks
from bench.harness.script import Answer, Params, check_all_ran, serve, wait

app = Celery("bench", broker=os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379"))
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    task_default_delivery_mode="transient",
    task_default_queue="bench-executors",
)
MODULE = "bench.executors.with_celery"


@app.task(name="noop")
def noop(file: str) -> None:
    """Leave a mark."""
    mark(file)


def drain(params: Params) -> Answer:
    """Runs that wait, worked off by one worker with a process per core."""
    file, count = Path(params["folder"]) / "marks", params["count"]
    app.control.purge()
    with app.pool.acquire() as connection, app.amqp.Producer(connection) as producer:
        for _ in range(count):
            noop.apply_async((str(file),), producer=producer)
    # By its real name: it imports the tasks from here, and must not find them in `__main__`.
    argv = [sys.executable, "-m", "celery", "-A", MODULE, "worker", "-P", "prefork", "-c", str(params["processes"])]
    argv += ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    worker = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: count_marks(file) >= count, params["limit_s"] - 10)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(10)
    check_all_ran(count_marks(file), count)
    return {"rates": [rate_of_marks(file)]}


if __name__ == "__main__":
    serve({"drain": drain})
