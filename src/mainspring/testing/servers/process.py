"""A server that this process starts, in its own folder: paused, killed, started again. Everything here blocks."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from mainspring.errors import MainspringError

START_S: Final = 90.0
PORTS: Final = range(20_000, 32_000)
_LOOK_S: Final = 0.02


def free_port() -> int:
    """A port that no process uses, below those that the system gives to outgoing connections: it stays free until its
    server starts, also where many processes connect meanwhile."""
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise MainspringError(f"every port from {PORTS.start} to {PORTS.stop - 1} is in use")


class ServerProcess(ABC):
    """One server on a port that stays the same. What it wrote to its folder is there after `kill` and `start`."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder / f"{self.name}-{self.port}"
        self.folder.mkdir(parents=True)
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def words(self) -> Sequence[str]:
        """The command line."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server answers."""

    def environment(self) -> Mapping[str, str] | None:
        """The environment of the process; None: that of this one."""
        return None

    @property
    def runs(self) -> bool:
        """Whether the server was started, and not killed since."""
        return self._process is not None

    def begin(self) -> Self:
        """Start it, and wait for nothing."""
        self.spawn()
        return self

    def spawn(self) -> None:
        """Start the process."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.words(), stdout=log, stderr=log, env=self.environment())

    def wait(self) -> Self:
        """Return once it answers."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
            if self.answers():
                return self
            time.sleep(_LOOK_S)
        raise MainspringError(f"{self.name} does not start: {self._log.read_text()[-2000:]}")

    def start(self) -> Self:
        """Start it, and return once it answers."""
        return self.begin().wait()

    def pause(self) -> None:
        """Stop all threads of the server; it keeps its connections and answers none of them."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Go on where it was paused."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(START_S)
            self._process = None

    def _signal(self, number: int) -> None:
        if self._process is None:
            raise MainspringError(f"this {self.name} does not run")
        self._process.send_signal(number)
