"""The work that is done in the simulated world: how long it takes, whether it fails, whether it kills its process.

What an attempt does depends on the seed, the run and the attempt alone, so that it does not matter which worker
executes it. Starts and ends go to the side-effect ledger, which nothing can kill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import MappingProxyType
from typing import Final

import msgspec

from mainspring.core.ids import fraction_of
from mainspring.core.instants import SECOND
from mainspring.core.model import Claim, Failure, TaskNotice
from mainspring.executor import AttemptContext, Outcome
from mainspring.testing.simulation.faults import Weather
from mainspring.testing.simulation.ports.scribe import Scribe
from mainspring.testing.simulation.world.clock import ProcessClock


class Traits(msgspec.Struct, frozen=True):
    """What a task is like."""

    shortest_s: float
    longest_s: float
    failing: float = 0.0
    """How likely an attempt fails."""
    deadly: float = 0.0
    """How likely an attempt takes its process with it."""
    stubborn: int = 0
    """How often it ignores its cancellation."""
    skipping: float = 0.0
    """How likely it asks to be skipped."""


TASKS: Final = MappingProxyType(
    {
        "quick": Traits(0.001, 0.1),
        "steady": Traits(0.2, 2.0),
        "slow": Traits(2.0, 12.0),
        "flaky": Traits(0.01, 2.0, failing=0.5, skipping=0.02),
        "broken": Traits(0.01, 3.0, failing=1.0),
        "stubborn": Traits(0.5, 6.0, stubborn=2),
        "poison": Traits(0.1, 1.0, deadly=0.5),
        "limited": Traits(0.05, 1.5, failing=0.1),
    }
)
"""By name. A task has the same limit wherever it is used: `limited` is the one that has one."""


NEW_ARGUMENT: Final = "tone"
"""An argument of every task that older code does not have."""


def describe_tasks(*, old: bool) -> tuple[TaskNotice, ...]:
    """What a worker announces of its tasks, where several versions of the code are at work."""
    signature, names = ("()", ()) if old else (f"({NEW_ARGUMENT}=1)", (NEW_ARGUMENT,))
    return tuple(TaskNotice(name=name, signature=signature, names=names) for name in sorted(TASKS))


class SimulatedExecutor:
    """See `executor.Executor`: what one process does with what it has claimed."""

    def __init__(
        self, worker: str, seed: str, clock: ProcessClock, weather: Weather, scribe: Scribe, die: Callable[[str], None]
    ) -> None:
        self._worker = worker
        self._seed = seed
        self._clock = clock
        self._weather = weather
        self._scribe = scribe
        self._die = die
        self._under_way: dict[tuple[str, int], Claim] = {}
        self.is_old = False
        """Whether its code is older than the argument that some runs have."""

    async def run(self, attempt: AttemptContext) -> Outcome:
        """Let virtual time pass, and come to the end that the seed has in store."""
        claim, traits = attempt.claim, TASKS[attempt.claim.task]
        if self.is_old and NEW_ARGUMENT in claim.args:
            problem = Failure("TypeError", f"{claim.task} has no argument {NEW_ARGUMENT}")
            return Outcome("failed", failure=problem, error_types=("builtins.TypeError",), final=True, unfit=True)
        draw = self._drawn(claim)
        duration_s = traits.shortest_s + draw("duration") * (traits.longest_s - traits.shortest_s)
        self._under_way[claim.run_id, claim.token] = claim
        self._write("start", claim, "")
        if attempt.context is not None and draw("talk") < 0.1:
            attempt.context.log("begun")
            attempt.context.progress(0.5, "half done")
        try:
            if draw("deadly") < traits.deadly and self._weather.has("poison"):
                await self._clock.sleep(duration_s / 2)
                self._die("poison")
            await self._last(duration_s, traits.stubborn)
        except asyncio.CancelledError:
            self._weather.note(f"work {attempt.stop_kind}")
            self._end(claim, "cancelled")
            raise
        outcome = self._outcome(traits, draw)
        self._end(claim, outcome.kind)
        return outcome

    def _drawn(self, claim: Claim) -> Callable[[str], float]:
        return lambda what: fraction_of(self._seed, what, claim.run_id, claim.attempt)

    async def _last(self, seconds: float, stubborn: int) -> None:
        until = self._clock.monotonic() + seconds
        while True:
            try:
                await self._clock.sleep(max(until - self._clock.monotonic(), 0.0))
                return
            except asyncio.CancelledError:
                if stubborn == 0:
                    raise
                self._weather.note("ignored cancellation")
                stubborn -= 1

    def _outcome(self, traits: Traits, draw: Callable[[str], float]) -> Outcome:
        if draw("skipping") < traits.skipping:
            return Outcome("skipped")
        if draw("failing") < traits.failing:
            asked = 2 * SECOND if draw("asked") < 0.1 else None
            failure = Failure("ValueError", "it did not work out")
            return Outcome("failed", None, failure, ("builtins.ValueError", "builtins.Exception"), asked)
        return Outcome("succeeded", "1")

    def _write(self, what: str, claim: Claim, state: str) -> None:
        self._scribe.write(
            what, self._worker, self._clock, run=claim.run_id, token=claim.token, attempt=claim.attempt + 1,
            worker=self._worker, state=state or None,
        )  # fmt: skip

    def _end(self, claim: Claim, state: str) -> None:
        if self._under_way.pop((claim.run_id, claim.token), None) is not None:
            self._write("end", claim, state)

    def end_all(self) -> None:
        """The process has been killed: so has all that it was doing."""
        for claim in list(self._under_way.values()):
            self._end(claim, "killed")
