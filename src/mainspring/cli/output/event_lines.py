"""Events and summaries as readable lines, for people at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.cli.output.times import clock_time
from mainspring.core.instants import format_duration, parse_duration
from mainspring.operations.records import Event

if TYPE_CHECKING:
    from mainspring.services.activity import Summary

_MARKS = {
    "firing.fired": "⏰",
    "firing.missed": "·",
    "firing.skipped": "·",
    "run.running": "▶",
    "run.succeeded": "✓",
    "run.failed": "✗",
    "run.retrying": "↻",
    "run.lost": "!",
    "run.cancelled": "■",
    "run.cancelling": "■",
    "run.skipped": "·",
    "run.handed_back": "↩",
    "run.moved": "→",
}


def describe_event(event: Event, command: str = "") -> str:
    """One line: the time, what happened, to what, and why. `command` names a run that has no job."""
    subject = event.job or command or event.task or event.worker or ""
    verb = event.kind.partition(".")[2].replace("_", " ")
    parts = [clock_time(event.at), _MARKS.get(event.kind, " "), f"{verb:<10}", subject]
    if event.fire_at is not None and event.kind.startswith("firing."):
        due, today = event.fire_at.astimezone(), event.at.astimezone().date()
        parts.append(f"due {due:%H:%M:%S}" if due.date() == today else f"due {due:%a %Y-%m-%d %H:%M:%S}")
    if event.duration is not None:
        parts.append(f"in {_short(parse_duration(event.duration))}")
    if event.attempt is not None and event.attempt > 1:
        parts.append(f"attempt {event.attempt}")
    if event.count is not None and event.count > 1 and event.kind.startswith("firing."):
        parts.append(f"×{event.count}")
    if event.run_id is not None:
        parts.append(f"[{event.run_id[-8:]}]")
    if event.reason:
        parts.append(f"— {event.reason}")
    return " ".join(parts)


def describe_summary(summary: Summary) -> str:
    """One line: what a worker did since its last summary."""
    counts = ("claimed", "succeeded", "failed", "retried")
    done = ", ".join(f"{name} {getattr(summary, name)}" for name in counts)
    return f"{clock_time(summary.at)} = {summary.seconds} s   {done}, in hand {summary.in_hand}"


def _short(duration: int) -> str:
    if duration < 1_000_000:
        return f"{duration / 1000:.1f}ms"
    return format_duration(duration // 10_000 * 10_000)
