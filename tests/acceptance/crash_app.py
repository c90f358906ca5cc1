"""The work that goes on while `up` is killed again and again.

Each execution appends a line to a file before and after its work: a ledger of what really ran, which no kill can take
back.
"""

import os
import time

from mainspring import Mainspring, Retry, after, cron, current_run, every

app = Mainspring(name="crash")
LEDGER = os.environ["CRASH_LEDGER"]


def note(what: str) -> None:
    run = current_run()
    line = f"{what} {run.id} {run.attempt} {time.time_ns() // 1000}\n".encode()
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


@app.job(cron("* * * * * *"), misfire="all", grace="1s")
async def tick() -> None:
    note("start")
    note("end")


@app.job(every("1s"), misfire="once", grace="500ms", overlap="forbid")
def interval() -> None:
    note("start")
    time.sleep(0.05)
    note("end")


@app.job(every("2s"), misfire="skip", grace="1s", retry=Retry(2, delay="200ms"))
def flaky() -> None:
    note("start")
    if current_run().attempt % 2 == 1:
        raise ConnectionError("not this time")
    note("end")


@app.job(after("flaky"))
async def downstream() -> None:
    note("start")
    note("end")


@app.task(retry=Retry(3, delay="100ms"))
def submitted(number: int) -> int:
    note("start")
    if number % 5 == 0 and current_run().attempt == 1:
        raise ValueError("the first time always fails")
    note("end")
    return number
