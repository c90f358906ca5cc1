"""Runs for people: the table of many, and the story of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mainspring.cli.output.screen import Cell, Screen, Value, state_cell
from mainspring.cli.output.times import both, clock_time, instant_of, length, moment, relative
from mainspring.cli.runs.arguments import PROVIDED
from mainspring.core.instants import Instant
from mainspring.core.states import FINAL, RUNNING, SUCCEEDED
from mainspring.core.tasks.commands import show_command
from mainspring.operations import records
from mainspring.operations.views.explain import short_id

_LONG = 300
_LONG_REASON = 60
"""A reason of the run that is longer is not said again at its attempt."""


class Story(NamedTuple):
    """All that is known of a run."""

    run: records.RunStory
    attempts: Sequence[records.Attempt]
    wrote: bool
    """Whether there is output of it."""
    now: Instant


def draw_runs(screen: Screen, runs: Sequence[records.Run], now: Instant) -> None:
    """Many runs, one line each."""
    rows = [_row(run, now) for run in runs]
    columns = ("RUN", "STATE", "WHAT", "DUE", "WAITED", "TOOK", "TRIES", "REASON")
    screen.table(columns, rows, cut=("WHAT", "REASON"), spare=("WAITED", "TRIES", "TOOK", "REASON"))


def _row(run: records.Run, now: Instant) -> list[Value]:
    waited, took = _waited(run, now), _took(run, now)
    return [
        short_id(run.run_id),
        state_cell(run.state),
        describe_run(run),
        relative(run.due_at, now),
        "" if waited is None else length(waited),
        "" if took is None else length(took),
        str(_tries(run) or ""),
        Cell(_remark(run), "dim"),
    ]


def _tries(run: records.Run) -> int:
    """How many attempts began: those that ended, and the one that runs."""
    return run.attempt + (run.state == RUNNING and run.started_at is not None)


def describe_run(run: records.Run) -> str:
    """What a run does: its job, its task, or its command as one would type it."""
    return run.job or (show_command(run.args) if run.task in PROVIDED else run.task)


def _remark(run: records.Run) -> str:
    if not run.reason and run.waits_for:
        return f"waits for {run.waits_for} run{'' if run.waits_for == 1 else 's'}"
    if run.reason or run.progress is None or run.state != RUNNING:
        return run.reason
    return f"{run.progress:.0%} {run.progress_note}".rstrip()


def _waited(run: records.Run, now: Instant) -> int | None:
    """How long it stood in the queue: from when it was due until it started, or until now. None if it never queued."""
    started, due = run.started_at, instant_of(run.due_at)
    until = instant_of(started) if started else (now if run.state not in FINAL else None)
    return None if until is None or until < due else until - max(due, instant_of(run.created_at))


def _took(run: records.Run, now: Instant) -> int | None:
    """How long its last attempt ran, or has been running."""
    if run.started_at is None:
        return None
    until = now if run.state == RUNNING else run.finished_at
    return None if until is None else max(instant_of(until) - instant_of(run.started_at), 0)


def draw_story(screen: Screen, story: Story) -> None:
    """One run: what it is, how it went, why it is where it is."""
    run = story.run
    screen.line(f"Run {run.run_id}", "bold")
    screen.facts(_facts(story))
    screen.items("Why it is not running" if run.state != RUNNING else "What holds it up", run.why)
    if story.attempts or run.state == RUNNING:
        screen.title("Attempts")
        columns = ("#", "STARTED", "TOOK", "OUTCOME", "WORKER", "REASON")
        screen.table(columns, _attempt_rows(story), fold=("REASON",), spare=("WORKER", "TOOK"))
    _draw_ending(screen, run)
    _draw_hints(screen, story)


def _facts(story: Story) -> list[tuple[str, Value]]:
    run, now = story.run, story.now
    where = [f"queue {run.queue}", f"region {run.region}", f"priority {run.priority}"]
    where += [] if run.key is None else [f"key {run.key}"]
    limits = [f"{run.retries} retries"]
    optional = (
        ("timeout", run.timeout),
        ("soft timeout", run.soft_timeout),
        ("total timeout", run.total_timeout),
        ("isolation", run.isolation),
    )
    limits += [f"{name} {value}" for name, value in optional if value is not None]
    limits += [] if run.under_pressure == "wait" else ["under pressure it does not wait"]
    waited, took = _waited(run, now), _took(run, now)
    return [
        ("state", state_cell(run.state)),
        ("reason", run.reason),
        ("task", show_command(run.args) if run.task in PROVIDED else run.task),
        ("arguments", None if not run.args or run.task in PROVIDED else _cut(run.args)),
        ("job", None if run.job is None else f"{run.job}, fired for {moment(run.fire_at) if run.fire_at else ''}"),
        ("retry of", run.retry_of),
        ("where", " · ".join(where)),
        ("moved", run.moved_because.removeprefix("moved ")),
        ("limits", " · ".join(limits)),
        ("tags", ", ".join(run.tags)),
        ("submitted", both(run.created_at, now) + (f" by {run.submitted_by}" if run.submitted_by else "")),
        ("due", both(run.due_at, now)),
        ("waited", None if waited is None else length(waited)),
        ("ran", None if took is None else f"{length(took)} in its last attempt" if _tries(run) > 1 else length(took)),
        ("finished", None if run.finished_at is None else both(run.finished_at, now)),
        ("progress", None if run.progress is None else f"{run.progress:.0%} {run.progress_note}".rstrip()),
        ("losses", str(run.losses) if run.losses else None),
        ("result", None if run.result is None else _cut(run.result)),
    ]


def _cut(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text)} characters; --json shows all)"


def _attempt_rows(story: Story) -> list[list[Value]]:
    run = story.run
    rows: list[list[Value]] = [_attempt_row(attempt, run) for attempt in story.attempts]
    if run.state == RUNNING and run.started_at is not None:
        took = length(_took(run, story.now) or 0)
        began = clock_time(run.started_at)
        rows.append([str(_tries(run)), began, took, state_cell(RUNNING), run.worker, _remark(run)])
    return rows


def _attempt_row(attempt: records.Attempt, run: records.Run) -> list[Value]:
    began, took = "", ""
    if attempt.started_at is not None:
        ran = instant_of(attempt.finished_at) - instant_of(attempt.started_at)
        began, took = clock_time(attempt.started_at), length(max(ran, 0))
    is_above = len(attempt.reason) > _LONG_REASON and attempt.reason == run.reason
    reason = "see above" if is_above else attempt.reason
    return [str(attempt.attempt), began, took, state_cell(attempt.outcome), attempt.worker, reason]


def _draw_ending(screen: Screen, run: records.Run) -> None:
    if run.error is None:
        return
    failure: dict[str, str] = run.error
    screen.title("Last error")
    short = f"{failure.get('type', 'Error')}: {failure.get('message', '')}".removesuffix(": ")
    screen.line(failure.get("traceback", "").rstrip() or short, "red")


def _draw_hints(screen: Screen, story: Story) -> None:
    run = story.run
    if story.wrote:
        screen.hint(f"\nIt wrote output: mainspring run logs {short_id(run.run_id)}")
    if run.state in FINAL and run.state != SUCCEEDED:
        screen.hint(f"Run it again: mainspring run retry {short_id(run.run_id)}")
