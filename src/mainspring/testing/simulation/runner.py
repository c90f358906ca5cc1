"""Runs seeds: one to its verdict, many on all cores, and a failing one again and again until little of it is left."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

import msgspec

from mainspring.core.instants import SECOND, Duration
from mainspring.testing.checking import Verdict, check
from mainspring.testing.history import History, Record
from mainspring.testing.simulation.bugs.planted import planted
from mainspring.testing.simulation.faults import CALLS, EVENTS, HABITS, PROFILES
from mainspring.testing.simulation.scenario import Scenario
from mainspring.testing.simulation.world.world import World

LATENESS: Duration = 20 * SECOND
"""How late a run may begin where nothing goes wrong: workers may all be busy for a while."""
OVERRUN: Duration = 8 * SECOND
"""How long after its timeout work may go on: some ignores its cancellation twice."""

PASSED_OVER: Duration = 15 * SECOND
"""How long a run may be passed over where a broker delivers: it promises no order, and what it lost is published
again."""

FENCE: Duration = SECOND // 2
"""How long after its claim has run out work may go on: a worker's clock may be slower than the store's."""


class Result(msgspec.Struct, frozen=True):
    """What came of one scenario."""

    scenario: Scenario
    verdict: Verdict
    errors: list[str]
    """Errors of the program that it did not expect itself."""
    sometimes: Counter[str]
    """How often each fault and each rare path happened."""
    virtual_seconds: float
    history: list[Record]

    @property
    def ok(self) -> bool:
        """Whether every invariant holds and nothing unexpected happened."""
        return self.verdict.ok and not self.errors

    @property
    def signature(self) -> tuple[int | str, ...]:
        """What kind of failure it is: the invariants that are broken."""
        broken: set[int] = {violation.number for violation in self.verdict.violations}
        return (*sorted(broken), *(["error"] if self.errors else []))


def run_scenario(scenario: Scenario, *, bug: str | None = None, keep: bool = True) -> Result:
    """One scenario to its verdict; with a planted bug, if one is named. `keep=False` leaves the history of one that is
    in order out of the answer."""
    history, sometimes, errors = History(), Counter[str](), list[str]()
    world = World(scenario, history, sometimes)
    with _listening(errors), planted(bug), _uncollected():
        try:
            world.turn()
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    errors += world.loop.errors
    # The bug is gone by now, so that the checker, which uses the same rules of time, does not have it too.
    verdict = check(
        history.records,
        lateness_bound=LATENESS,
        deadline_bound=OVERRUN,
        fence_bound=FENCE,
        passing_bound=0 if world.post is None else PASSED_OVER,
        unfit_bound=world.settings.unfit_wait,
    )
    kept = history.records if keep or errors or not verdict.ok else []
    return Result(scenario, verdict, errors, sometimes, world.loop.time(), kept)


@contextmanager
def _uncollected() -> Iterator[None]:
    """A world makes few cycles. To look for them all the time costs a thirtieth of it, so they wait for its end."""
    usual = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if usual:
            gc.enable()


@contextmanager
def _listening(errors: list[str]) -> Iterator[None]:
    """Loops go on after unexpected errors, and only log them: here each of them is a failure."""
    log = logging.getLogger("mainspring")
    listener, level, propagates = _Listener(errors), log.level, log.propagate
    log.addHandler(listener)
    log.setLevel(logging.WARNING)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(listener)
        log.setLevel(level)
        log.propagate = propagates


class _Listener(logging.Handler):
    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        # A stray cancellation is one of the faults: loops report it, and go on.
        if record.exc_info and not isinstance(record.exc_info[1], asyncio.CancelledError):
            self._errors.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


def run_scenarios(
    scenarios: Iterable[Scenario], *, bug: str | None = None, jobs: int | None = None
) -> Iterator[Result]:
    """Many scenarios in several processes (None: one per core), in order; histories only of those that failed."""
    run = partial(run_scenario, bug=bug, keep=False)
    scenarios = list(scenarios)
    jobs = min(jobs or os.cpu_count() or 1, len(scenarios))
    if jobs <= 1:
        yield from map(run, scenarios)
        return
    with ProcessPoolExecutor(jobs) as pool:
        try:
            yield from pool.map(run, scenarios)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def shrink(failed: Result, *, bug: str | None = None) -> Iterator[Result]:
    """Ever smaller scenarios that still break one of the same invariants; the last one is the smallest found."""
    smallest, wanted = failed, set(failed.signature)
    progress = True
    while progress:
        progress = False
        for scenario in _smaller(smallest.scenario):
            result = run_scenario(scenario, bug=bug)
            if wanted & set(result.signature):
                smallest, progress = result, True
                yield result
                break


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Less time, fewer processes, fewer kinds of faults; the largest steps first."""
    replace = msgspec.structs.replace
    for part in (0.25, 0.5, 0.75):
        if scenario.minutes * part >= 0.25:
            yield replace(scenario, minutes=round(scenario.minutes * part, 2))
    nodes, workers = scenario.nodes, scenario.workers
    for sizes in ((1, 1), (2, 2), (nodes - 1, workers), (nodes, workers - 1)):
        if sizes != (nodes, workers) and 1 <= sizes[0] <= nodes and 1 <= sizes[1] <= workers:
            yield replace(scenario, nodes=sizes[0], workers=sizes[1])
    for kinds in (CALLS, EVENTS, HABITS, *([kind] for kind in _present(scenario))):
        without = tuple(sorted({*scenario.without, *(kind for kind in kinds if kind in _present(scenario))}))
        if without != scenario.without:
            yield replace(scenario, without=without)


def _present(scenario: Scenario) -> list[str]:
    profile = PROFILES[scenario.profile]
    return [kind for kind in (*profile.calls, *profile.events, *sorted(profile.habits)) if kind not in scenario.without]


def command_of(scenario: Scenario) -> str:
    """The command that replays a scenario."""
    plain = Scenario(scenario.seed, scenario.profile)
    words = ["mainspring", "simulate", "--seed", str(scenario.seed), "--profile", scenario.profile]
    for name in ("minutes", "nodes", "workers"):
        if getattr(scenario, name) != getattr(plain, name):
            words += [f"--{name}", f"{getattr(scenario, name):g}"]
    if scenario.without:
        words += ["--without", ",".join(scenario.without)]
    return " ".join(words)
