"""Functions for processes under test. Here, because a process has to find them in a module."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from mainspring import Mainspring, current_run
from mainspring.executors.pool.messages import CHANNEL

app = Mainspring(name="deeds")
process = app.task(isolation="process")


@process
def where() -> int:
    """The process that this runs in."""
    return os.getpid()


@process
def crash(how: str) -> None:
    """End the process before the function returns."""
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


@process
def meet(folder: str, name: str, other: str) -> bool:
    """Wait for another run that does the same: only two at once can."""
    (Path(folder) / name).touch()
    deadline = time.monotonic() + 20
    while not (Path(folder) / other).exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@process
def note(file: str) -> None:
    """Note the pid of a process that is started, and end at about the same time."""
    with subprocess.Popen(["sleep", "0.02"]) as child, Path(file).open("a") as pids:
        pids.write(f"{child.pid}\n")


@process
def hang(file: str) -> None:
    """Note the pid and hang; clean up if asked to end."""
    try:
        Path(file).write_text(str(os.getpid()))
        time.sleep(60)
    finally:
        Path(f"{file}.cleaned").write_text(f"cancelled: {current_run().cancelled}")


@process
def hang_deaf(file: str) -> None:
    """Hang, deaf to polite requests, with a daemon beside."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(file).write_text(f"{os.getpid()} {start_daemon()}")
    time.sleep(60)


def start_daemon() -> int:
    """A process that has its own session and has lost its parent; its pid."""
    code = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    code += "print(os.getpid(), flush=True)\nimport time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        return int(starter.stdout.readline())


@process
def leave(what: str) -> list[int]:
    """Return, and leave something behind."""
    if what == "thread":
        threading.Thread(target=time.sleep, args=(60,)).start()
        return [os.getpid(), 0]
    if what == "daemon":
        return [os.getpid(), start_daemon()]
    return [os.getpid(), subprocess.Popen(["sleep", "60"]).pid]


@process
def change_surroundings() -> None:
    """Change what others would see."""
    os.environ["LEFT_BEHIND"] = "1"
    os.chdir("/")


@process
def surroundings() -> list[str | None]:
    """What is to be seen."""
    return [os.environ.get("LEFT_BEHIND"), os.getcwd()]


@process
def write(text: str) -> None:
    """Write below Python's own buffers, and above them."""
    os.write(1, f"raw {text}\n".encode())
    print(f"printed {text}")
    print(f"error {text}", file=sys.stderr)


@process
def write_twice() -> None:
    """Write, and write again after a while."""
    for text in ("first", "second"):
        print(text, flush=True)
        time.sleep(0.1)


@app.task(isolation="process")
async def where_async() -> int:
    """An async function, elsewhere."""
    await asyncio.sleep(0)
    return os.getpid()


@app.task(timeout="30s")
def where_bounded() -> int:
    """The process that this runs in."""
    return os.getpid()


@app.task(isolation="none", timeout="30s")
def where_thread() -> int:
    """A function that stays here in spite of its timeout."""
    return os.getpid()


@process
def heed() -> bool:
    """Return when warned that it takes long."""
    while not current_run().overdue:
        time.sleep(0.005)
    return current_run().cancelled


heed_in_thread = app.task(name="heed_in_thread", isolation="none")(heed.function)


@app.task
async def heed_async() -> bool:
    """The same on the loop."""
    while not current_run().overdue:
        await asyncio.sleep(0.005)
    return current_run().cancelled


@app.task
async def hog_until_overdue() -> None:
    """Leave the loop no time to warn, and return as soon as the clock says that it is late."""
    while not current_run().overdue:
        pass


@app.task
async def sleep_async() -> None:
    """Take long."""
    await asyncio.sleep(60)


@process
def grow(size: int) -> int:
    """Use memory for a moment."""
    data = bytearray(size)
    return len(data)


@app.task(isolation="sandbox")
def look_around(secret: str) -> dict[str, object]:
    """What a function in a sandbox can see."""
    found: dict[str, object] = {
        "user": os.getuid(),
        "processes": [pid for pid in os.listdir("/proc") if pid.isdecimal()],
    }
    found["environment"] = sorted(os.environ)
    for path in ("/etc/shadow", secret):
        try:
            found[path] = Path(path).read_text()
        except OSError as error:
            found[path] = type(error).__name__
    try:
        socket.create_connection(("127.0.0.1", 22), timeout=2)
    except OSError as error:
        found["network"] = type(error).__name__
    return found


@app.task(isolation="limits")
def lie(words: str, times: int) -> None:
    """Say to the worker what only the process itself says."""
    for _ in range(times):
        os.write(CHANNEL, words.encode())
    time.sleep(60)


@app.task(isolation="limits")
def chatter(lines: int) -> None:
    """Log a lot, and report progress as often."""
    for number in range(lines):
        current_run().log("x" * 1000)
        current_run().progress(number / lines, str(number))
    current_run().progress(1.0, "done")


@app.task(isolation="limits")
def explode(how: str) -> None:
    """Use more than there is to be had."""
    if how == "flood":
        for _ in range(1000):
            os.write(1, b"x" * 100_000 + b"\n")
        return
    hoard: list[bytearray] = []
    while True:
        if how == "memory":
            hoard.append(bytearray(4_000_000))
        if how == "processes" and not os.fork():
            time.sleep(60)


@app.task
def leak(secret: str) -> None:
    """Say what should not be said."""
    current_run().log(f"got {secret}")
    current_run().progress(0.5, secret)
    raise ValueError(f"bad {secret} {secret!r}")


leak_in_process = app.task(name="leak_in_process", isolation="process")(leak.function)


@app.task
def echo(value: object) -> object:
    """What was given."""
    return value


@app.task
def length(value: str) -> int:
    """How long it is."""
    return len(value)


@app.task(isolation="limits")
def start_eater(python: str) -> int:
    """Start a process that uses more memory than there is, and go on whatever becomes of it."""
    eat = "data = []\nwhile True: data.append(bytearray(4_000_000))"
    return subprocess.run([python, "-S", "-c", eat], check=False).returncode
