"""Tasks that a worker under test executes. Here, because a child process has to find them in a module."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mainspring import Mainspring, Retry, current_run
from mainspring.errors import InvalidInput

app = Mainspring(name="chores")
ONCE = Retry(0)


class Mute(Exception):
    """An exception that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


MISDEEDS: dict[str, Callable[[], BaseException]] = {
    "value error": lambda: ValueError("not\nthis one"),
    "system exit": lambda: SystemExit(3),
    "keyboard interrupt": KeyboardInterrupt,
    "mute": Mute,
    "half a character": lambda: ValueError("\ud800"),
    "nul": lambda: ValueError("a\0b"),
    "long": lambda: ValueError("x" * 1_000_000),
    "own invalid input": lambda: InvalidInput("field", 1, "is wrong"),
}


def misbehave(how: str) -> Any:
    """Raise something, or return what cannot be stored."""
    if how == "object":
        return object()
    raise MISDEEDS[how]()


async def misbehave_async(how: str) -> Any:
    """The same on the loop."""
    return misbehave(how)


RETRIED = Retry(2, delay="1ms")
misbehaving = {
    "async": app.task(name="misbehave_async", retry=RETRIED)(misbehave_async),
    "thread": app.task(name="misbehave_thread", retry=RETRIED)(misbehave),
    "process": app.task(name="misbehave_process", retry=RETRIED, timeout="30s")(misbehave),
}


def where() -> list[int | str]:
    """Where this runs."""
    return [os.getpid(), threading.current_thread().name]


async def where_async() -> list[int | str]:
    """The same on the loop."""
    return where()


wheres = {
    "async": app.task(name="where_async")(where_async),
    "thread": app.task(name="where_thread")(where),
    "process": app.task(name="where_process", timeout="30s")(where),
}


def start_grandchild() -> int:
    """A process that shares the output of this one, and outlives it unless a test ends it."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid


@app.task(timeout="30s", retry=ONCE)
def hang_with_family(file: str) -> None:
    """Note the pids of this process and of one that it starts, and hang, deaf to polite requests."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(file).write_text(f"{os.getpid()} {start_grandchild()}")
    time.sleep(60)


@app.task(timeout="30s", retry=ONCE)
def sleep_in_process(file: str) -> None:
    """Note the pid and sleep."""
    Path(file).write_text(f"{os.getpid()} {start_grandchild()}")
    time.sleep(60)


@app.task(timeout="30s", retry=ONCE)
def leave_something(what: str) -> str:
    """Return, and leave something running."""
    if what == "process":
        start_grandchild()
    else:
        threading.Thread(target=time.sleep, args=(60,)).start()
    return "done"


@app.task(timeout="30s", retry=ONCE)
def die(how: str) -> None:
    """End the process before the function returns."""
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(timeout="30s", retry=ONCE)
def talk() -> None:
    """Write on every stream, from several threads at once, what is hard to carry."""
    run = current_run()
    sys.stdout.buffer.write(b"\xff\xfe binary \x00\n")
    print("to stderr", file=sys.stderr)
    run.log("half \ud800")
    run.progress(0.5, "half way")

    def chatter(number: int) -> None:
        for _ in range(50):
            run.log(f"{number}" * 20_000)

    threads = [threading.Thread(target=chatter, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@app.task(timeout="30s", retry=ONCE)
def return_much(size: int) -> str:
    """A large result."""
    return '"' * size


@app.task(retry=ONCE)
async def swallow_cancellation(times: int, naps: list[float]) -> str:
    """Go on in spite of this many requests to stop."""
    for nap in naps[: times + 1]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(nap)
    return "went on"
