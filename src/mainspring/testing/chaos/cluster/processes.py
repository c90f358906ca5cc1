"""The processes of a run: each has a place, and a process that ends there is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from mainspring.services.worker.worker import EXIT_UNSTOPPABLE

Role = Literal["up", "worker", "client"]
_APP: Final = "mainspring.testing.chaos.inside.work"
_NO_API: Final[dict[Role, tuple[str, ...]]] = {"up": ("--no-api",), "worker": (), "client": ()}
"""Flags by role. The API is not needed, and takes as long to load as all the rest."""
START_S: Final = 15.0
"""A process so young may not have got round to listening to signals, on a machine that is busy."""
STOP_S: Final = 30.0
"""How long a process may take to end when it is asked to: its grace, and its own last resort."""
_OWN_ENDS: Final = (EXIT_UNSTOPPABLE, -signal.SIGKILL)
"""How a process may end by itself: it could not stop work that had lost its claim, or its work killed it."""


def command(role: Role, longest_s: float) -> list[str]:
    """What is executed: it ends by itself some day, even if no driver is left to end it."""
    if role == "client":
        return [sys.executable, "-m", "mainspring.testing.chaos.inside.client"]
    return [sys.executable, "-m", "mainspring", role, _APP, "--quiet", "--for", f"{longest_s:.0f}s", *_NO_API[role]]


class ProcessSlot:
    """One process after the other, under one name."""

    def __init__(
        self,
        role: Role,
        number: int,
        folder: Path,
        longest_s: float,
        environment: Callable[[str], dict[str, str]],
    ) -> None:
        self.role = role
        self.name = f"{role}-{number}"
        self._command = command(role, longest_s)
        self._folder = folder
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self.generation = 0
        self.busy = False
        """Whether something is being done to it."""

    @property
    def actor(self) -> str:
        """The process that is there now, as its history calls it."""
        return f"{self.name}.{self.generation}"

    @property
    def alive(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The id of the newest process."""
        return 0 if self._process is None else self._process.pid

    @property
    def began(self) -> float:
        """When the newest process was started, by monotonic time."""
        return self._started_at

    @property
    def log(self) -> Path:
        """Where its processes write what they have to say."""
        return self._folder / f"{self.name}.log"

    def start(self) -> None:
        """Put a new process there, unless there is one."""
        if self.alive:
            return
        self.generation += 1
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=os.environ | self._environment(self.actor),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started_at = time.monotonic()

    def send(self, number: signal.Signals) -> None:
        """A signal to the process, if there is one."""
        if self._process is not None and self.alive:
            self._process.send_signal(number)

    def kill(self) -> None:
        """With -9; returns when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> str | None:
        """Ask it to end, and wait. What was wrong with how it did, if anything."""
        if self._process is None or not self.alive:
            return None
        young = time.monotonic() - self._started_at < START_S
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.actor} did not end within {STOP_S:g} s of SIGTERM"
        if code == 0 or code in _OWN_ENDS or (code == -signal.SIGTERM and (young or self.role == "client")):
            return None
        return f"{self.actor} ended with {code} after SIGTERM"

    def wait(self, longest_s: float) -> str | None:
        """Until it has ended by itself. What was wrong with how it did, if anything."""
        if self._process is not None:
            try:
                self._process.wait(longest_s)
            except subprocess.TimeoutExpired:
                return f"{self.actor} had not ended after {longest_s:g} s"
        return self.own_end()

    def own_end(self) -> str | None:
        """What was wrong with how it ended by itself, if anything."""
        code = None if self._process is None else self._process.poll()
        expected = (0,) if self.role == "client" else _OWN_ENDS
        return None if code in expected else f"{self.actor} ended by itself with {code}"
