"""Alerts for runs that have failed for good: each is sent by its own run, one per failure."""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from mainspring.core.ids import run_id_of
from mainspring.core.instants import Instant, format_instant
from mainspring.core.model import NewRun, Run, RunOptions
from mainspring.core.tasks.commands import split_command
from mainspring.errors import InvalidInput

LISTENER = "alerts"
"""The name of the position: the last event whose failure has been alerted."""
TAG = "alert"
"""The runs that send alerts have it; if they fail in turn, no alert follows."""
ONLY_NAMED = "named"
"""As a setting: alert only for runs that name a receiver themselves."""


def check_alert(text: str, field: str = "alert") -> str:
    """The receiver of an alert: the name of a task, a URL, or `$` and a command."""
    if not isinstance(text, str) or not text.strip() or text.strip() == "$":
        remedy = "name a task, give a URL, or write a command after a $"
        raise InvalidInput(field, text, "names no receiver", remedy)
    text = text.strip()
    if text.startswith("$"):
        split_command(text[1:], field)
    return text


def alert_of(run: Run, default: str | None, now: Instant) -> NewRun | None:
    """The run that alerts about this failed one; None if it has no receiver. `default` receives alerts of
    runs that name none."""
    options = msgspec.json.decode(run.options, type=RunOptions)
    receiver = options.alert or (None if default == ONLY_NAMED else default)
    if receiver is None or TAG in options.tags:
        return None
    task, args = _work(receiver, _facts(run))
    return NewRun(
        id=run_id_of(f"alert:{run.id}", run.created_at, "", 0),
        task=task,
        due_at=now,
        created_at=now,
        namespace=run.namespace,
        queue=run.queue,
        region=run.region,
        args=msgspec.json.encode(args).decode(),
        options=msgspec.json.encode(RunOptions(tags=(TAG,))).decode(),
    )


def _work(receiver: str, facts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    if receiver.startswith(("http://", "https://")):
        return "http", {"url": receiver, "json": facts}
    if receiver.startswith("$"):
        return "command", {"argv": shlex.split(receiver[1:]), "stdin": facts}
    return receiver, {"failure": facts}


def _facts(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.id,
        "job": run.job,
        "task": run.task,
        "namespace": run.namespace,
        "reason": run.reason,
        "attempts": run.attempt,
        "fire_at": None if run.fire_at is None else format_instant(run.fire_at),
        "finished_at": None if run.finished_at is None else format_instant(run.finished_at),
        "error": None if run.error is None else msgspec.Raw(run.error.encode()),
    }
