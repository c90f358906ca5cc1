"""Ending tasks that wait inside a driver."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

CANCEL_AGAIN_S: Final = 0.5
"""A driver may swallow a cancellation that comes while it connects or polls; then the task goes on, and takes another.
Long enough for a task that has heard it to clean up."""


async def end(tasks: Collection[asyncio.Future[Any]], again_s: float = CANCEL_AGAIN_S) -> None:
    """Cancel tasks, as often as it takes. Returns when all have ended; what they raise is not raised here."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again_s)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # Else asyncio reports it as never retrieved.
