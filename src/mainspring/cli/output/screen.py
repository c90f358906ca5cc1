"""Answers: JSON for programs, calm tables for people. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import click
import msgspec

from mainspring.cli.output.harmless import harmless, harmless_json
from mainspring.cli.session import Session

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

T = TypeVar("T")

PIPED_WIDTH = 160
"""The width without a terminal: wide enough that little is cut."""
_GAP = 2
_NARROWEST = 8
FEW = 20
"""Up to this many steps need no progress bar."""

STATE_STYLES = {
    "succeeded": "green",
    "failed": "red",
    "timed_out": "red",
    "dead": "red",
    "lost": "yellow",
    "missed": "yellow",
    "cancelled": "yellow",
    "draining": "yellow",
    "asked to drain": "yellow",
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


def size_text(size: int) -> str:
    """A number of bytes, in kB or MB."""
    return f"{size / 1_000_000:.1f} MB" if size >= 1_000_000 else f"{size / 1000:.0f} kB"


class Screen:
    """Writes answers the way the session wants them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._console: Console | None = None

    def json(self, value: object) -> None:
        """One JSON value."""
        click.echo(harmless_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))

    def encode(self, value: object) -> str:
        """One JSON value of a stream of them: a line each."""
        return harmless_json(msgspec.json.encode(value).decode())

    def warn(self, text: str) -> None:
        """Something that deserves attention, whatever is read by programs."""
        colored = self.session.colored(sys.stderr)
        click.echo(click.style(f"Warning: {self._readable(text)}", fg="yellow"), err=True, color=colored)

    def hint(self, text: str) -> None:
        """A note on stderr for people; programs that read stdout or JSON never see it."""
        if not self.session.as_json:
            click.echo(click.style(self._readable(text), dim=True), err=True, color=self.session.colored(sys.stderr))

    def _readable(self, text: str) -> str:
        return harmless(self.session.complete(text))

    def draw(self, content: RenderableType) -> None:
        """Anything that rich can draw."""
        self._print(content)

    def line(self, text: str = "", style: str = "") -> None:
        """A line of prose, wrapped at words."""
        self._print(_text(Cell(text, style)))

    def items(self, title: str, lines: Iterable[str]) -> None:
        """A titled list; nothing if it is empty."""
        lines = list(lines)
        if lines:
            self.title(title)
            for line in lines:
                self.facts([("•", self.session.complete(line))], width=1)

    def title(self, text: str) -> None:
        """What the following is about."""
        self._print("")
        self._print(_text(Cell(text, "bold")))

    def facts(self, pairs: Iterable[tuple[str, Value]], width: int = 12) -> None:
        """Names and values, one below the other; those without a value are left out."""
        from rich.padding import Padding
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(width=width, style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in pairs:
            if value is not None and value != "":
                grid.add_row(f"{name}", _text(value))
        self._print(Padding(grid, (0, 0, 0, 2)))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Value]],
        *,
        cut: Collection[str] = (),
        fold: Collection[str] = (),
        spare: Collection[str] = (),
    ) -> None:
        """A table. In a narrow terminal, columns in `cut` lose their ends and those in `fold` take more lines; if that
        is not enough, those in `spare` are left out, the first of them first."""
        from rich.table import Table

        table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, _GAP, 0, 0))
        texts = [[_text(value, one_line=True) for value in row] for row in rows]
        widths = {name: max([len(name), *(row[index].cell_len for row in texts)]) for index, name in enumerate(columns)}
        soft = {name for name in columns if name in cut or name in fold}
        hidden = _hide(widths, soft, spare, self.console.width)
        shown = {name: width for name, width in widths.items() if name not in hidden}
        for name, width in _fit(shown, soft, self.console.width).items():
            wraps = name in fold
            table.add_column(name, width=width, no_wrap=not wraps, overflow="fold" if wraps else "ellipsis")
        for row in texts:
            table.add_row(*(text for name, text in zip(columns, row, strict=True) if name not in hidden))
        self._print(table)
        if hidden:
            self.hint(f"Not shown, for want of room: {', '.join(hidden)}.")

    @property
    def console(self) -> Console:
        """rich, loaded when the first table is drawn."""
        if self._console is None:
            self._console = _new_console(self.session)
        return self._console

    def _print(self, content: RenderableType) -> None:
        """Through click, which survives redirection; without the blanks that tables end their lines with. A sentence is
        broken for people only: programs look for words in it."""
        from rich.text import Text

        with self.console.capture() as captured:
            self.console.print(content, soft_wrap=isinstance(content, Text) and not sys.stdout.isatty())
        for line in captured.get().splitlines():
            click.echo(line.rstrip(), color=self.session.colored())

    def track(self, items: Sequence[T], label: str) -> Iterator[T]:
        """The items one by one, with a progress bar on stderr if there are many and it is a terminal."""
        if len(items) < FEW or not sys.stderr.isatty() or self.session.as_json:
            return iter(items)
        from rich.console import Console
        from rich.progress import track

        return iter(track(items, description=label, console=Console(stderr=True), transient=True))

    def answer(self, value: object, draw: Callable[[], None]) -> None:
        """The value for programs, or what `draw` draws for people."""
        if self.session.as_json:
            self.json(value)
        else:
            draw()


def _hide(widths: Mapping[str, int], soft: Collection[str], spare: Iterable[str], room: int) -> list[str]:
    """Which columns to leave out so that the others fit into a line."""
    least = {name: min(width, _NARROWEST) if name in soft else width for name, width in widths.items()}
    hidden: list[str] = []
    for name in spare:
        if sum(least.values()) + _GAP * (len(least) - 1) <= room:
            break
        hidden.append(name)
        del least[name]
    return hidden


def _fit(widths: Mapping[str, int], soft: Collection[str], room: int) -> dict[str, int]:
    """Widths that fit into a line: the soft columns share what the others leave, and none takes more than it needs."""
    fitted = dict(widths)
    flexible = sorted((name for name in widths if name in soft), key=lambda name: widths[name])
    left = room - sum(width for name, width in widths.items() if name not in soft) - _GAP * (len(widths) - 1)
    for done, name in enumerate(flexible):
        fitted[name] = min(widths[name], max(left // (len(flexible) - done), _NARROWEST))
        left -= fitted[name]
    return fitted


def _new_console(session: Session) -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPED_WIDTH
    colored = session.colored()
    return Console(width=width, force_terminal=colored, color_system="standard" if colored else None, highlight=False)


def _text(value: Value, *, one_line: bool = False) -> Text:
    """Never markup, for a job may be called `[red]`; nor what would steer the terminal."""
    from rich.text import Text

    cell = value if isinstance(value, Cell) else Cell(value or "")
    text = " ".join(cell.text.splitlines()) if one_line else cell.text
    return Text().append(harmless(text), style=cell.style)
