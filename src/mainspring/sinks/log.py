"""Events as readable lines: what `mainspring up` shows while it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainspring.core.instants import format_duration, to_datetime
from mainspring.core.model import Event, EventBatch

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
}
_QUIET = frozenset({"run.submitted"})
"""What a person watching need not see: it is followed by something that tells more."""


class LogSink:
    """Writes a line per event. `write` gets the line and the kind of the event, so that it can choose a colour."""

    def __init__(self, write: Callable[[str, str], None]) -> None:
        self._write = write

    async def deliver(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            for event in batch.events:
                if event.kind not in _QUIET:
                    self._write(describe(event), event.kind)


def describe(event: Event) -> str:
    """One line: the time, what happened, to what, and why."""
    moment = to_datetime(event.at).astimezone()
    time = moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    subject = event.job or event.task or event.worker or ""
    verb = event.kind.partition(".")[2].replace("_", " ")
    parts = [time, _MARKS.get(event.kind, " "), f"{verb:<10}", subject]
    if event.fire_at is not None and event.kind.startswith("firing."):
        parts.append(f"due {to_datetime(event.fire_at).astimezone():%H:%M:%S}")
    if event.duration is not None:
        parts.append(f"in {_short(event.duration)}")
    if event.attempt is not None and event.attempt > 1:
        parts.append(f"attempt {event.attempt}")
    if event.count is not None and event.count > 1 and event.kind.startswith("firing."):
        parts.append(f"×{event.count}")
    if event.run_id is not None:
        parts.append(f"[{event.run_id[-8:]}]")
    if event.reason:
        parts.append(f"— {event.reason}")
    return " ".join(parts)


def _short(duration: int) -> str:
    if duration < 1_000_000:
        return f"{duration / 1000:.1f}ms"
    return format_duration(duration // 10_000 * 10_000)
