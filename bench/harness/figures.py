"""From samples to figures, and from figures to text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.harness.script import Answer


@dataclass
class Series:
    """What one contestant answered, round by round; or why it did not."""

    answers: list[Answer] = field(default_factory=list)
    trouble: str = ""

    def rounds(self, value: Callable[[Answer], float]) -> list[float]:
        """The figure of each round; none if one of them went wrong."""
        return [] if self.trouble else [value(answer) for answer in self.answers]

    def figure(self, value: Callable[[Answer], float]) -> float | None:
        """The median of the rounds."""
        rounds = self.rounds(value)
        return statistics.median(rounds) if rounds else None

    def mapped(self, change: Callable[[Answer], Answer]) -> Series:
        """The same rounds, seen otherwise."""
        return Series([change(answer) for answer in self.answers], self.trouble)

    @property
    def void(self) -> str:
        """Why there is no figure, in a few words; nothing if there is one."""
        return f"void: {self.trouble.removeprefix('void: ')[:60]}" if self.trouble else ""


@dataclass
class Row:
    """One line of the table."""

    measure: str
    cells: dict[str, str]
    ratio: str = ""
    target: str = ""
    met: bool | None = None
    rounds: dict[str, list[float]] = field(default_factory=dict)
    """What each round gave, for readers that want to see the noise."""


def percentile(samples: Sequence[float], share: float) -> float:
    """The nearest rank: a value that really occurred."""
    ordered = sorted(samples)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]


def rate(answer: Answer) -> float:
    """Per second: the median of what a program measured in turns."""
    return float(statistics.median(answer["rates"]))


def at(share: float) -> Callable[[Answer], float]:
    """A percentile of the samples of an answer."""
    return lambda answer: percentile(answer["samples_ms"], share)


def show(value: float | None, unit: str = "") -> str:
    """Three digits that mean something: noise is in the others."""
    if value is None:
        return "–"
    if value >= 1000:
        text = f"{value:,.0f}"
    elif value >= 100:
        text = f"{value:.0f}"
    elif value >= 10:
        text = f"{value:.1f}"
    else:
        text = f"{value:.2f}"
    return f"{text} {unit}".strip()


def share_of(value: float | None, other: float | None, whose: str) -> str:
    """How many times the other it is."""
    if value is None or not other:
        return ""
    return f"{value / other:.2f} × {whose}"
