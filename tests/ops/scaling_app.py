"""What the fleet of the autoscaler's tests executes: each run notes its worker, and ends when a file allows it."""

import asyncio
import os
from pathlib import Path

from mainspring import Mainspring

app = Mainspring(name="scaled")
FOLDER = Path(os.environ["SCALING_FOLDER"])


@app.task
async def hold(number: int) -> str:
    """Begin, wait for the gate, end: each leaves a line."""
    _note(f"begin {number} {os.getpid()}")
    while not (FOLDER / "gate").exists():
        await asyncio.sleep(0.05)
    _note(f"end {number} {os.getpid()}")
    return "done"


def _note(line: str) -> None:
    with (FOLDER / "notes").open("a") as notes:
        notes.write(line + "\n")
