"""`mainspring server`, `up` and `token`: real processes, and the journeys of a user over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from door import PATIENCE_S, SECRET, make_app, problem, until

from mainspring.api.server import Server
from mainspring.settings import Settings

WORK = """
from mainspring import Mainspring

app = Mainspring(name="films")
tries = 0

@app.task
def encode(video: str) -> str:
    return video.upper()

@app.task
def flaky() -> str:
    global tries
    tries += 1
    if tries < 3:
        raise RuntimeError(f"try {tries}")
    return f"done at try {tries}"
"""
Start = Callable[..., "Process"]


class Process:
    """A command that serves, and where."""

    def __init__(self, folder: Path, *args: str, **environ: str) -> None:
        self._log = folder / f"{args[0]}-{os.urandom(4).hex()}.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        self._clients: list[httpx.Client] = []
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mainspring", *args],
                cwd=folder,
                env={**clean, **environ},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def reported(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text()

    def client(self, token: str = "") -> httpx.Client:
        """A client of it, as soon as it prints its URL."""
        line = until(lambda: [each for each in self.reported().splitlines() if each.startswith("api    http")])[0]
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._clients.append(httpx.Client(base_url=line.split()[1], headers=headers, timeout=20))
        return self._clients[-1]

    def end(self) -> int:
        """Stop it as an operator would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def leave(self) -> None:
        """Let go of it, whatever it does."""
        for client in self._clients:
            client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "work.py").write_text(WORK)
    started: list[Process] = []

    def begin(*args: str, **environ: str) -> Process:
        started.append(Process(tmp_path, *args, **environ))
        return started[-1]

    yield begin
    for each in started:
        each.leave()


def mainspring(folder: Path, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
    return subprocess.run(
        [sys.executable, "-m", "mainspring", *args],
        cwd=folder, env={**clean, **environ}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip


def ended(client: httpx.Client, run_id: str) -> dict[str, Any]:
    run: dict[str, Any] = client.get(f"/v1/runs/{run_id}/wait", params={"timeout": "15s"}).json()
    return run


def test_a_scheduled_job_is_submitted_and_seen_to_run(start: Start) -> None:
    client = start("up", "work.py", "--port", "0").client()
    body = {"name": "tick", "every": "200ms", "command": [sys.executable, "-c", "print('hello')"], "max_firings": 2}
    job = client.post("/v1/jobs", json=body).json()
    assert job["next_run"]
    firings = until(
        lambda: [
            each
            for each in client.get("/v1/jobs/tick/firings").json()["items"]
            if each["outcome"] == "succeeded"
        ]
    )  # fmt: skip
    lines = client.get(f"/v1/runs/{firings[0]['run_id']}/logs").json()["items"]
    assert [line["text"] for line in lines] == ["hello"]
    with client.stream("GET", f"/v1/runs/{firings[0]['run_id']}/logs", params={"follow": True}) as stream:
        text = "".join(stream.iter_text())
    assert "event: line" in text
    assert "event: end" in text


def test_a_run_that_fails_backs_off_is_retried_and_succeeds(start: Start) -> None:
    client = start("up", "work.py", "--port", "0").client()
    body = {"task": "flaky", "retry": {"retries": 3, "delay": "50ms", "jitter": 0}}
    run = ended(client, client.post("/v1/runs", json=body).json()["run_id"])
    assert (run["state"], run["result"], run["attempt"]) == ("succeeded", "done at try 3", 3)
    attempts = client.get(f"/v1/runs/{run['run_id']}/attempts").json()["items"]
    assert [each["outcome"] for each in attempts] == ["failed", "failed", "succeeded"]
    assert attempts[0]["error"]["message"] == "try 1"


def test_a_runs_after_b_and_c(start: Start) -> None:
    client = start("up", "work.py", "--port", "0").client()
    for name in ("b", "c"):
        client.post("/v1/jobs", json={"name": name, "manual": True, "task": "encode", "args": {"video": name}})
    client.post("/v1/jobs", json={"name": "a", "after": ["b", "c"], "task": "encode", "args": {"video": "a"}})
    client.post("/v1/jobs/b/trigger")
    until(lambda: client.get("/v1/jobs/b/runs").json()["items"][0]["state"] == "succeeded")
    assert client.get("/v1/jobs/a/runs").json()["items"] == []
    client.post("/v1/jobs/c/trigger")
    (run,) = until(lambda: client.get("/v1/jobs/a/runs").json()["items"])
    assert ended(client, run["run_id"])["result"] == "A"


def test_a_server_takes_what_workers_do_and_its_tokens_come_from_the_command_line(tmp_path: Path, start: Start) -> None:
    server = start("server", "work.py", "--port", "0", MAINSPRING_SECRET=SECRET)
    words = ("token", "create", "--role", "operator", "--subject", "ann", "--expires", "1h", "--json")
    made = json.loads(mainspring(tmp_path, *words, MAINSPRING_SECRET=SECRET).stdout)
    client = server.client(made["token"])
    run_id = client.post("/v1/runs", json={"task": "encode", "args": {"video": "v1"}}).json()["run_id"]
    assert client.get(f"/v1/runs/{run_id}").json()["state"] == "pending"
    problem(client.post("/v1/runs", json={"command": "id"}), 403, "forbidden")
    start("worker", "work.py", "--quiet")
    assert ended(client, run_id)["result"] == "V1"
    checks = client.get("/health/ready").json()["checks"]
    assert {"store", "loop.planner", "loop.elector"} <= set(checks)
    assert mainspring(tmp_path, "token", "revoke", made["token_id"]).returncode == 0
    until(lambda: client.get("/v1/jobs").status_code == 401)
    assert server.end() == 0
    log = server.reported()
    assert made["token"] not in log
    assert SECRET not in log
    line = next(json.loads(each) for each in log.splitlines() if each.startswith("{") and '"POST"' in each)
    assert (line["path"], line["status"], line["subject"]) == ("/v1/runs", 201, "ann")


@pytest.mark.parametrize("command", ["up", "server"])
@pytest.mark.parametrize("environ", [{}, {"MAINSPRING_SECRET": "changeme"}])
def test_no_server_starts_that_strangers_could_use(tmp_path: Path, command: str, environ: dict[str, str]) -> None:
    done = mainspring(tmp_path, command, "--host", "0.0.0.0", "--port", "0", "--for", "1s", **environ)
    assert done.returncode == 2
    assert "openssl rand" in done.stderr
    assert "changeme" not in done.stderr


def test_a_token_needs_a_secret_and_a_role(tmp_path: Path) -> None:
    none = mainspring(tmp_path, "token", "create", "--role", "admin", "--subject", "ann")
    assert (none.returncode, "openssl rand" in none.stderr) == (2, True)
    roleless = mainspring(tmp_path, "token", "create", "--subject", "ann", MAINSPRING_SECRET=SECRET)
    assert (roleless.returncode, "--role" in roleless.stderr) == (2, True)
    words = ("token", "create", "--allow", "root:all", "--subject", "ann")
    assert mainspring(tmp_path, *words, MAINSPRING_SECRET=SECRET).returncode == 2


def test_a_port_that_was_asked_for_and_is_taken_is_a_reason_to_stop(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        asked = mainspring(tmp_path, "up", "--port", port, "--for", "5s")
    assert (asked.returncode, "is taken" in asked.stderr) == (1, True)


def test_a_second_process_on_one_machine_goes_on_without_the_usual_port(tmp_path: Path) -> None:
    with ExitStack() as stack:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:  # If another process has it all the time, that is enough.
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", Settings().port)))
                break
            time.sleep(0.05)
        for patience in ("3s", "30s"):  # Where others keep the machine busy, it takes long to get so far.
            done = mainspring(tmp_path, "up", "--for", patience)
            if "stands by" in done.stderr:
                break
    assert (done.returncode, "stands by" in done.stderr) == (0, True)


def test_what_was_answered_2xx_survives_kill_9(start: Start) -> None:
    first, second = start("server", "--port", "0"), start("server", "--port", "0")
    client, other = first.client(), second.client()
    accepted = [client.post("/v1/runs", json={"task": "x", "args": {"n": n}}).json()["run_id"] for n in range(20)]
    accepted += client.post("/v1/runs:batch", json={"runs": [{"task": "x"}] * 100}).json()["run_ids"]
    first.process.kill()
    first.process.wait()
    kept = {run["run_id"] for run in other.get("/v1/runs", params={"limit": 1000}).json()["items"]}
    assert kept == set(accepted)


async def test_a_server_that_is_called_off_while_it_starts_ends_before_its_app_is_closed(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    await app.open()
    server = Server(app)
    starting = asyncio.create_task(server.start())
    while server.stopped:
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert server.stopped
    await app.close()
    assert app.opened is None
