"""A script, or the cells of a notebook, with retries and a record: `python examples/script/clean_up.py`.

Nothing else has to run: scheduler, worker and store (a file in the working folder) live inside the program.
"""

from __future__ import annotations

import asyncio

from mainspring import Mainspring, Retry, current_run

app = Mainspring("sqlite:///clean_up.db", name="clean-up")


@app.task(retry=Retry(3, delay="100ms"))
async def clean(folder: str) -> str:
    """Clean one folder. The first attempt at `cache` meets a lock, and the second succeeds."""
    if folder == "cache" and current_run().attempt == 1:
        raise BlockingIOError("another program holds the cache")
    return f"{folder} is clean"


async def main() -> None:
    """Clean three folders at once, and show what became of each."""
    async with app.running():
        runs = await clean.submit_many([{"folder": name} for name in ("cache", "logs", "uploads")])
        for run in runs:
            print(await run.result(timeout=60), "after", (await run.status()).attempt, "attempts")


if __name__ == "__main__":
    asyncio.run(main())
