"""Huey on SQLite: `python -m bench.peers.with_huey MEASURE PARAMS`.

Its settings: `fsync=True`, which is `synchronous = FULL`, as durable as Mainspring; write-ahead logging, its default;
no result store, since results are not read; one worker, a thread: in one try each, 2, 4 and 8 threads and processes
drained no faster; an empty queue is looked at every millisecond, which is what its latency is made of.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from huey import SqliteHuey
from huey.consumer import Consumer

from bench.harness.script import (
    Answer,
    Params,
    check_all_ran,
    first_boundary,
    pace,
    rate_of,
    serve,
    stay_until_told,
    wait,
)

POLL_S = 0.001
PATIENCE_S = 60.0


def _new(params: Params) -> SqliteHuey:
    return SqliteHuey("bench", filename=str(Path(params["folder"]) / "huey.db"), fsync=True, results=False)


@contextmanager
def _consuming(huey: SqliteHuey) -> Iterator[None]:
    consumer = Consumer(
        huey, workers=1, initial_delay=POLL_S, max_delay=POLL_S, backoff=1.0, scheduler_interval=1, periodic=False
    )
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(graceful=True)


@contextmanager
def _filling(huey: SqliteHuey) -> Iterator[None]:
    """What is stored before the measure begins need not be synced: it has no bulk insert, and would take long.

    It goes straight into the schedule, where a consumer would otherwise move it first.
    """
    huey.storage.conn.execute("PRAGMA synchronous = OFF")
    yield
    huey.storage.conn.execute("PRAGMA synchronous = FULL")


def _noop(huey: SqliteHuey, ran: list[None]) -> Callable[[], object]:
    @huey.task()
    def noop() -> None:
        ran.append(None)

    return noop


def submit(params: Params) -> Answer:
    """One after another."""
    noop = _noop(_new(params), [])
    noop()
    return {"rates": [rate_of(noop, params["seconds"])]}


def drain(params: Params) -> Answer:
    """A backlog waits; the consumer starts; until the last has run."""
    huey, ran, count = _new(params), list[None](), params["count"]
    noop = _noop(huey, ran)
    for _ in range(count):
        noop()
    began = time.perf_counter()
    with _consuming(huey):
        wait(lambda: len(ran) >= count, PATIENCE_S)
        seconds = time.perf_counter() - began
    check_all_ran(len(ran), count)
    return {"rates": [count / seconds]}


def flow(params: Params) -> Answer:
    """Submitted to a consumer that is already there; from the first submission until the last has run."""
    huey, ran, count = _new(params), list[None](), params["count"]
    noop = _noop(huey, ran)
    with _consuming(huey):
        began = time.perf_counter()
        for _ in range(count):
            noop()
        wait(lambda: len(ran) >= count, PATIENCE_S)
        seconds = time.perf_counter() - began
    check_all_ran(len(ran), count)
    return {"rates": [count / seconds]}


def latency(params: Params) -> Answer:
    """From the call to the first line of the function."""
    huey, samples = _new(params), list[float]()

    @huey.task()
    def probe(sent_at: float) -> None:
        samples.append((time.monotonic() - sent_at) * 1000)

    expected = int(params["per_second"] * params["seconds"])
    with _consuming(huey):
        probe(0.0)
        wait(lambda: bool(samples), PATIENCE_S)
        samples.clear()
        for pause in pace(params["per_second"], params["seconds"]):
            time.sleep(pause)
            probe(time.monotonic())
        wait(lambda: len(samples) >= expected, PATIENCE_S)
    return {"samples_ms": samples, "expected": expected}


def lateness(params: Params) -> Answer:
    """Tasks scheduled for the same instants: its crontab knows no seconds, its `eta` does."""
    huey, samples = _new(params), list[float]()
    period, boundaries, jobs = params["period_s"], params["boundaries"], params["jobs"]

    @huey.task()
    def tick(due_at: float) -> None:
        samples.append((time.time() - due_at) * 1000)

    first = first_boundary(period, jobs * boundaries / 2000 + 1)
    instants = [first + boundary * period for boundary in range(boundaries)]
    with _filling(huey):
        for due_at in instants:
            for _ in range(jobs):
                huey.add_schedule(tick.s(due_at, eta=datetime.fromtimestamp(due_at)))
    with _consuming(huey):
        time.sleep(max(instants[-1] - time.time(), 0))
        wait(lambda: len(samples) >= jobs * boundaries, PATIENCE_S)
    return {"samples_ms": samples, "expected": jobs * boundaries}


def idle(params: Params) -> Answer:
    """Many tasks scheduled for tomorrow, at its own default pace of looking."""
    huey = _new(params)

    @huey.task()
    def tick() -> None:
        raise SystemExit("void: an idle task ran")

    tomorrow = datetime.now() + timedelta(days=1)
    with _filling(huey):
        for _ in range(params["jobs"]):
            huey.add_schedule(tick.s(eta=tomorrow))
    consumer = Consumer(huey, workers=1)
    consumer.start()
    stay_until_told()
    consumer.stop(graceful=True)
    return {}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve({"submit": submit, "drain": drain, "flow": flow, "latency": latency, "lateness": lateness, "idle": idle})
