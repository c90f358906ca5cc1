"""Servers and a worker as real processes on one PostgreSQL database."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx

from mainspring import Client, Mainspring, Retry
from mainspring.api.auth.tokens import issue, load_keys
from mainspring.core.instants import HOUR
from mainspring.testing.servers.process import free_port

FILMS = """
from mainspring import Mainspring

app = Mainspring(name="films")

@app.task
def encode(video: int) -> str:
    return f"{video} in HD"
"""
PATIENCE_S = 60.0
ONCE = Retry(0)


class Fleet:
    """`mainspring server` twice and `mainspring worker` once, in a folder of their own."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self.store = url
        (folder / "films.py").write_text(FILMS)
        self._words: dict[str, str] = {"MAINSPRING_STORE": url, "MAINSPRING_SECRET": secrets.token_urlsafe(48)}
        self._app = Mainspring(url, secret=self._words["MAINSPRING_SECRET"])
        self.urls: list[str] = []
        self.servers: list[subprocess.Popen[bytes]] = []
        for _ in range(2):
            port = free_port()
            self.urls.append(f"http://127.0.0.1:{port}")
            self.servers.append(self._start("server", "films.py", "--port", str(port), "--quiet"))
        for server in self.urls:
            self._until_ready(server)
        self._worker = self._start("worker", "films.py")

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mainspring", *words]
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen(
                command, cwd=self._folder, env=os.environ | self._words, stdout=output, stderr=output
            )

    def _until_ready(self, url: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if httpx.get(f"{url}/health/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert time.monotonic() < deadline, (self._folder / "output").read_text()
            time.sleep(0.05)

    def client(self, number: int, subject: str = "ann", retry: Retry = ONCE) -> Client:
        """An admin at one of the servers."""
        keys = load_keys(self._app.settings)
        assert keys is not None
        words: Any = {"roles": {"default": ["admin"]}, "lifetime": HOUR, "now": self._app.clock.now()}
        token, _ = issue(keys, self._app.settings, subject=subject, **words)
        return Client(self.urls[number], token, retry=retry)

    def close(self) -> None:
        """End them all."""
        for process in (*self.servers, self._worker):
            process.kill()
            process.wait()


@contextmanager
def a_database() -> Iterator[str]:
    """The URL of a new database on PostgreSQL."""
    sys.path.append(str(Path(__file__).parent.parent / "adapters"))
    postgres = import_module("postgres_server")
    server, _ = postgres.find_servers()
    name = asyncio.run(postgres.create_database(server))
    try:
        yield postgres.in_database(server, name)
    finally:
        asyncio.run(postgres.drop_database(server, name))


@contextmanager
def open_fleet(folder: Path) -> Iterator[Fleet]:
    """A fleet on a database of its own."""
    with a_database() as url:
        fleet = Fleet(folder, url)
        try:
            yield fleet
        finally:
            fleet.close()
