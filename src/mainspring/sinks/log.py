"""Events as readable lines: what `mainspring up` shows while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from mainspring.core.instants import format_duration, to_datetime
from mainspring.core.model import PROVIDED_TASKS, Event, EventBatch

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


_MOST_LOOKS = 20
"""More commands at once than this are told by the name of their task alone: nobody reads that fast."""
_MOST_SEEN = 1_000
Look = Callable[[Event], Awaitable[str]]


class LogSink:
    """Writes a line per event. `write` gets the line and the kind of the event, so that it can choose a colour. `look`
    finds out what a command without a job is: the event has the name of its task only."""

    def __init__(self, write: Callable[[str, str], None], look: Look | None = None) -> None:
        self._write = write
        self._look = look
        self._seen: dict[str, str] = {}

    async def deliver(self, batches: Sequence[EventBatch]) -> None:
        events = [event for batch in batches for event in batch.events if event.kind not in _QUIET]
        unnamed = {event.run_id: event for event in events if event.job is None and event.task in PROVIDED_TASKS}
        if self._look is not None and len(unnamed) <= _MOST_LOOKS:
            for run_id, event in unnamed.items():
                if run_id is not None and run_id not in self._seen:
                    self._seen[run_id] = await self._look(event)
        for event in events:
            self._write(describe(event, self._seen.get(event.run_id or "", "")), event.kind)
        for run_id in list(self._seen)[:-_MOST_SEEN]:
            del self._seen[run_id]


def describe(event: Event, what: str = "") -> str:
    """One line: the time, what happened, to what, and why."""
    moment = to_datetime(event.at).astimezone()
    time = moment.strftime("%H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    subject = event.job or what or event.task or event.worker or ""
    verb = event.kind.partition(".")[2].replace("_", " ")
    parts = [time, _MARKS.get(event.kind, " "), f"{verb:<10}", subject]
    if event.fire_at is not None and event.kind.startswith("firing."):
        due = to_datetime(event.fire_at).astimezone()
        parts.append(f"due {due:%H:%M:%S}" if due.date() == moment.date() else f"due {due:%a %Y-%m-%d %H:%M:%S}")
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
