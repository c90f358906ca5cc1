"""What a worker was configured with is not to be had by what it runs: commands of the same user, and their children,
search the whole of /proc for it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring, Retry
from mainspring.core.states import FINAL

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start workers of several users")

SIGNING = "signing-key-0123456789-abcdefghijklm"
PASSWORD = "pass-of-the-database"
OF_RUNS = "secret-of-a-run"
CONFIGURED = {
    "MAINSPRING_SECRET": SIGNING,
    "MAINSPRING_LISTEN": f"postgresql://mainspring:{PASSWORD}@localhost/none",
    "MAINSPRING_SECRET_TOKEN": OF_RUNS,
    "MAINSPRING_TOKEN": "token-for-a-server",
}
APP = """
import os, subprocess, sys
from mainspring import Mainspring
app = Mainspring()

@app.task(isolation="process")
def in_process() -> list[object]:
    import mainspring.withheld as withheld
    child = subprocess.run(["env"], capture_output=True, text=True).stdout
    return [os.getpid(), sorted(os.environ), child, Mainspring().settings.listen, sorted(withheld.environment())]

@app.task
def in_thread() -> list[object]:
    import mainspring.withheld as withheld
    child = subprocess.run(["env"], capture_output=True, text=True).stdout
    return [os.getpid(), sorted(os.environ), child, Mainspring().settings.listen, sorted(withheld.environment())]
"""
SEARCH = """
import os, re
found, looked = [], 0
for pid in [name for name in os.listdir("/proc") if name.isdecimal() and name != str(os.getpid())]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read()
        looked += 1
        found += [pid for mark in MARKS if mark[::-1].encode() in text]
    except OSError:
        pass
    try:
        with open(f"/proc/{pid}/maps") as file:
            areas = [line.split()[0].split("-") for line in file if line.split()[1].startswith("rw")]
        with open(f"/proc/{pid}/mem", "rb") as memory:
            for start, end in areas:
                memory.seek(int(start, 16))
                text = memory.read(int(end, 16) - int(start, 16))
                found += [pid for mark in MARKS if mark[::-1].encode() in text]
    except (OSError, OverflowError, ValueError, MemoryError):
        pass
print([os.popen(f"tr '\\\\0' ' ' </proc/{pid}/cmdline").read() for pid in sorted(set(found))])
"""
"""Marks are written backwards, so that the search does not find itself."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may use."""
    folder = Path(tempfile.mkdtemp(dir="/run"))
    folder.chmod(0o777)
    (folder / "work.py").write_text(APP)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def app(folder: Path) -> AsyncIterator[Mainspring]:
    app = Mainspring(f"sqlite:///{folder}/test.db")
    await app.open()
    _let_all_write(folder)
    yield app
    await app.close()


def _let_all_write(folder: Path) -> None:
    for file in folder.glob("test.db*"):
        file.chmod(0o666)


@contextmanager
def running(folder: Path, user: int, *args: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real process of this user, with secrets in its environment."""
    env = {"PATH": os.environ["PATH"], "MAINSPRING_STORE": f"sqlite:///{folder}/test.db", **CONFIGURED, **more}
    argv = [sys.executable, "-m", "mainspring", *args]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(argv, cwd=folder, env=env, stdout=said, stderr=said, user=user, group=user,
                                   extra_groups=[], umask=0)  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


async def ended(app: Mainspring, handle: Any) -> Any:
    async with asyncio.timeout(30):
        while True:
            run = await app.get_run(handle.id)
            if run.state in FINAL:
                return run
            await asyncio.sleep(0.02)


def environ_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_bytes().decode()


def search(*marks: str) -> list[str]:
    marked = [mark[::-1] for mark in marks]
    return [sys.executable, "-S", "-c", SEARCH.replace("MARKS", repr(marked))]


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("user", [65_534, 0], ids=["same user", "root"])
@pytest.mark.parametrize("command", ["worker", "up"])
async def test_a_command_finds_no_secret_of_the_worker_anywhere(
    app: Mainspring, folder: Path, user: int, command: str
) -> None:
    with running(folder, user, command, "work.py", MAINSPRING_PORT="0") as worker:
        first = await app.submit("in_process", {}, retry=Retry(0))  # So that there is a pool, with a process of it.
        assert (await ended(app, first)).state == "succeeded", (folder / "said").read_text()
        handle = await app.submit(
            "command", {"argv": search(SIGNING, PASSWORD, OF_RUNS, "token-for-a-server")}, retry=Retry(0)
        )
        run = await ended(app, handle)
        store = await app.open()
        lines = [line.text for _, line in await store.list_logs(handle.id)]
        assert (run.state, lines) == ("succeeded", ["[]"]), (run.reason, (folder / "said").read_text())
        assert worker.poll() is None


async def test_the_environment_of_a_worker_and_of_its_pool_shows_none_not_even_to_root(
    app: Mainspring, folder: Path
) -> None:
    with running(folder, 65_534, "worker", "work.py") as worker:
        for task in ("in_process", "in_thread"):
            run = await ended(app, await app.submit(task, {}, retry=Retry(0)))
            assert run.state == "succeeded", (run.reason, (folder / "said").read_text())
            pid, names, child, listen, kept = json.loads(run.result)
            for text in (environ_of(worker.pid), environ_of(pid), child):
                assert not [secret for secret in CONFIGURED.values() if secret in text]
            assert not set(CONFIGURED) & set(names)
            assert listen.startswith("postgresql://mainspring"), "another app in this process still finds its way"
            assert "MAINSPRING_SECRET" not in kept, "a worker has no use for the key"


async def test_root_confines_commands_says_so_and_cannot_be_asked_not_to(app: Mainspring, folder: Path) -> None:
    with running(folder, 0, "worker"):
        shown = ["sh", "-c", "id -u; cat /proc/self/status | grep NoNewPrivs"]
        run = await ended(app, handle := await app.submit("command", {"argv": shown}, retry=Retry(0)))
        store = await app.open()
        lines = [line.text for _, line in await store.list_logs(handle.id)]
        assert run.state == "succeeded"
        assert lines[0] != "0"
        assert lines[1].split() == ["NoNewPrivs:", "1"]
        for isolation in ("none", "limits,user=root"):
            run = await ended(app, await app.submit("command", {"argv": shown}, retry=Retry(0), isolation=isolation))
            assert run.state == "failed"
            assert "IsolationUnavailable" in run.reason
        assert "this worker is root, so commands run confined (limits)" in (folder / "said").read_text()


async def test_a_settings_file_with_secrets_that_others_can_read_is_warned_of(app: Mainspring, folder: Path) -> None:
    file = folder / "mainspring.toml"
    file.write_text(f'secret = "{SIGNING}"\nlisten = "postgresql://a:{PASSWORD}@host/b"\n')
    with running(folder, 0, "worker"):
        wait_for(lambda: "chmod 600 mainspring.toml" in (folder / "said").read_text())
    assert "mainspring.toml holds secret and listen" in (folder / "said").read_text()
    file.chmod(0o600)
    os.chown(file, 65_534, 65_534)
    with running(folder, 65_534, "worker"):
        wait_for(lambda: "commands, which have this user, can read it" in (folder / "said").read_text())
    with running(folder, 65_534, "worker", MAINSPRING_ISOLATION="sandbox"):
        wait_for(lambda: "next" in (said := (folder / "said").read_text()) or "host" in said)
        assert "Warning" not in (folder / "said").read_text()
