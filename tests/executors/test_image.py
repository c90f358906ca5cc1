"""The image of the Containerfile, and containers by a real podman: `scripts/image` builds and installs both, and
`make test-image` runs these tests."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from scene import Attempt, Scene, crowd_of, scene_of, until

from mainspring.version import VERSION

pytestmark = pytest.mark.image
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mainspring" / "image"
IMAGE = "localhost/mainspring"
AS_IN_THE_MANIFESTS = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
MOST_MEGABYTES = 280
"""Of which Debian and its Python are 128."""


@pytest.fixture(scope="module")
def podman() -> str:
    program = CACHE / "bin" / "podman"
    if not program.exists():
        pytest.fail("there is no image: `scripts/image` builds it in some minutes")
    return str(program)


def run(podman: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [podman, "run", "--rm", "--pull", "never", *AS_IN_THE_MANIFESTS, *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def test_it_is_small_and_runs_as_a_user_that_writes_nowhere(podman: str) -> None:
    said = run(podman, IMAGE, "--version")
    assert said.stdout == f"mainspring {VERSION}\n", said.stderr
    # The user of the manifests, and only /tmp to write to.
    script = "id -u; id -g; touch /tmp/x && echo tmp; touch /app/x; touch /opt/mainspring/x; command -v pip npm"
    found = run(podman, "--entrypoint", "sh", IMAGE, "-c", script)
    assert found.stdout.split() == ["10001", "10001", "tmp"], found.stderr
    assert found.stderr.count("Read-only file system") == 2
    argv = [podman, "image", "inspect", "--format", "{{.Size}} {{.Config.User}}", IMAGE]
    size, user = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert (int(size) < MOST_MEGABYTES * 1_000_000, user) == (True, "10001:10001"), size


@pytest.fixture
def server(podman: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = ["up", "--host", "127.0.0.1", "--port", port, "--store", "sqlite:////tmp/test.db"]
    process = subprocess.Popen([podman, "run", "--rm", "--pull", "never", *AS_IN_THE_MANIFESTS, IMAGE, *words])
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.terminate()
        process.wait(60)


async def test_up_answers_probes_serves_the_ui_and_stops_when_asked(
    server: tuple[str, subprocess.Popen[bytes]],
) -> None:
    url, process = server
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:

        async def is_ready() -> bool:
            try:
                return (await client.get("/health/readiness")).status_code == 200
            except httpx.HTTPError:
                return False

        await until_async(is_ready)
        assert (await client.get("/health/liveness")).status_code == 200
        # The libraries of the web UI are in the wheel.
        assert (await client.get("/ui/")).status_code == 200
        assert (await client.get("/ui/libraries/preact.js")).status_code == 200
        job = {"name": "hello", "command": ["echo", "hello"], "every": "1s"}
        assert (await client.post("/v1/jobs", json=job)).status_code == 201

        async def has_run() -> bool:
            found = await client.get("/v1/runs", params={"job": "hello", "state": "succeeded"})
            return bool(found.json()["items"])

        await until_async(has_run)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


async def until_async(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await holds():
            await asyncio.sleep(0.1)


@pytest.fixture
async def scene(podman: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Scene]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(podman).parent}:/usr/sbin:/usr/bin:/sbin:/bin")
    async with scene_of(containers="podman") as scene:
        yield scene


def a_container(script: str, words: dict[str, Any] | None = None, **spec: Any) -> Attempt:
    given = {"image": IMAGE, "command": ["python3", "-c", script], "pull": "Never", **spec}
    return Attempt("container", given, **(words or {}))


def containers(podman: str, attempt: Attempt) -> list[str]:
    argv = [podman, "ps", "--all", "--quiet", "--filter", f"name=mainspring-{attempt.claim.run_id}$"]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.split()


class TestPodman:
    async def test_a_container_has_what_its_run_names(self, scene: Scene, podman: str) -> None:
        script = (
            "import os, sys; print(os.environ['COLOUR'], os.environ['MAINSPRING_RUN_ID'], os.getcwd(), sys.argv[1:])"
        )
        limits = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}
        attempt = a_container(script, args=["a b"], env={"COLOUR": "red"}, cwd="/usr", resources=limits)
        outcome = await scene.execute(attempt)
        assert outcome.kind == "succeeded", (outcome, attempt.lines)
        assert attempt.said() == [f"red {attempt.claim.run_id} /usr ['a b']"]
        assert containers(podman, attempt) == []

    async def test_ends_are_distinguished(self, scene: Scene, podman: str) -> None:
        failed = await scene.execute(a_container("import sys; print('wrong', file=sys.stderr); sys.exit(3)"))
        assert failed.failure is not None
        assert failed.failure.message == "the container exited with code 3: wrong"
        greedy = a_container("kept = bytearray(400_000_000)", resources={"limits": {"memory": "64Mi"}})
        killed = await scene.execute(greedy)
        assert killed.failure is not None
        assert killed.failure.type == "ContainerOOMKilled"
        assert "limit of 64Mi (OOMKilled)" in killed.failure.message
        assert os.listdir() == []  # conmon leaves a file where podman was started.
        absent = await scene.execute(a_container("", image="localhost/absent"))
        assert absent.failure is not None
        assert absent.failure.type == "ContainerNotRun"

    async def test_a_container_that_was_killed_by_a_signal_was_not_killed_for_memory(
        self, scene: Scene, podman: str
    ) -> None:
        limits = {"limits": {"memory": "64Mi"}}
        attempt = a_container("import time; print('up', flush=True); time.sleep(600)", resources=limits)
        running = scene.begin(attempt)
        await until(lambda: attempt.said() == ["up"], 60)
        argv = [podman, "kill", "--signal", "KILL", f"mainspring-{attempt.claim.run_id}"]
        await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True, timeout=60)
        failure = (await running).failure
        assert failure is not None
        assert (failure.type, failure.message) == ("ContainerFailed", "the container exited with code 137: up")

    async def test_a_deadline_ends_the_container(self, podman: str, scene: Scene) -> None:
        async with crowd_of(containers="podman") as crowd:
            attempt = a_container("import time; time.sleep(600)", words={"timeout": "3s"})
            report = await crowd.run(attempt, 60)
        assert report.outcome == "timed_out"
        assert containers(podman, attempt) == []

    async def test_the_next_attempt_removes_what_a_killed_worker_left(self, scene: Scene, podman: str) -> None:
        attempt = a_container("print('second')")
        name = f"mainspring-{attempt.claim.run_id}"
        argv = [podman, "run", "--detach", "--pull", "never", "--name", name, "--entrypoint", "sleep", IMAGE, "600"]
        await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True, timeout=60)
        outcome = await scene.execute(attempt)
        assert (outcome.kind, attempt.said()) == ("succeeded", ["second"]), attempt.lines
        assert containers(podman, attempt) == []
