"""What a worker was configured with is not to be had by what it runs: commands of the same user, and their children,
search the whole of /proc for it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import mainspring
from mainspring import Mainspring, Retry
from mainspring.core.states import FINAL
from sdk_work import stored_run

# Root cannot be installed, unlike what other tests need.
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
PLACE: dict[str, str] = {}
"""Where the program is found, if not where this one is."""
APP = """
import os, subprocess, sys
from mainspring import Mainspring
app = Mainspring()

@app.task(isolation="process")
def in_process() -> list[object]:
    import mainspring.process.secrets as withheld
    child = subprocess.run(["env"], capture_output=True, text=True).stdout
    return [os.getpid(), sorted(os.environ), child, Mainspring().settings.listen, sorted(withheld.environment())]

@app.task
def leak() -> None:
    import logging
    logging.warning("cannot connect to %s", Mainspring().settings.listen)
    raise ValueError(f"cannot connect to {Mainspring().settings.listen}")

@app.task
def in_thread() -> list[object]:
    import mainspring.process.secrets as withheld
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


NOBODY = 65534


def _can_start(python: str, **env: str) -> bool:
    argv = [python, "-c", "import mainspring.cli.main"]
    try:
        tried = subprocess.run(argv, cwd="/", env=env, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True,
                               check=False)  # fmt: skip
    except PermissionError:
        return False
    return tried.returncode == 0


@pytest.fixture(scope="module")
def python() -> Iterator[tuple[str, dict[str, str]]]:
    """An interpreter and the environment with which every user can start the program: where only root can enter this
    tree, a copy of it."""
    if _can_start(sys.executable):
        yield sys.executable, {}
        return
    copy = Path(tempfile.mkdtemp(dir="/run"))
    copy.chmod(0o755)
    try:
        shutil.copytree(sysconfig.get_path("purelib"), copy / "site", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(Path(mainspring.__file__).parent, copy / "site" / "mainspring", dirs_exist_ok=True)
        found, env = os.path.realpath(sys.executable), {"PYTHONPATH": str(copy / "site")}
        assert _can_start(found, **env), f"other users may not execute {found}: test with another Python"
        yield found, env
    finally:
        shutil.rmtree(copy)


@pytest.fixture
def folder(python: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user may use."""
    monkeypatch.setattr(sys, "executable", python[0])
    for name, value in python[1].items():
        monkeypatch.setitem(PLACE, name, value)
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
    env = {"PATH": os.environ["PATH"], "MAINSPRING_STORE": f"sqlite:///{folder}/test.db", **PLACE, **CONFIGURED, **more}
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
            run = await stored_run(app, handle.id)
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


def is_hidden(pid: int) -> bool:
    return Path(f"/proc/{pid}/environ").stat().st_uid == 0


def are_hidden(user: int) -> bool:
    """Whether no process of a user is just starting, for a second: a program hides its memory as the first thing that
    it does, and a process that opened that before keeps it open (docs/executors.md)."""
    for _ in range(10):
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            with suppress(OSError):
                process = Path("/proc", pid)
                if f"\nUid:\t{user}\t" in (process / "status").read_text() and (process / "environ").stat().st_uid != 0:
                    return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("user", [65_534, 0], ids=["same user", "root"])
@pytest.mark.parametrize("command", ["worker", "up"])
async def test_a_command_finds_no_secret_of_the_worker_anywhere(
    app: Mainspring, folder: Path, user: int, command: str
) -> None:
    with running(folder, user, command, "work.py", MAINSPRING_PORT="0") as worker:
        first = await app.submit("in_process", {}, retry=Retry(0))  # So that there is a pool, with a process of it.
        assert (await ended(app, first)).state == "succeeded", (folder / "said").read_text()
        wait_for(lambda: are_hidden(user))
        handle = await app.submit(
            "command", {"argv": search(SIGNING, PASSWORD, OF_RUNS, "token-for-a-server")}, retry=Retry(0)
        )
        run = await ended(app, handle)
        store = await app.open()
        lines = [line.text for _, line in await store.list_logs(handle.id)]
        assert (run.state, lines) == ("succeeded", ["[]"]), (run.reason, (folder / "said").read_text())
        assert worker.poll() is None


async def test_a_process_is_hidden_before_it_imports_an_app(app: Mainspring, folder: Path) -> None:
    (folder / "slow.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(5)\n" + APP)
    for command in ("worker", "up", "server"):
        with running(folder, 65_534, command, "slow.py", MAINSPRING_PORT="0") as process:
            wait_for((folder / "importing").exists)
            assert is_hidden(process.pid), command
            (folder / "importing").unlink()


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


async def test_a_worker_masks_what_it_was_configured_with_in_errors_and_in_its_log(
    app: Mainspring, folder: Path
) -> None:
    with running(folder, 0, "worker", "work.py"):
        run = await ended(app, handle := await app.submit("leak", {}, retry=Retry(0)))
        said = (folder / "said").read_text()
    store = await app.open()
    lines = [line.text for _, line in await store.list_logs(handle.id)]
    assert "cannot connect to postgresql://mainspring***localhost" in run.error
    assert "cannot connect to postgresql://mainspring***localhost" in said
    assert PASSWORD not in f"{run.error} {run.reason} {lines} {said}"


@pytest.mark.parametrize(("isolation", "seen"), [("none", True), ("limits", False), ("sandbox", False)])
async def test_a_confined_command_does_not_see_a_worker_that_is_not_root(
    app: Mainspring, folder: Path, isolation: str, seen: bool
) -> None:
    with running(folder, 65_534, "worker", MAINSPRING_ISOLATION=isolation) as worker:
        argv = ["sh", "-c", f"test -e /proc/{worker.pid}/environ && echo seen"]
        handle = await app.submit("command", {"argv": argv, "success": [0, 1]}, retry=Retry(0))
        run = await ended(app, handle)
        assert run.state == "succeeded", run.reason
        store = await app.open()
        assert [line.text for _, line in await store.list_logs(handle.id)] == ["seen"] * seen


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
