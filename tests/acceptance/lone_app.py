"""What workers do without a scheduler: each execution is noted, and the first one never ends."""

import asyncio
import os
from pathlib import Path

from mainspring import Mainspring

app = Mainspring(name="lone")
NOTES = Path(os.environ["NOTES"])


def _note() -> int:
    """Note this execution; how many there have been."""
    with NOTES.open("a") as notes:
        notes.write(f"{os.getpid()}\n")
    return len(NOTES.read_text().split())


@app.task
async def slow() -> str:
    if _note() == 1:
        await asyncio.sleep(1_000)
    return "done"
