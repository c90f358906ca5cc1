"""A first look at Mainspring: `mainspring up examples/quickstart.py`."""

import asyncio
import random

from mainspring import Mainspring, Retry, after, cron, current_run, every

app = Mainspring(name="quickstart")


@app.job(every("5s"))
async def heartbeat() -> str:
    """The smallest job: an async function, every five seconds."""
    return "still here"


@app.job(every("10s"), overlap="forbid", retry=Retry(3, delay="2s"))
def flaky_import() -> int:
    """A sync function runs in a thread. This one fails now and then, and is tried again."""
    if random.random() < 0.4:
        raise ConnectionError("the other side hung up")
    return random.randint(10, 99)


@app.job(after("flaky_import"))
async def summary() -> str:
    """Runs whenever `flaky_import` has succeeded."""
    run = current_run()
    for step in range(1, 5):
        run.progress(step / 4, f"part {step} of 4")
        await asyncio.sleep(0.1)
    run.log("the summary is ready")
    return "done"


@app.job(cron("0 2 * * *", tz="Europe/Berlin"), misfire="once")
async def nightly_report() -> None:
    """Two in the morning in Berlin, also on the nights when the clocks change."""


@app.task(priority=1, timeout="10m", retry=Retry(3))
def encode(video: str, size: str) -> str:
    """A task without a schedule: `mainspring run submit encode --arg video=v1 --arg size=4K`."""
    return f"{video} in {size}"
