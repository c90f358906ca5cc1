"""An app that sabotages its process as the environment says: a loop hangs or is deaf, an event loop is blocked."""

import asyncio
import os
import threading
from typing import Any
from unittest.mock import patch

from mainspring import Mainspring
from mainspring.services.chores.reaper import Reaper

app = Mainspring(name="failing")
FAULT, SIGNAL = os.environ["FAULT"], os.environ["SIGNAL"]


def _is_asked() -> bool:
    return os.path.exists(SIGNAL)


async def _turn(self: Any) -> float:
    """A reaper that does its work until the file appears."""
    if not _is_asked():
        return 0.05
    if FAULT == "deaf":
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
    if FAULT == "stalled":
        os.unlink(SIGNAL)
        await asyncio.Event().wait()
    if FAULT == "blocked":
        threading.Event().wait()
    if FAULT == "exits":
        raise SystemExit("a planted end of the whole event loop")
    raise AssertionError(FAULT)


patch.object(Reaper, "turn", _turn).start()
