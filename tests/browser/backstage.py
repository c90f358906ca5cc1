"""A real server in a process of its own, on a store with a past, for pages that a real browser opens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import httpx
from playwright.sync_api import Page

from mainspring import Mainspring
from mainspring.api.auth.tokens import issue, load_keys
from mainspring.core.instants import HOUR, Duration
from mainspring.testing.servers.process import free_port

SECRET = "Zm9yIHRlc3RzIG9ubHk6IG5vdCBhIHNlY3JldCBhdCBhbGw="
SEEDING = Path(__file__).with_name("seeding.py")
APP = Path(__file__).with_name("company.py")
PATIENCE_S = 60.0
T = TypeVar("T")

OpenPage = Callable[..., Page]
"""Opens a page of the UI by its path: see the fixture `open_page`."""


def until(happened: Callable[[], T | None]) -> T:
    """Wait for something to be true, but not for ever."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if found := happened():
            return found
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


class Stage:
    """One server: its address, and a client for what a test arranges."""

    def __init__(self, store: Path, secret: str | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.store, self.secret, self.port = store, secret, free_port()
        self.settings = settings or {}
        self.url = f"http://127.0.0.1:{self.port}{self.settings.get('MAINSPRING_BASE_PATH', '')}"
        headers = {"Authorization": f"Bearer {self.token('admin')}"} if secret else {}
        self.client = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, program: Sequence[str] = (sys.executable, "-m", "mainspring")) -> None:
        """Start the server, and wait until it answers."""
        words = [*program, "up", str(APP), "--queue", "default", "--undeclared", "report"]
        secret = {"MAINSPRING_SECRET": self.secret} if self.secret else {}
        address = {"MAINSPRING_STORE": f"sqlite:///{self.store}", "MAINSPRING_PORT": str(self.port)}
        environment = {**os.environ, **address, **secret, **self.settings}
        self._process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._answers)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server ended"
        try:
            return self.client.get("/health/live").status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """End the server without a chance to say so."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def another_client(self) -> httpx.Client:
        """A client for another thread."""
        return httpx.Client(base_url=self.url, headers=self.client.headers, timeout=PATIENCE_S)

    def token(self, *roles: str, namespace: str = "default", subject: str = "ann", lifetime: Duration = HOUR) -> str:
        """A token; of an hour, unless it is to expire earlier."""
        app = Mainspring(f"sqlite:///{self.store}", secret=self.secret)
        keys = load_keys(app.settings)
        assert keys is not None
        words: dict[str, Any] = {"subject": subject, "lifetime": lifetime, "now": app.clock.now()}
        token, _ = issue(keys, app.settings, roles={namespace: roles}, **words)
        return token

    def ask(self, method: str, path: str, **words: Any) -> Any:
        """The answer of the server, which must be a good one."""
        answer = self.client.request(method, path, **words)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def silent_workers(self) -> list[str]:
        """The workers that count as dead: the one of the past does."""
        return [each["worker"] for each in self.ask("GET", "/v1/workers")["items"] if each["state"] == "dead"]

    def retried(self, job: str) -> list[str]:
        """The runs of a job that were submitted again: an id for each time."""
        runs = self.ask("GET", "/v1/runs", params={"job": job, "limit": 200})["items"]
        return [run["retry_of"] for run in runs if run["retry_of"]]

    def ended(self, run_id: str, states: Sequence[str] = ("succeeded", "failed", "cancelled")) -> dict[str, Any]:
        """A run, once it has ended."""

        def look() -> dict[str, Any] | None:
            run: dict[str, Any] = self.ask("GET", f"/v1/runs/{run_id}")
            return run if run["state"] in states else None

        return until(look)


def shell(stage: Stage, line: str) -> str:
    """Run a command as a person would, in a shell. What it says besides its answer."""
    folder = Path(sys.executable).parent
    code = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "MAINSPRING_SERVER": stage.url, **code}
    done = subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stderr


class Wire:
    """The way to a server, which a test can cut: every connection breaks, and new ones are accepted."""

    def __init__(self, stage: Stage) -> None:
        self._target, self._open = stage.port, list[socket.socket]()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._accepting = Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                self._open.append(near)
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open.append(far)
                for one, other in ((near, far), (far, near)):
                    Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Break every connection that is open."""
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Accept none any more."""
        self.cut()
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._accepting.join(PATIENCE_S)
        for each in (self._door, *self._open):
            each.close()


@contextmanager
def open_stage(
    folder: Path,
    *,
    secret: str | None = None,
    more: int = 12,
    is_seeded: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Stage]:
    """A server that runs until the end of the block."""
    store = folder / "stage.db"
    if is_seeded:
        subprocess.run([sys.executable, str(SEEDING), str(store), str(more)], check=True)
    stage = Stage(store, secret, settings)
    stage.start()
    try:
        until(lambda: stage.silent_workers() or not is_seeded)
        yield stage
    finally:
        stage.kill()
        stage.client.close()
