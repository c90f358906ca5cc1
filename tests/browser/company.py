"""The app whose jobs the pages show, for a worker that runs for real."""

import asyncio
from pathlib import Path
from random import Random

from seeding import NEVER, make_app

app = make_app(Random(3), 0)


@app.task(name="chatter")
def chatter(lines: int) -> int:
    """Write many lines, in a thread: a report of a blocked loop would be among them."""
    for number in range(lines):
        print(f"line {number + 1}")
    return lines


@app.task(name="drip", retry=NEVER)
async def drip(lines: int, end: str) -> int:
    """Write a line now and then, and go on until a file is there."""
    for number in range(lines):
        print(f"drop {number + 1}")
        await asyncio.sleep(0.05)
    while not await asyncio.to_thread(Path(end).exists):
        await asyncio.sleep(0.05)
    return lines


@app.task(name="exact")
async def exact(number: int) -> int:
    """An integer that a JavaScript number cannot hold."""
    return number


@app.task(name="refuse", retry=NEVER)
async def refuse(text: str) -> None:
    """Fail with a text of the caller's choice."""
    print(text)
    raise ValueError(text)


@app.task(name="hold", retry=NEVER)
async def hold() -> None:
    """Keep a slot until it is cancelled."""
    await asyncio.sleep(600)


@app.task(name="narrow", limit=1, retry=NEVER)
async def narrow() -> None:
    """Like `hold`, one at a time."""
    await asyncio.sleep(600)


@app.task(name="survive", retry=NEVER)
async def survive(marker: str) -> str:
    """Take long for the first worker, and no time for the next one."""
    if _is_first(Path(marker)):
        await asyncio.sleep(600)
    return "done"


def _is_first(marker: Path) -> bool:
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
