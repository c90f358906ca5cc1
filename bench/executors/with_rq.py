"""RQ, on Redis. `python -m bench.executors.with_rq drain PARAMS`.

One of its ordinary workers per core, in burst mode; each forks a process for every job, which is how RQ isolates them.
Results are not kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from redis import Redis
from rq import Queue

from bench.executors.marking import count_marks, mark, rate_of_marks
from bench.harness.script import Answer, Params, check_all_ran, serve, wait

URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379")
QUEUE = "bench-executors"


def drain(params: Params) -> Answer:
    """Runs that wait, worked off by a worker per core."""
    file, count = Path(params["folder"]) / "marks", params["count"]
    queue = Queue(QUEUE, connection=Redis.from_url(URL))
    queue.empty()
    jobs = [Queue.prepare_data(mark, (str(file),), result_ttl=0, timeout=60) for _ in range(count)]
    queue.enqueue_many(jobs)
    argv = [str(Path(sys.executable).with_name("rq")), "worker", "--burst", "--quiet", "--url", URL, QUEUE]
    quiet = subprocess.DEVNULL
    workers = [subprocess.Popen(argv, stdout=quiet, stderr=quiet) for _ in range(params["processes"])]
    try:
        wait(lambda: count_marks(file) >= count, params["limit_s"] - 10)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(10)
    check_all_ran(count_marks(file), count)
    return {"rates": [rate_of_marks(file)]}


if __name__ == "__main__":
    serve({"drain": drain})
