"""`mainspring completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mainspring.cli.lazy import Verb
from mainspring.cli.output.screen import Screen


@click.command(cls=Verb)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, jobs and runs.

    \b
    eval "$(mainspring completion bash)"      in ~/.bashrc
    eval "$(mainspring completion zsh)"       in ~/.zshrc
    mainspring completion fish > ~/.config/fish/completions/mainspring.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    script = kind(ctx.find_root().command, {}, "mainspring", "_MAINSPRING_COMPLETE").source()
    screen = Screen(ctx.obj)
    screen.answer({"shell": shell, "script": script}, lambda: click.echo(script))
