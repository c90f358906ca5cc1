"""`mainspring simulate`: the real program in a virtual world where everything fails, judged by the checker."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from mainspring.cli.lazy import Verb
from mainspring.cli.output.errors import FAILED
from mainspring.cli.output.screen import Cell, Screen
from mainspring.cli.session import Session
from mainspring.testing.simulation.faults import PROFILES

if TYPE_CHECKING:
    from mainspring.testing.simulation import Report, Result, Scenario

_SHOWN_ERRORS = 5


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
    jobs: int | None
    history: Path | None
    shrink: bool


@click.command(cls=Verb)
@click.option("--seeds", type=click.IntRange(1), default=20, show_default=True, help="How many seeds to run.")
@click.option("--first", type=int, default=0, help="The first of them.")
@click.option("--seed", type=int, help="Run this seed alone.")
@click.option("--profile", default="chaos", show_default=True, help=f"What fails: {', '.join(PROFILES)}.")
@click.option(
    "--minutes", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Virtual minutes of a seed."
)
@click.option("--nodes", type=click.IntRange(1), default=3, show_default=True, help="Processes that schedule.")
@click.option("--workers", type=click.IntRange(1), default=4, show_default=True, help="Processes that work.")
@click.option("--without", default="", metavar="FAULTS", help="Faults that do not happen, e.g. crash,pause.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Processes that share the seeds; one per core.")
@click.option("--history", type=click.Path(dir_okay=False, path_type=Path), help="Write the history of --seed here.")
@click.option("--shrink", is_flag=True, help="Look for a smaller scenario that fails in the same way.")
@click.pass_obj
def simulate(session: Session, **words: Unpack[Words]) -> int:
    """Run the scheduler in a virtual world where everything fails, and check what it did.

    A seed decides everything: the same seed gives the same history. Exits 1 if a promise was broken, or if something
    that this many seeds should have brought never happened.
    """
    from mainspring.testing.simulation import Report

    screen, began, report = Screen(session), time.monotonic(), Report()
    for result in _run(screen, _scenarios(words), words["jobs"]):
        report.add(result)
        if not result.ok:
            screen.warn(f"seed {result.scenario.seed} fails: {_kind(result)}")
        if words["history"] is not None and words["seed"] is not None:
            _write(words["history"], result)
    if report.failed and words["shrink"]:
        report.failed[0] = _shrink(screen, report.failed[0])
    real_s = time.monotonic() - began
    screen.answer(_view(report, real_s), lambda: _draw(screen, report, real_s))
    return 0 if report.ok else FAILED


def _scenarios(words: Words) -> list[Scenario]:
    from mainspring.testing.simulation import Scenario

    without = tuple(sorted(filter(None, words["without"].split(","))))
    first, count = (words["first"], words["seeds"]) if words["seed"] is None else (words["seed"], 1)
    return [
        Scenario(seed, words["profile"], words["minutes"], words["nodes"], words["workers"], without)
        for seed in range(first, first + count)
    ]


def _run(screen: Screen, scenarios: Sequence[Scenario], jobs: int | None) -> Iterator[Result]:
    from mainspring.testing.simulation import run_scenario, run_scenarios

    if len(scenarios) == 1:
        yield run_scenario(scenarios[0])
    elif sys.stderr.isatty() and not screen.session.as_json:
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        yield from track(
            run_scenarios(scenarios, jobs=jobs), "simulating", len(scenarios), console=console, transient=True
        )
    else:
        yield from run_scenarios(scenarios, jobs=jobs)


def _shrink(screen: Screen, failed: Result) -> Result:
    from mainspring.testing.simulation import command_of, shrink

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


def _pace(report: Report, real_s: float) -> float:
    """Virtual hours in a real minute."""
    return report.virtual_seconds / 60 / real_s if real_s > 0 else 0.0


def _view(report: Report, real_s: float) -> dict[str, object]:
    """The result as JSON."""
    from mainspring.testing.simulation import command_of

    return {
        "seeds": report.seeds,
        "failed": [
            {
                "seed": result.scenario.seed,
                "command": command_of(result.scenario),
                "violations": [str(violation) for violation in result.verdict.violations],
                "errors": result.errors,
            }
            for result in report.failed
        ],
        "virtual_hours": round(report.virtual_seconds / 3600, 3),
        "virtual_hours_per_minute": round(_pace(report, real_s), 3),
        "faults": report.faults,
        "sometimes": dict(sorted(report.sometimes.items())),
        "never": report.unseen,
    }


def _draw(screen: Screen, report: Report, real_s: float) -> None:
    """Print the result for people."""
    from mainspring.testing.simulation import command_of

    for result in report.failed:
        screen.title(f"Seed {result.scenario.seed} fails")
        screen.line(str(result.verdict))
        screen.items("Unexpected errors", result.errors[:_SHOWN_ERRORS])
        screen.line(f"Replay it with: {command_of(result.scenario)}")
    screen.title("What happened")
    screen.table(("times", "what"), [(f"{count:>9,}", name) for name, count in report.sometimes.most_common()])
    screen.items("What never happened, and should have", report.unseen)
    state = Cell("all promises kept", "green")
    if report.failed:
        state = Cell(f"{len(report.failed)} of them fail", "red")
    elif report.unseen:
        state = Cell("all promises kept, but not all was tried", "yellow")
    virtual = f"{report.virtual_seconds / 3600:.1f} h, {_pace(report, real_s):.1f} h a minute"
    screen.title("In short")
    screen.facts([("seeds", str(report.seeds)), ("virtual", virtual), ("verdict", state)])
