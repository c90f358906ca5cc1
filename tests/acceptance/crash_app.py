"""The work that goes on while `up` is killed again and again.

Everything is written down: what the process asked its store, what that replied, and what each execution did. No kill
can take that back.
"""

import os
import time
from pathlib import Path

from mainspring import Retry, after, cron, current_run, every
from mainspring.testing.chaos.inside.ledger import Ledger
from mainspring.testing.chaos.inside.recording import RecordedApp

app = RecordedApp(Path(os.environ["CRASH_FOLDER"]), f"up-{os.getpid()}", name="crash")
ledger = Ledger(app.recorder)


@app.job(cron("* * * * * *"), misfire="all", grace="1s")
async def tick() -> None:
    with ledger.noted():
        pass


@app.job(every("1s"), misfire="once", grace="500ms", overlap="forbid")
def interval() -> None:
    with ledger.noted():
        time.sleep(0.05)


@app.job(every("2s"), misfire="skip", grace="1s", retry=Retry(2, delay="200ms"))
def flaky() -> None:
    with ledger.noted():
        if current_run().attempt % 2 == 1:
            raise ConnectionError("not this time")


@app.job(after("flaky"))
async def downstream() -> None:
    with ledger.noted():
        pass


@app.task(retry=Retry(3, delay="100ms"))
def submitted(number: int, padding: str = "") -> int:
    with ledger.noted():
        if number % 5 == 0 and current_run().attempt == 1:
            raise ValueError("the first time always fails")
    return number
