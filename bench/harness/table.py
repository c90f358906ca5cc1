"""The tables, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.harness.figures import Row
from bench.harness.running import MAINSPRING, RIVALS

COLUMNS = tuple(contestant.label for contestant in (MAINSPRING, *RIVALS))
NARROWEST = 172
VERDICTS = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}
NOTHING = "–"


def _console(facts: Mapping[str, str]) -> Console:
    console = Console()
    if console.width < NARROWEST:
        console = Console(width=NARROWEST)
    for name, fact in facts.items():
        console.print(f"[dim]{name}:[/] {fact}", highlight=False)
    return console


def print_table(rows: Sequence[Row], facts: Mapping[str, str], columns: Sequence[str] = COLUMNS) -> None:
    """All figures side by side, with what they were to reach."""
    console = _console(facts)
    table = Table(show_lines=False, header_style="bold")
    table.add_column("measure", no_wrap=True)
    for label in columns:
        table.add_column(label, justify="right")
    for name in ("ratio", "target", ""):
        table.add_column(name)
    for row in rows:
        cells = [row.cells.get(label, NOTHING) for label in columns]
        table.add_row(row.measure, *cells, row.ratio, row.target, VERDICTS[row.met])
    console.print(table, highlight=False)


def print_side_by_side(rows: Sequence[Row], facts: Mapping[str, str], labels: Sequence[str]) -> None:
    """With many contestants, one line each; and ours with its targets below."""
    console = _console(facts)
    shared = [row for row in rows if len(row.cells) > 1]
    if len(labels) > 1 and shared:
        table = Table(show_lines=False, header_style="bold")
        table.add_column("", no_wrap=True)
        for row in shared:
            table.add_column(row.measure, justify="right")
        for label in labels:
            table.add_row(label, *(row.cells.get(label, NOTHING) for row in shared))
        console.print(table, highlight=False)
    table = Table(show_lines=False, header_style="bold")
    for name in ("measure", labels[0], "ratio", "target", ""):
        table.add_column(name)
    for row in rows:
        own = row.cells.get(labels[0], "; ".join(f"{label} {cell}" for label, cell in row.cells.items()))
        table.add_row(row.measure, own, row.ratio, row.target, VERDICTS[row.met])
    console.print(table, highlight=False)
