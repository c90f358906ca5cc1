"""Answers: JSON for programs, calm tables for people. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click
import msgspec

from mainspring.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")

PIPED_WIDTH = 160
"""Where no terminal says how wide it is: wide enough that little is cut."""
FEW = 20
"""So many steps need no progress bar."""

STATE_STYLES = {
    "succeeded": "green",
    "failed": "red",
    "timed_out": "red",
    "dead": "red",
    "lost": "yellow",
    "missed": "yellow",
    "cancelled": "yellow",
    "draining": "yellow",
    "skipped": "dim",
    "stopped": "dim",
    "blocked": "magenta",
    "pending": "cyan",
    "running": "blue",
    "active": "green",
    "fired": "blue",
}


class Cell(NamedTuple):
    """A text and its style."""

    text: str
    style: str = ""


def state_cell(state: str) -> Cell:
    """A state in its colour."""
    return Cell(state.replace("_", " "), STATE_STYLES.get(state, ""))


Value = str | Cell | None


class Screen:
    """Writes answers the way the session wants them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._console: Console | None = None

    def json(self, value: object) -> None:
        """One JSON value."""
        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())

    def json_line(self, value: object) -> None:
        """One JSON value of a stream of them."""
        click.echo(msgspec.json.encode(value).decode())

    def hint(self, text: str) -> None:
        """A word to the person who watches; programs that read stdout never see it, nor do those that read JSON."""
        if not self.session.as_json:
            styled = click.style(text, dim=True) if self.session.colored(sys.stderr) else text
            click.echo(styled, err=True, color=self.session.colored(sys.stderr))

    def line(self, text: str = "", style: str = "") -> None:
        """A line of prose, wrapped at words."""
        self.console.print(_text(Cell(text, style)))

    def items(self, title: str, lines: Iterable[str]) -> None:
        """A titled list; nothing if it is empty."""
        lines = list(lines)
        if lines:
            self.title(title)
            for line in lines:
                self.facts([("•", line)], width=1)

    def title(self, text: str) -> None:
        """What the following is about."""
        self.console.print()
        self.console.print(_text(Cell(text, "bold")))

    def facts(self, pairs: Iterable[tuple[str, Value]], width: int = 12) -> None:
        """Names and values, one below the other; those without a value are left out."""
        grid = _table_class().grid(padding=(0, 2))
        grid.add_column(width=width, style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in pairs:
            if value is not None and value != "":
                grid.add_row(f"{name}", _text(value))
        self.console.print(_indented(grid))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Value]], *, fold: Sequence[str] = ()) -> None:
        """A table. Columns in `fold` may take several lines; the others are cut where the terminal is too narrow."""
        table: Table = _table_class()(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(column, no_wrap=column not in fold, overflow="fold" if column in fold else "ellipsis")
        for row in rows:
            table.add_row(*(_text(value) for value in row))
        self.console.print(table)

    @property
    def console(self) -> Console:
        """rich on stdout, loaded when the first table is drawn."""
        if self._console is None:
            self._console = _new_console(self.session)
        return self._console

    def track(self, items: Sequence[T], label: str) -> Iterator[T]:
        """The items one by one, with a progress bar on stderr if there are many and somebody watches."""
        if len(items) < FEW or not sys.stderr.isatty() or self.session.as_json:
            return iter(items)
        console = import_module("rich.console").Console(stderr=True)
        tracked: Iterator[T] = iter(
            import_module("rich.progress").track(items, description=label, console=console, transient=True)
        )
        return tracked

    def answer(self, value: object, draw: Callable[[], None]) -> None:
        """The value for programs, or what `draw` draws for people."""
        if self.session.as_json:
            self.json(value)
        else:
            draw()


def _new_console(session: Session) -> Console:
    tall = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH
    colored = session.colored()
    console: Console = import_module("rich.console").Console(
        width=tall,
        force_terminal=colored,
        no_color=not colored,
        color_system="auto" if colored and sys.stdout.isatty() else "standard" if colored else None,
        highlight=False,
        soft_wrap=False,
    )
    return console


def _table_class() -> type[Table]:
    kind: type[Table] = import_module("rich.table").Table
    return kind


def _indented(content: object) -> object:
    return import_module("rich.padding").Padding(content, (0, 0, 0, 2))


def _text(value: Value) -> Text:
    """Never markup: a job may be called `[red]`."""
    cell = value if isinstance(value, Cell) else Cell(value or "")
    made: Text = import_module("rich.text").Text(cell.text, style=cell.style)
    return made
