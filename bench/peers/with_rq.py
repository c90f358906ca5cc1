"""RQ on Redis: `python -m bench.peers with_rq MEASURE PARAMS`.

Its settings: two of its `SimpleWorker`, which do not fork for each job, no time limits, no results kept, hiredis.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redis import Redis
from rq import Queue

from bench.harness.intake import BlockingIntake, blocking_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

URL = os.environ["BENCH_REDIS"]
QUEUE = "bench"
NO_LIMIT = -1

slate = Slate.given()


def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


@contextmanager
def _open() -> Iterator[BlockingIntake]:
    queue = Queue(QUEUE, connection=Redis.from_url(URL))

    def one(number: int) -> None:
        queue.enqueue(noop, number, job_timeout=NO_LIMIT, result_ttl=0)

    def many(numbers: Sequence[int]) -> None:
        queue.enqueue_many([Queue.prepare_data(noop, (n,), timeout=NO_LIMIT, result_ttl=0) for n in numbers])

    yield BlockingIntake(one, many)


def work(_: Params) -> Answer:
    """One worker process: its own command."""
    command = [str(Path(sys.executable).with_name("rq")), "worker", "--quiet", "--url", URL]
    os.execv(command[0], [*command, "--worker-class", "rq.SimpleWorker", QUEUE])


MEASURES: dict[str, Measure] = {"prepare": lambda _: {}, "work": work, **blocking_measures(_open)}
