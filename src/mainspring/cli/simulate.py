"""`mainspring simulate`: the real program in a virtual world where everything fails, judged by the checker."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from mainspring.cli.lazy import Verb
from mainspring.cli.screen import Cell, Screen
from mainspring.cli.session import Session
from mainspring.cli.trouble import FAILED
from mainspring.errors import InvalidInput

if TYPE_CHECKING:
    from mainspring.testing.simulation.runner import Result
    from mainspring.testing.simulation.world import Scenario

_SHOWN_ERRORS = 5
_FEW_SEEDS = 100
"""So many seeds need not have seen everything."""


class Words(TypedDict):
    """What the options gave."""

    seed: int | None
    seeds: int
    first: int
    profile: str
    minutes: float
    nodes: int
    workers: int
    without: str
    history: Path | None
    shrink: bool


@click.command(cls=Verb)
@click.option("--seeds", type=click.IntRange(1), default=20, show_default=True, help="How many seeds to run.")
@click.option("--first", type=int, default=0, help="The first of them.")
@click.option("--seed", type=int, help="Run this seed alone.")
@click.option("--profile", default="chaos", show_default=True, help="calm, crash, network, time, herd or chaos.")
@click.option(
    "--minutes", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Virtual minutes of a seed."
)
@click.option("--nodes", type=click.IntRange(1), default=3, show_default=True, help="Processes that schedule.")
@click.option("--workers", type=click.IntRange(1), default=4, show_default=True, help="Processes that work.")
@click.option("--without", default="", metavar="FAULTS", help="Faults that do not happen, e.g. crash,pause.")
@click.option("--history", type=click.Path(dir_okay=False, path_type=Path), help="Write the history of --seed here.")
@click.option("--shrink", is_flag=True, help="Look for a smaller scenario that fails in the same way.")
@click.pass_obj
def simulate(session: Session, **words: Unpack[Words]) -> int:
    """Run the scheduler in a virtual world where everything fails, and check what it did.

    A seed decides everything: the same seed gives the same history. Exits 1 if a promise was broken.
    """
    screen, began = Screen(session), time.monotonic()
    results, sometimes, seconds, failed = 0, Counter[str](), 0.0, list["Result"]()
    for result in _run(screen, _scenarios(words)):
        results += 1
        sometimes += result.sometimes
        seconds += result.virtual_seconds
        if not result.ok:
            failed.append(result)
            screen.warn(f"seed {result.scenario.seed} fails: {_kind(result)}")
        if words["history"] is not None and words["seed"] is not None:
            _write(words["history"], result)
    if failed and words["shrink"]:
        failed[0] = _shrink(screen, failed[0])
    report = _Report(results, failed, sometimes, seconds / 3600, (time.monotonic() - began) / 60)
    screen.answer(report.view(), lambda: report.draw(screen))
    return FAILED if failed else 0


def _scenarios(words: Words) -> list[Scenario]:
    from mainspring.testing.simulation.faults import CALLS, EVENTS, HABITS, PROFILES
    from mainspring.testing.simulation.world import Scenario

    if words["profile"] not in PROFILES:
        raise InvalidInput("profile", words["profile"], "is not a profile", f"choose one of {', '.join(PROFILES)}")
    without = tuple(sorted(filter(None, words["without"].split(","))))
    if unknown := [kind for kind in without if kind not in (*CALLS, *EVENTS, *HABITS)]:
        remedy = f"choose among {', '.join((*CALLS, *EVENTS, *HABITS))}"
        raise InvalidInput("without", unknown[0], "is not a fault", remedy)
    first, count = (words["first"], words["seeds"]) if words["seed"] is None else (words["seed"], 1)
    return [
        Scenario(seed, words["profile"], words["minutes"], words["nodes"], words["workers"], without)
        for seed in range(first, first + count)
    ]


def _run(screen: Screen, scenarios: Sequence[Scenario]) -> Iterator[Result]:
    from mainspring.testing.simulation.runner import run_scenario, run_scenarios

    if len(scenarios) == 1:
        yield run_scenario(scenarios[0])
    elif sys.stderr.isatty() and not screen.session.as_json:
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        yield from track(run_scenarios(scenarios), "simulating", len(scenarios), console=console, transient=True)
    else:
        yield from run_scenarios(scenarios)


def _shrink(screen: Screen, failed: Result) -> Result:
    from mainspring.testing.simulation.runner import command_of, shrink

    for smaller in shrink(failed):
        failed = smaller
        screen.hint(f"fails too: {command_of(failed.scenario)}")
    return failed


def _write(path: Path, result: Result) -> None:
    from mainspring.testing.history import dump

    path.write_bytes(dump(result.history))


def _kind(result: Result) -> str:
    broken = dict.fromkeys(violation.invariant for violation in result.verdict.violations)
    return ", ".join([*broken, *(["an unexpected error"] if result.errors else [])])


class _Report:
    """What came of all seeds."""

    def __init__(
        self, seeds: int, failed: Sequence[Result], sometimes: Counter[str], virtual_h: float, real_min: float
    ) -> None:
        from mainspring.testing.simulation.sometimes import unseen

        self._seeds = seeds
        self._failed = failed
        self._sometimes = sometimes
        self._virtual_h = virtual_h
        self._pace = virtual_h / real_min if real_min > 0 else 0.0
        self._unseen = unseen(sometimes)

    def view(self) -> dict[str, object]:
        """For programs."""
        from mainspring.testing.simulation.runner import command_of

        return {
            "seeds": self._seeds,
            "failed": [
                {
                    "seed": result.scenario.seed,
                    "command": command_of(result.scenario),
                    "violations": [str(violation) for violation in result.verdict.violations],
                    "errors": result.errors,
                }
                for result in self._failed
            ],
            "virtual_hours": round(self._virtual_h, 3),
            "virtual_hours_per_minute": round(self._pace, 3),
            "sometimes": dict(sorted(self._sometimes.items())),
            "never": self._unseen,
        }

    def draw(self, screen: Screen) -> None:
        """For people."""
        from mainspring.testing.simulation.runner import command_of

        for result in self._failed:
            screen.title(f"Seed {result.scenario.seed} fails")
            screen.line(str(result.verdict))
            screen.items("Unexpected errors", result.errors[:_SHOWN_ERRORS])
            screen.line(f"Replay it with: {command_of(result.scenario)}")
        happened = [(f"{count:>9,}", name) for name, count in self._sometimes.most_common()]
        screen.title("What happened")
        screen.table(("times", "what"), happened)
        if self._seeds >= _FEW_SEEDS:
            screen.items("What never happened", self._unseen)
        state = Cell(f"{len(self._failed)} of them fail", "red") if self._failed else Cell("all promises kept", "green")
        screen.title("In short")
        screen.facts(
            [("seeds", str(self._seeds)), ("virtual", f"{self._virtual_h:.1f} h, {self._pace:.1f} h a minute"),
             ("verdict", state)]
        )  # fmt: skip
