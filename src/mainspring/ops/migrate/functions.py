"""Functions of other schedulers as tasks: which task runs what they ran, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mainspring.errors import InvalidInput
from mainspring.sdk.app import Mainspring


def task_name(reference: str, app: Mainspring | None) -> str:
    """The task of a function or task of theirs, such as `shop.mail:send` or `shop.tasks.send`.

    A task of the app that has the whole name comes first; otherwise the last part is the name.
    """
    if app is not None and reference in app.tasks:
        return reference
    return reference.replace(":", ".").rpartition(".")[2]


def unknown_task(task: str, app: Mainspring | None) -> list[str]:
    """What to say of a task that the app lacks: no worker of that app would run the job."""
    return [] if app is None or task in app.tasks else [f"task: the app has no {task!r}; register it"]


def encode_call(task: str, args: Sequence[Any], kwargs: Mapping[str, Any], app: Mainspring | None) -> str:
    """The arguments of a call as they are stored, by name.

    Positional ones need the signature of the task, so InvalidInput if no app has it, or if JSON cannot carry one.
    """
    known = None if app is None else app.tasks.get(task)
    if known is not None and app is not None:
        return known.signature.encode(tuple(args), kwargs, app.settings.payload_limit)
    if args:
        remedy = f"name the app that has the task {task!r}: --app APP"
        raise InvalidInput("args", list(args), "are positional, and are stored by name here", remedy)
    try:
        return msgspec.json.encode(dict(kwargs)).decode()
    except (TypeError, ValueError) as error:
        raise InvalidInput("kwargs", dict(kwargs), f"cannot be stored: {error}", "give values that JSON has") from None
