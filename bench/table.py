"""The table, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.figures import Row
from bench.running import MAINSPRING, RIVALS

COLUMNS = tuple(contestant.label for contestant in (MAINSPRING, *RIVALS))
NARROWEST = 172
VERDICTS = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}


def print_table(rows: Sequence[Row], facts: Mapping[str, str]) -> None:
    """All figures side by side, with what they were to reach."""
    console = Console()
    if console.width < NARROWEST:
        console = Console(width=NARROWEST)
    for name, fact in facts.items():
        console.print(f"[dim]{name}:[/] {fact}", highlight=False)
    table = Table(show_lines=False, header_style="bold")
    table.add_column("measure", no_wrap=True)
    for label in COLUMNS:
        table.add_column(label, justify="right")
    for name in ("ratio", "target", ""):
        table.add_column(name)
    for row in rows:
        cells = [row.cells.get(label, "–") for label in COLUMNS]
        table.add_row(row.measure, *cells, row.ratio, row.target, VERDICTS[row.met])
    console.print(table, highlight=False)
