"""A person at a terminal: types commands in a folder of their own, and sees what comes back."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from mainspring import Mainspring
from mainspring.api.auth.tokens import issue, load_keys
from mainspring.api.server import Server
from mainspring.cli.main import run
from mainspring.clock import SystemClock
from mainspring.conformance.store.samples import a_worker
from mainspring.core.instants import HOUR, Duration, Instant
from mainspring.core.model import Claim, Report, Worker
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.wiring import open_store

T = TypeVar("T")

URL = "sqlite:///test.db"
SECRET = "Zm9yIHRlc3RzIG9ubHk6IG5vdCBhIHNlY3JldCBhdCBhbGw="
FILMS = """
import asyncio
from mainspring import Mainspring, Retry, after, cron, every

app = Mainspring(name="films")

@app.task(priority=1, timeout="10m", retry=Retry(2, delay="1s"))
def encode(video: str, size: int = 4) -> str:
    return f"{video}@{size}K"

@app.job(cron("0 2 * * *", tz="Europe/Berlin"), overlap="forbid")
async def report(): ...

@app.job(after("report"), tags=["late"])
def notify(): ...
"""


class ClockAhead(SystemClock):
    """The host's clock, fast by this much."""

    def __init__(self, ahead: Duration) -> None:
        self._ahead = ahead

    def now(self) -> Instant:
        return super().now() + self._ahead


class Answer(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it said, for programs."""
        return json.loads(self.out)


class Served:
    """A server of a database of its own, which can be as empty as at the beginning."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "served.db"
        self.store = f"sqlite:///{self._file}"
        words: Any = {"secret": SECRET, "host": "127.0.0.1", "port": 0, "durable": False, "submit_rate": 1_000_000}
        self.app = Mainspring(**words)
        self.app.configure(store=self.store)  # Whatever the environment says.
        self._server = Server(self.app)
        asyncio.run(self._server.start())
        self.url = self._server.url
        self._first = self._read()

    def token(self, *roles: str, lifetime: Duration = HOUR) -> str:
        """A token that is good for an hour."""
        keys = load_keys(self.app.settings)
        assert keys is not None
        words: Any = {"subject": "ann", "roles": {"default": roles}, "lifetime": lifetime, "now": self.app.clock.now()}
        return issue(keys, self.app.settings, **words)[0]

    def _read(self) -> dict[str, list[tuple[object, ...]]]:
        with closing(sqlite3.connect(self._file)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables}

    def reset(self) -> None:
        """Forget all that was stored since the beginning."""
        with closing(sqlite3.connect(self._file, timeout=10)) as connection, connection:
            for table, rows in self._first.items():
                connection.execute(f"DELETE FROM {table}")
                for row in rows:
                    connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def close(self) -> None:
        """Stop it."""
        asyncio.run(self._server.stop())
        asyncio.run(self.app.close())


class Terminal:
    """100 columns wide, in an empty folder, with `test.db` as the database."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.url = URL
        self.owner = "cli"
        """Whose the jobs are that commands add."""
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._started: list[subprocess.Popen[str]] = []
        monkeypatch.chdir(folder)
        monkeypatch.setenv("MAINSPRING_STORE", URL)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.delenv("NO_COLOR", raising=False)

    def connect(self, served: Served) -> None:
        """From now on commands ask a server, as its admin. Their own database is left alone."""
        served.reset()
        self.url, self.owner = served.store, "api"
        self._monkeypatch.setenv("MAINSPRING_SERVER", served.url)
        self._monkeypatch.setenv("MAINSPRING_TOKEN", served.token("admin"))

    def __call__(self, *args: str) -> Answer:
        """Type a command."""
        self._capsys.readouterr()
        code = run(args)
        seen = self._capsys.readouterr()
        return Answer(code, seen.out, seen.err)

    def json(self, *args: str) -> Any:
        """Type a command that succeeds, and read its answer as a program does."""
        options, dashes, words = args, tuple[str, ...](), tuple[str, ...]()
        if "--" in args:  # What follows is not for us.
            place = args.index("--")
            options, dashes, words = args[:place], ("--",), args[place + 1 :]
        answer = self(*options, "--json", *dashes, *words)
        assert answer.code == 0, answer
        assert answer.err == ""
        return answer.json

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """A command in a process of its own."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        command = [sys.executable, "-m", "mainspring", *args]
        process: subprocess.Popen[str] = subprocess.Popen(command, cwd=self.folder, env=dict(os.environ), **pipes)
        self._started.append(process)
        return process

    def close(self) -> None:
        """Leave nothing running, whatever a test came to."""
        for process in self._started:
            process.kill()
            with process:
                pass

    def finish(self, *args: str, **options: Any) -> Answer:
        """A command in a process of its own, to its end."""
        process = self.start(*args, **options)
        out, err = process.communicate(timeout=30)
        return Answer(process.returncode, out, err)

    def write(self, name: str, text: str) -> str:
        """A file in the folder."""
        (self.folder / name).write_text(text)
        return name

    def store(self, work: Callable[[Store], Awaitable[T]], ahead: Duration = 0) -> T:
        """Use the database behind the commands' back, perhaps some time from now."""

        async def do() -> T:
            store = open_store(self.url, Settings(durable=False), ClockAhead(ahead))
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(do())

    def announce(self, **changes: Any) -> Worker:
        """Let the store know of a worker that does nothing."""
        worker = a_worker("w1", **changes)
        self.store(lambda store: store.register(worker))
        return worker

    def execute(self, report: Callable[[Claim], Report], task: str = "encode") -> list[str]:
        """Claim what is due and report on it; the ids of the runs."""

        async def work(store: Store) -> list[str]:
            claims = await store.claim(a_worker("w1", tasks=(task,)), 100, 60_000_000, "strict")
            await store.report([report(claim) for claim in claims])
            return [claim.run_id for claim in claims]

        return self.store(work)
