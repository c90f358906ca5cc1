"""Long legal histories."""

from __future__ import annotations

from random import Random
from typing import Any

from histories import TTL, History

from mainspring.core.instants import MINUTE
from mainspring.core.model import Gate
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.testing.history import Record


class Plenty:
    """Runs that succeed, fail, are lost and given back; keys, gates and a job; answers that were lost."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._told = History()

    def play(self, runs: int) -> list[Record]:
        """A hundred runs a second."""
        instants = range(60, runs // 100 + 500, 60)
        self._told.fault("healed").term(1).job("j", EveryTrigger(MINUTE), next_at=instants[-1] + 60, task="j")
        for seconds in instants:
            self._told.at(seconds).fire("j", seconds, term=1)
        for number in range(runs):
            self._tell_run(f"run {number}", number / 100, number)
        self._told.at(instants[-1]).fault("drained").fired("j", *instants)
        return self._told.records

    def _tell_run(self, run: str, due: float, number: int) -> None:
        fields: dict[str, Any] = {"gates": (Gate("task:task", 1_000),)} if number % 10 == 1 else {}
        if number % 10 == 0:
            key = f"k{number % 10_000}"
            fields = {"key": key, "lines": (Gate(f"key:{key}", 1),)}
        if self._random.random() < 0.1:
            self._told.at(due).submit(run, due=due, outcome="unknown", **fields)
        self._told.at(due).submit(run, due=due, **fields)
        now, token, state = due + 0.001, 0, "pending"
        attempts: dict[int, str] = {}
        while state == "pending":
            token += 1
            now, outcome, state = self._turn(run, token, now, is_last=len(attempts) == 2)
            if outcome is not None:
                attempts[token] = outcome
        self._told.ended(
            run, "succeeded", *attempts.values(), tokens=list(attempts), token=token, key=fields.get("key")
        )

    def _turn(self, run: str, token: int, now: float, *, is_last: bool) -> tuple[float, str | None, str]:
        history, worker = self._told, f"w{token}"
        fate = "success" if is_last else self._random.choice(["success", "success", "failure", "loss", "return"])
        history.at(now).claim(run, token, worker=worker)
        if fate == "return":
            history.at(now + 0.5).handback(run, token, worker=worker, outcome=self._random.choice(["ok", "unknown"]))
            return now + 0.6, None, "pending"
        history.start(run, token, worker=worker)
        if fate == "loss":
            return now + TTL + 1, "lost", "pending"
        state, outcome = ("succeeded", "succeeded") if fate == "success" else ("pending", "failed")
        history.at(now + 1).end(run, token, worker=worker)
        if self._random.random() < 0.1:
            history.report(run, token, state, worker=worker, outcome="unknown", delay=2)
        history.at(now + 1.5).report(run, token, state, worker=worker, delay=2)
        return now + 4, outcome, state
