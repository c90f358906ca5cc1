"""Background work that must not end unasked: was a cancellation meant for this task, where does a task wait, and a
repetition that only its own cancellation ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

log = logging.getLogger("mainspring")


def is_cancelled() -> bool:
    """Whether the running task was asked to end. A `CancelledError` while it was not comes from something that it
    awaited, and is a failure of that, not its own end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def where(task: asyncio.Task[Any]) -> str:
    """The functions in which a task waits, outermost first. Only when something is wrong: it is not cheap."""
    places = []
    step: Any = task.get_coro()
    while step is not None:
        frame = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None) or getattr(step, "ag_frame", None)
        if frame is None:
            break
        code = frame.f_code
        places.append(f"{code.co_qualname} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
        step = getattr(step, "cr_await", None) or getattr(step, "gi_yieldfrom", None) or getattr(step, "ag_await", None)
    return " > ".join(places) or "nowhere: it has ended"


async def endure(name: str, attempt: Callable[[], Awaitable[object]], pause_s: float) -> None:
    """Repeat `attempt`, with a pause after each, until this task itself is cancelled. What it raises is logged."""
    while True:
        try:
            await attempt()
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            log.error("%s: cancelled by something else; it goes on", name, exc_info=error)
        except Exception as error:
            log.error("%s: failed, and goes on", name, exc_info=error)
        await asyncio.sleep(pause_s)
