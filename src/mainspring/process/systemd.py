"""systemd: a process reports that it is ready, that it stops, and, for the watchdog of systemd, that it is well.

Nothing happens unless systemd asks for it (`NOTIFY_SOCKET`, `WATCHDOG_USEC`). Units are in deploy/systemd.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"
SIGNS_PER_PERIOD = 3
"""Signs of life in each period of the watchdog: one that is late does not end the process."""


def notify(state: str) -> bool:
    """Send a state to systemd; False if systemd did not ask for it or cannot be reached."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    # An abstract socket is written with @, and its address begins with NUL.
    path = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.connect(path)
            sender.sendall(state.encode())
    except OSError:
        return False
    return True


def watchdog_period_s() -> float | None:
    """How long systemd waits for a sign of life of this process; None if it does not watch."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    period_us = os.environ.get("WATCHDOG_USEC", "")
    return int(period_us) / 1_000_000 if period_us.isdigit() and int(period_us) else None


def keep_alive(is_well: Callable[[], bool]) -> Callable[[], None]:
    """Give signs of life while all is well, from a thread: a task that blocks the event loop does not end the process.

    The answer ends it.
    """
    period_s, over = watchdog_period_s(), threading.Event()
    if period_s is None:
        return over.set

    def watch() -> None:
        while True:
            if is_well():
                notify(ALIVE)
            if over.wait(period_s / SIGNS_PER_PERIOD):
                return

    threading.Thread(target=watch, name="mainspring-systemd", daemon=True).start()
    return over.set
