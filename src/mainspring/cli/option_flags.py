"""The flags of commands for the options of runs and jobs: one for each row of `operations.jobs.options.OPTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from mainspring.cli.lazy import stack
from mainspring.cli.naming import complete_job, complete_run
from mainspring.core.runs.retry import RetryPolicy
from mainspring.operations.jobs.options import Option, options_of

NONE = "none"
"""Typed instead of a value, it takes the value away."""
_COMPLETE: dict[str, Any] = {"JOB": complete_job, "RUN": complete_run}

retry_flags = stack(
    click.option("--retries", type=int, help="How often to try again after a failure; 3 by default, 0 for never."),
    click.option(
        "--retry-policy", type=click.Choice(get_args(RetryPolicy)), help="How long to wait before each retry."
    ),
)
"""The flags that make a `Retry`."""


def flags_of(what: str) -> Callable[[Any], Any]:
    """The flags of all options that apply to runs or to jobs."""
    return stack(retry_flags, *(_flag(option) for option in options_of(what) if option.flag is not None))


def _flag(option: Option) -> Callable[[Any], Any]:
    kind = option.kind
    words: dict[str, Any] = {"help": option.doc.replace("`", ""), "multiple": kind.several}
    if kind.words:
        words["type"] = click.Choice(kind.words)
    elif kind.metavar == "NUMBER":
        words |= {"callback": _read_number, "metavar": "NUMBER"}
    else:
        words |= {"metavar": kind.metavar, "shell_complete": _COMPLETE.get(kind.metavar)}
    return click.option(f"--{(option.flag or option.name).replace('_', '-')}", option.name, **words)


def _read_number(ctx: click.Context, param: click.Parameter, value: str | None) -> int | str | None:
    """A whole number, or `none`. Which numbers are right, the option says itself."""
    if value is None or value == NONE:
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"'{value}' is not a whole number.", ctx, param) from None
