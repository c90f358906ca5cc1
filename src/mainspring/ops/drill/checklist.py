"""The checklist of a drill: each line passes, fails or is skipped, with its time; and the report of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec

from mainspring.core.instants import DAY, MINUTE, Duration, Instant, format_duration, format_instant
from mainspring.errors import MainspringError

Judgement = Literal["pass", "fail", "skipped"]

MOST_RECOVERY: Duration = 15 * MINUTE
"""The recovery time objective: from the failure until work is accepted again."""
MOST_LOST: Duration = 5 * MINUTE
"""The recovery point objective: the age of the oldest accepted work that is lost."""
BETWEEN: Duration = 91 * DAY
"""Drills are due each quarter."""


class Check(msgspec.Struct, kw_only=True):
    """One check of the list."""

    part: str
    name: str
    state: Judgement = "pass"
    detail: str = ""
    at_s: float
    """When it began, in seconds since the drill did."""
    took_s: float = 0.0


class CheckFailed(MainspringError):
    """A check does not hold."""


class Report(msgspec.Struct, kw_only=True):
    """What a drill found."""

    began_at: Instant
    primary: str
    standby: str
    lines: list[Check]
    recovery_s: float | None = None
    """Seconds from the failure until work was accepted again; None if it never was."""
    lost_s: float | None = None
    """How old the oldest accepted work was that is lost; 0 if none is, None if that is not known."""
    lost: int = 0
    """How many accepted submissions are lost."""
    figures: dict[str, float] = {}
    """What was measured, by name."""

    @property
    def passed(self) -> bool:
        """Whether no line failed."""
        return all(line.state != "fail" for line in self.lines)

    @property
    def next_at(self) -> Instant:
        """When the next drill is due."""
        return self.began_at + BETWEEN

    @property
    def next_drill(self) -> str:
        """When the next drill is due, for people."""
        return f"by {format_instant(self.next_at)[:10]}" if self.passed else "now: this one failed"

    def as_markdown(self) -> str:
        """The report for people."""
        rows, part = list[str](), ""
        for line in self.lines:
            if line.part != part:
                part = line.part
                rows += ["", f"## {part}", "", "| line | result | at | took | |", "|---|---|---|---|---|"]
            times = f"{line.at_s:.1f} s | {line.took_s:.2f} s"
            rows.append(f"| {line.name} | {line.state.upper()} | {times} | {_cell(line.detail)} |")
        improve = [f"- {line.name}: {line.detail}" for line in self.lines if line.state != "pass"]
        figures = [f"| {name} | {value:,.4g} |" for name, value in self.figures.items()]
        return "\n".join(
            [
                f"# Disaster drill of {format_instant(self.began_at)}: {'PASS' if self.passed else 'FAIL'}",
                "",
                f"- Primary: `{self.primary}`. Standby: `{self.standby}`.",
                f"- Recovery time: {_seconds(self.recovery_s)} (target: below {format_duration(MOST_RECOVERY)}).",
                f"- Recovery point: {_seconds(self.lost_s)}, {self.lost} submissions lost "
                f"(target: below {format_duration(MOST_LOST)}).",
                f"- Next drill: {self.next_drill}.",
                *rows,
                "",
                "## To improve until the next drill",
                "",
                *(improve or ["- Nothing: every line passed."]),
                "",
                "## Figures",
                "",
                "| figure | value |",
                "|---|---|",
                *figures,
                "",
            ]
        )


class Checklist:
    """Records lines while a drill goes on."""

    def __init__(self, on_line: Callable[[Check], None] = lambda line: None) -> None:
        """`on_line` is called with each line that is complete."""
        self.lines: list[Check] = []
        self._on_line = on_line
        self._began = time.monotonic()

    def elapsed(self) -> float:
        """Seconds since the drill began."""
        return time.monotonic() - self._began

    @contextmanager
    def line(self, part: str, name: str) -> Iterator[Check]:
        """One line: it fails if its body raises an error of Mainspring, and the drill goes on."""
        line = Check(part=part, name=name, at_s=self.elapsed())
        try:
            yield line
        except (MainspringError, OSError, TimeoutError) as error:
            line.state, line.detail = "fail", str(error) or type(error).__name__
        finally:
            line.took_s = self.elapsed() - line.at_s
            self.lines.append(line)
            self._on_line(line)

    def skip(self, part: str, name: str, why: str) -> None:
        """A line that does not apply here."""
        with self.line(part, name) as line:
            line.state, line.detail = "skipped", why


def need(holds: bool, otherwise: str) -> None:
    """CheckFailed with these words unless it holds."""
    if not holds:
        raise CheckFailed(otherwise)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _seconds(value: float | None) -> str:
    return "not known" if value is None else f"{value:.1f} s"
