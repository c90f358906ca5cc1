"""Dramatiq on Redis: `python -m bench.peers with_dramatiq MEASURE PARAMS`.

Its settings: two processes of eight threads (its default), no Prometheus server, no result store, hiredis.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, Callbacks, Pipelines, Retries, ShutdownNotifications, TimeLimit

from bench.intake import BlockingIntake, blocking_measures
from bench.script import Answer, Measure, Params
from bench.slate import Slate

THREADS = 8

middleware = [AgeLimit(), TimeLimit(), ShutdownNotifications(), Callbacks(), Pipelines(), Retries()]
dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS"], middleware=middleware))
slate = Slate.given()


@dramatiq.actor
def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


@contextmanager
def _open() -> Iterator[BlockingIntake]:
    yield BlockingIntake(noop.send)


def work(_: Params) -> Answer:
    """Its own command, which starts two processes."""
    module = "bench.peers.with_dramatiq"
    command = ["-m", "dramatiq", module, "--processes", "2", "--threads", str(THREADS), "--skip-logging"]
    os.execv(sys.executable, [sys.executable, *command])


MEASURES: dict[str, Measure] = {"prepare": lambda _: {}, "work": work, **blocking_measures(_open)}
