"""What workers do that nobody schedules for: each execution is noted, and the first one never ends."""

import asyncio
import os
from pathlib import Path

from mainspring import Mainspring

app = Mainspring(name="lone")
NOTES = Path(os.environ["NOTES"])


@app.task
async def slow() -> str:
    with NOTES.open("a") as notes:  # noqa: ASYNC230
        notes.write(f"{os.getpid()}\n")
    if len(NOTES.read_text().split()) == 1:  # noqa: ASYNC240
        await asyncio.sleep(1_000)
    return "done"
