"""A Redis server of our own: paused, killed, and started again empty. Everything here blocks."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mainspring.errors import MainspringError
from mainspring.testing.servers.process import free_port

PROGRAM: Final = "redis-server"
START_S: Final = 30.0
_LOOK_S: Final = 0.02


def is_installed() -> bool:
    """Whether this machine has the program."""
    return shutil.which(PROGRAM) is not None


class RedisServer:
    """One server in a folder of its own, on a port that stays the same. It writes nothing down unless an option says
    so: after `kill`, `start` begins empty."""

    def __init__(self, folder: Path, *options: str) -> None:
        if not is_installed():
            raise MainspringError("Redis is not installed here: install redis-server, as `make services` does")
        self.port = free_port()
        self.folder = folder / f"redis-{self.port}"
        self.folder.mkdir()
        self.options: Sequence[str] = options
        self._log = self.folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"

    def words(self) -> list[str]:
        """The command line, without the program."""
        return ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "", *self.options]

    def start(self) -> RedisServer:
        """Returns once it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, *self.words()], stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    return self
            except OSError:
                time.sleep(_LOOK_S)
        raise MainspringError(f"redis-server does not start: {self._log.read_text()}")

    def pause(self) -> None:
        """It keeps its connections, and does not answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on where it was paused."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """At once, with all that it knew."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(START_S)
            self._process = None

    def _signal(self, number: int) -> None:
        if self._process is None:
            raise MainspringError("this Redis does not run")
        self._process.send_signal(number)
