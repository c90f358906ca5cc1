"""The app whose jobs the pages show, for a worker that runs for real."""

from random import Random

from seeding import NEVER, make_app

app = make_app(Random(3), 0)


@app.task(name="chatter")
async def chatter(lines: int) -> int:
    """Write many lines."""
    for number in range(lines):
        print(f"line {number + 1}")
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
