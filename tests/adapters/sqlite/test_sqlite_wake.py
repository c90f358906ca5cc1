"""Processes that share a file wake each other, and get on without if they cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.core.model import NewRun
from mainspring.process.ids import IdSource
from mainspring.stores.sqlite.file import watch
from mainspring.stores.sqlite.file.wake import FOLDER, Wake
from mainspring.stores.sqlite.store import SqliteStore

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
PATIENCE_S = 20.0
LISTENS = """
import sys, time
from mainspring.stores.sqlite.file.wake import Wake
wake = Wake(sys.argv[1])
wake.listen(lambda: print("heard", flush=True))
print("ready", flush=True)
time.sleep(60)
"""

Listens = Callable[[Path], "subprocess.Popen[str]"]


@pytest.fixture
def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle processes do not look at the file by themselves."""
    monkeypatch.setattr(watch, "WATCH_S", 3600.0)
    monkeypatch.setattr(watch, "LONE_WATCH_S", 3600.0)


@pytest.fixture
def listens() -> Iterator[Listens]:
    """Starts a process that waits to be woken."""
    started: list[subprocess.Popen[str]] = []

    def start(path: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", LISTENS, str(path)], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until(condition: Callable[[], Any]) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_at, "it did not come about"
        time.sleep(0.005)


def a_run() -> NewRun:
    return NewRun(id=IDS.new(), task="t", due_at=0, created_at=CLOCK.now())


def sockets(path: Path) -> list[str]:
    folder = Path(f"{path}{FOLDER}")
    return sorted(os.listdir(folder)) if folder.exists() else []


async def test_a_submission_by_another_store_wakes_without_a_look_at_the_file(
    tmp_path: Path, nobody_looks: None
) -> None:
    path = tmp_path / "mainspring.db"
    one, other = SqliteStore(str(path), CLOCK), SqliteStore(str(path), CLOCK)
    heard = threading.Event()
    one.on_change(heard.set)
    await other.submit([a_run()])
    assert heard.wait(PATIENCE_S)
    await one.close()
    await other.close()
    assert sorted(os.listdir(tmp_path)) == ["mainspring.db"]


async def test_what_changes_nothing_for_workers_wakes_nobody(tmp_path: Path, nobody_looks: None) -> None:
    path = str(tmp_path / "mainspring.db")
    one, other = SqliteStore(path, CLOCK), SqliteStore(path, CLOCK)
    heard: list[None] = []
    one.on_change(lambda: heard.append(None))
    await other.note_heard("somebody", 5)
    await other.submit([a_run()])
    until(lambda: heard)
    assert len(heard) == 1
    await one.close()
    await other.close()


def test_a_process_is_woken_by_another(tmp_path: Path, listens: Listens) -> None:
    process, wake = listens(tmp_path / "x.db"), Wake(str(tmp_path / "x.db"))
    wake.publish()
    assert process.stdout is not None
    assert process.stdout.readline() == "heard\n"
    wake.close()


def test_a_path_may_be_longer_than_the_address_of_a_socket(tmp_path: Path, listens: Listens) -> None:
    folder = tmp_path / ("f" * 100) / ("g" * 100)
    folder.mkdir(parents=True)
    process, wake = listens(folder / "x.db"), Wake(str(folder / "x.db"))
    wake.publish()
    assert process.stdout is not None
    assert process.stdout.readline() == "heard\n"
    wake.close()


def test_a_process_that_was_killed_is_forgotten(tmp_path: Path, listens: Listens) -> None:
    path = tmp_path / "x.db"
    dead, alive = listens(path), listens(path)
    dead.send_signal(signal.SIGKILL)
    dead.wait(PATIENCE_S)
    assert len(sockets(path)) == 2
    wake = Wake(str(path))
    wake.publish()
    assert alive.stdout is not None
    assert alive.stdout.readline() == "heard\n"
    assert len(sockets(path)) == 1
    wake.close()


def test_one_that_does_not_read_holds_nobody_up(tmp_path: Path, listens: Listens) -> None:
    path = tmp_path / "x.db"
    stopped = listens(path)
    stopped.send_signal(signal.SIGSTOP)
    wake = Wake(str(path))
    for _ in range(10_000):
        wake.publish()
    assert len(sockets(path)) == 1
    stopped.send_signal(signal.SIGCONT)
    assert stopped.stdout is not None
    assert stopped.stdout.readline() == "heard\n"
    wake.close()


def test_sockets_of_other_machines_are_left_alone_until_they_are_old(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    folder = Path(f"{path}{FOLDER}")
    folder.mkdir()
    (folder / "elsewhere.1.aa").touch()
    (folder / "elsewhere.2.bb").touch()
    os.utime(folder / "elsewhere.2.bb", (0, 0))
    wake = Wake(str(path))
    wake.publish()
    assert sockets(path) == ["elsewhere.1.aa"]
    wake.close()


async def test_where_no_folder_can_be_made_changes_are_seen_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mainspring.db"
    os.symlink("/nowhere", f"{path}{FOLDER}")
    one, other = SqliteStore(str(path), CLOCK), SqliteStore(str(path), CLOCK)
    heard = threading.Event()
    one.on_change(heard.set)
    await other.submit([a_run()])
    assert heard.wait(PATIENCE_S)
    await one.close()
    await other.close()


def test_one_that_comes_after_the_last_has_gone_is_found(tmp_path: Path, listens: Listens) -> None:
    path = tmp_path / "x.db"
    first, wake = Wake(str(path)), Wake(str(path))
    first.listen(lambda: None)
    wake.publish()
    first.close()
    process = listens(path)
    wake.publish()
    assert process.stdout is not None
    assert process.stdout.readline() == "heard\n"
    wake.close()
