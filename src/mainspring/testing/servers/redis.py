"""A Redis server for tests: paused, killed, and started again empty. Everything here blocks."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mainspring.errors import MainspringError
from mainspring.testing.servers.process import ServerProcess

PROGRAM: Final = "redis-server"


def is_installed() -> bool:
    """Whether this machine has the program."""
    return shutil.which(PROGRAM) is not None


class RedisServer(ServerProcess):
    """A Redis server without persistence, unless an option says otherwise: after `kill`, `start` begins empty."""

    name = "redis"

    def __init__(self, folder: Path, *options: str) -> None:
        if not is_installed():
            raise MainspringError("Redis is not installed here: install redis-server, as `make services` does")
        super().__init__(folder)
        self.options: Sequence[str] = options

    @property
    def url(self) -> str:
        """Where it is."""
        return f"redis://127.0.0.1:{self.port}"

    def words(self) -> list[str]:
        """See `ServerProcess`."""
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        return [PROGRAM, *where, "--save", "", *self.options]

    def answers(self) -> bool:
        """See `ServerProcess`."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False
