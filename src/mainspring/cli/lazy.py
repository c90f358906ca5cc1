"""Commands that are imported only when they are used, so that `mainspring --help` costs no more than click itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Entry(NamedTuple):
    """Where a command is, as `module:name`, and what it does in one line."""

    target: str
    summary: str


class LazyGroup(click.Group):
    """A group that knows the names and summaries of its commands, and imports the one that is called."""

    def __init__(
        self,
        name: str,
        summary: str,
        entries: Mapping[str, Entry | LazyGroup],
        headings: Mapping[str, str] | None = None,
    ) -> None:
        """`headings` divide a long list in the help: each is the first command of a section and its title."""
        super().__init__(name, help=summary, short_help=summary, context_settings=dict(CONTEXT))
        self.entries = entries
        self.headings = headings or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table, which is the order in which people need them."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, imported now."""
        entry = self.entries.get(cmd_name)
        if entry is None or isinstance(entry, LazyGroup):
            return entry
        module, _, attribute = entry.target.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), entry.target
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An unknown name is answered with the nearest known one."""
        name = args[0]
        if name not in self.entries and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, self.entries, n=1)
            remedy = f"Did you mean '{near[0]}'?" if near else f"The commands are {', '.join(self.entries)}."
            raise click.UsageError(f"There is no command '{name}'. {remedy}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table alone, so that help imports none of them."""
        sections: dict[str, list[tuple[str, str]]] = {}
        heading = "Commands"
        for name, entry in self.entries.items():
            heading = self.headings.get(name, heading)
            sections.setdefault(heading, []).append((name, _summary(entry)))
        width = max(len(name) for name in self.entries)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in rows])


class SourceGroup(LazyGroup):
    """A group whose commands are kinds of sources, which may be written as options, too: `import --kubernetes FILE` is
    `import kubernetes FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the kind first, without its hyphens."""
        if args and args[0] not in self.entries:
            kind = next((each for each in args if each.startswith("--") and each[2:] in self.entries), None)
            if kind is not None:
                args.remove(kind)
                args = [kind[2:], *args]
        return super().parse_args(ctx, args)


def _summary(entry: Entry | LazyGroup) -> str:
    return entry.summary if isinstance(entry, Entry) else entry.short_help or ""


def stack(*options: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Several options as one decorator; help lists them in this order."""

    def add(command: Decorated) -> Decorated:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class Verb(click.Command):
    """A command with what every command takes: where the store is, how to write the answer, how to show trouble."""

    def __init__(self, name: str | None, **words: Any) -> None:
        words.setdefault("context_settings", dict(CONTEXT))
        own = list(words.get("params") or ())
        taken = {name for param in own for name in param.opts}
        words["params"] = [*own, *(param for param in _shared() if not taken & set(param.opts))]
        super().__init__(name, **words)


class RemoteVerb(Verb):
    """A command that can as well be sent to a server."""

    def __init__(self, name: str | None, **words: Any) -> None:
        words["params"] = [*(words.get("params") or ()), *_reaching()]
        super().__init__(name, **words)


def _keep(ctx: click.Context, param: click.Parameter, value: object) -> None:
    if value is not None and param.name is not None:
        setattr(ctx.obj, param.name, value)


# Eager: an error in another option must already be reported in the requested format.
_KEPT: dict[str, Any] = {"expose_value": False, "is_eager": True, "callback": _keep, "default": None}


def _reaching() -> list[click.Parameter]:
    return [
        click.Option(
            ["--server"],
            metavar="URL",
            help="Ask a server (or a,b,c), not a database (MAINSPRING_SERVER).",
            **_KEPT,
        ),
        click.Option(["--token"], help="For the server; better kept in MAINSPRING_TOKEN, unseen.", **_KEPT),
    ]


def _shared() -> list[click.Parameter]:
    return [
        click.Option(["--store"], metavar="URL", help="The database, e.g. sqlite:///mainspring.db.", **_KEPT),
        click.Option(["--namespace"], help="The tenant; `default` unless given (MAINSPRING_NAMESPACE).", **_KEPT),
        click.Option(["--json", "as_json"], is_flag=True, help="Answer in JSON.", **_KEPT),
        click.Option(["--color"], type=click.Choice(["auto", "always", "never"]), help="When to use colours.", **_KEPT),
        click.Option(["--debug"], is_flag=True, help="Show tracebacks.", **_KEPT),
    ]
