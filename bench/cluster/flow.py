"""A billion a day: submissions and runs at 11,600 a second, held for a minute."""

from __future__ import annotations

import threading
import time

from bench.cluster.arena import OURS, Arena
from bench.cluster.contestants import MAINSPRING
from bench.cluster.stage import Stage, set_stage
from bench.harness.figures import Row, show
from bench.harness.running import Failed
from bench.harness.script import Answer

PER_SECOND = 11_600
BULKS = 20
"""Calls of `submit_many` a second, of 580 runs each: what a busy front end hands over every 50 ms."""
WARM = 1_000
FLOW_LIMIT_S = 200
LOOK_S = 1.0
STEADY_S = 2
"""A backlog of less than this many seconds' submissions, grown by less than one since the first third, is held."""


def _watch(stage: Stage, asked: threading.Thread) -> list[int]:
    """How many runs the store has that have not ended, second by second."""
    backlog = []
    while asked.is_alive():
        backlog.append(stage.unfinished())
        asked.join(LOOK_S)
    return backlog


def _ask(stage: Stage, params: dict[str, int]) -> tuple[Answer, list[int]]:
    answers: list[Answer] = []
    failures: list[Failed] = []

    def submit() -> None:
        try:
            answers.append(stage.ask("flow", params, FLOW_LIMIT_S))
        except Failed as failure:
            failures.append(failure)

    asked = threading.Thread(target=submit)
    asked.start()
    backlog = _watch(stage, asked)
    if failures:
        raise failures[0]
    return answers[0], backlog


def measure_billion(arena: Arena) -> list[Row]:
    """A process that submits, two that work. Reached: what was submitted and ended in the time, and what is left."""
    seconds = arena.size(60, 15)
    params = {"per_second": PER_SECOND, "seconds": seconds, "bulks": BULKS}
    total = PER_SECOND * seconds
    with set_stage(MAINSPRING, arena.servers, arena.folder, total) as stage, stage.working(limit_s=FLOW_LIMIT_S):
        stage.warm_up(WARM)
        began = time.monotonic()
        answer, backlog = _ask(stage, params)
        left = stage.unfinished()
        took = time.monotonic() - began
        stage.wait(lambda: stage.unfinished() == 0, FLOW_LIMIT_S - took, "what was left")
        caught_up = time.monotonic() - began - took
    third, last = backlog[len(backlog) // 3], backlog[-1]
    submitted, ended = answer["sent"] / answer["took_s"], (answer["sent"] - left) / took
    figure = f"{show(submitted, '/s')} submitted, {show(ended, '/s')} ended, {left:,} left, gone in {caught_up:.1f} s"
    row = Row(f"{PER_SECOND:,} submissions and runs a second for {seconds} s", {OURS: figure})
    row.target = "held, backlog not growing"
    row.met = submitted >= 0.99 * PER_SECOND and last <= third + PER_SECOND and last < STEADY_S * PER_SECOND
    row.rounds = {"backlog": [float(count) for count in backlog], "longest call s": [answer["longest_s"]]}
    return [row]
