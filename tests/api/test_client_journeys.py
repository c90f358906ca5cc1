"""The journeys that users make, over HTTP, with the client and the command line, through a real program."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from cli_work import Terminal
from mainspring import Client, after, manual
from mainspring.testing.servers.process import free_port

WORK = """
from pathlib import Path
from mainspring import Mainspring, Retry, current_run

app = Mainspring(name="work")

@app.task
def greet(name: str) -> str:
    current_run().log(f"hello {name}")
    return f"hello {name}"

@app.task(retry=Retry(3, delay="150ms", factor=4.0, jitter=0))
def unsteady(file: str) -> str:
    path = Path(file)
    tries = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(tries))
    if tries < 3:
        raise ConnectionError(f"try {tries} of 3")
    return f"done at try {tries}"
"""
PATIENCE_S = 60.0


class Program(NamedTuple):
    """Where `mainspring up` listens, and the token of its admin."""

    url: str
    token: str


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """`mainspring up work.py`: API, scheduler and worker in one process."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "work.py").write_text(WORK)
    port = free_port()
    words = {"MAINSPRING_SECRET": secrets.token_urlsafe(48), "MAINSPRING_STORE": "sqlite:///work.db"}
    command = [sys.executable, "-m", "mainspring"]
    environment = os.environ | words
    create = [*command, "token", "create", "--role", "admin", "--subject", "ann"]
    token = subprocess.run(create, env=environment, cwd=folder, check=True, capture_output=True, text=True).stdout
    with (folder / "output").open("wb") as output:
        up = [*command, "up", "work.py", "--port", str(port)]
        process = subprocess.Popen(up, env=environment, cwd=folder, stdout=output, stderr=output)
    url = f"http://127.0.0.1:{port}"
    try:
        until_ready(url)
        yield Program(url, token.strip())
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def until_ready(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if httpx.get(f"{url}/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "it does not start"
        time.sleep(0.05)


@pytest.fixture
async def client(program: Program) -> AsyncIterator[Client]:
    async with Client(program.url, program.token) as client, asyncio.timeout(PATIENCE_S):
        yield client


@pytest.fixture
def cli(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Terminal:
    terminal = Terminal(tmp_path, monkeypatch, capsys)
    monkeypatch.setenv("MAINSPRING_SERVER", program.url)
    monkeypatch.setenv("MAINSPRING_TOKEN", program.token)
    return terminal


async def ended(client: Client, job: str) -> str:
    """The next run of a job that succeeds."""
    async for event in client.events.follow(after=-1, kinds=["run.succeeded"], job=job):
        assert event.run_id is not None
        return event.run_id
    raise AssertionError("the stream ended")


class TestAScheduledJob:
    async def test_it_is_submitted_and_seen_to_run(self, cli: Terminal, client: Client) -> None:
        words = ("job", "add", "tick", "--every", "1s", "--task", "greet", "--arg", "name=you")
        added = await asyncio.to_thread(cli.json, *words)
        assert added["next_run"] is not None
        run = await client.runs.get(await ended(client, "tick"))
        assert (run.job, run.result, run.attempt) == ("tick", "hello you", 1)
        assert [line.text async for line in client.runs.logs(run.run_id)] == ["hello you"]
        shown = await asyncio.to_thread(cli.json, "job", "show", "tick")
        assert "succeeded" in [firing["outcome"] for firing in shown["firings"]]
        assert (await asyncio.to_thread(cli, "run", "wait", run.run_id)).out == '"hello you"\n'
        assert (await asyncio.to_thread(cli, "job", "remove", "tick")).code == 0


class TestAFailure:
    async def test_it_backs_off_is_retried_and_succeeds(self, cli: Terminal, client: Client) -> None:
        run = await client.runs.submit("unsteady", {"file": str(cli.folder / "tries")})
        assert await client.runs.result(run.run_id, timeout="30s") == "done at try 3"
        attempts = await client.runs.attempts(run.run_id)
        assert [each.outcome for each in attempts] == ["failed", "failed", "succeeded"]
        pauses = []
        for before, following in pairwise(attempts):
            assert following.started_at is not None
            pauses.append((following.started_at - before.finished_at).total_seconds())
        assert pauses[0] >= 0.14
        assert pauses[1] >= 0.59
        reported = (await asyncio.to_thread(cli, "run", "show", run.run_id)).out
        assert "try 1 of 3" in reported
        assert "done at try 3" in reported


class TestDependencies:
    async def test_a_runs_after_b_and_c(self, cli: Terminal, client: Client) -> None:
        for name in ("b", "c"):
            await client.jobs.add(name, manual(), task="greet", args={"name": name})
        await client.jobs.add("a", after("b", "c"), task="greet", args={"name": "a"})
        first = await client.jobs.trigger("b")
        assert first.run_id is not None
        await client.runs.result(first.run_id)
        waiting = await client.jobs.get("a")
        assert (waiting.fired, "It waits for job c" in " ".join(waiting.why)) == (0, True)
        assert (await asyncio.to_thread(cli, "job", "trigger", "c")).code == 0
        run = await client.runs.get(await ended(client, "a"))
        upstream = [await client.runs.get(await ended(client, name)) for name in ("b", "c")]
        assert run.started_at is not None
        assert all(each.finished_at and each.finished_at <= run.started_at for each in upstream)
        assert [each.run_id async for each in client.jobs.runs("a")] == [run.run_id]
