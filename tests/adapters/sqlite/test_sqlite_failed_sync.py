"""After a failed sync nothing is promised until the log has been written anew: the kernel reports the failure once, and
then takes the pages that it could not write for clean."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.core.model import NewRun
from mainspring.errors import StoreFailed, StoreUnavailable
from mainspring.process.ids import IdSource
from mainspring.store import RunFilter
from mainspring.stores.sqlite.file.connection import connect
from mainspring.stores.sqlite.file.unsynced import let_go, mark
from mainspring.stores.sqlite.store import SqliteStore

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
BLOCK = 4096
PATIENCE_S = 60.0


def a_run() -> NewRun:
    return NewRun(id=IDS.new(), task="t", due_at=0, created_at=CLOCK.now())


class Disk:
    """A disk below one database. A sync writes the log's blocks that changed since the last sync; one that fails drops
    them, and says so once."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = str(folder / "live.db")
        self._main = self._log = b""
        self._lock = threading.Lock()
        self._seen = b""
        self._dirty: set[int] = set()
        self.failures = 0
        self._pwrite = os.pwrite
        monkeypatch.setattr(os, "fdatasync", self._sync)
        monkeypatch.setattr(os, "pwrite", self._write)

    def _write(self, file: int, data: bytes, position: int) -> int:
        self._dirty |= set(range(position // BLOCK, (position + len(data) - 1) // BLOCK + 1))
        return self._pwrite(file, data, position)

    def _sync(self, _: int) -> None:
        with self._lock:
            self._sync_alone()

    def _sync_alone(self) -> None:
        cached = Path(self.path + "-wal").read_bytes()
        blocks = range((len(cached) + BLOCK - 1) // BLOCK)
        changed = {number for number in blocks if _block(cached, number) != _block(self._seen, number)} | self._dirty
        self._seen, self._dirty = cached, set()
        if self.failures:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        old = self._log
        self._log = b"".join(
            _block(cached, number) if number in changed else _block(old, number).ljust(BLOCK, b"\0")
            for number in blocks
        )[: len(cached)]
        self._main = Path(self.path).read_bytes()

    async def after_a_power_cut(self) -> set[str]:
        """The runs that the next program finds."""
        left = Path(tempfile.mkdtemp(dir=os.path.dirname(self.path))) / "left.db"
        with self._lock:
            left.write_bytes(self._main)
            left.with_name("left.db-wal").write_bytes(self._log)
        found = SqliteStore(str(left), CLOCK, durable=False)
        try:
            return {run.id for run in await found.list_runs(RunFilter(limit=1000))}
        finally:
            await found.close()


def _block(data: bytes, number: int) -> bytes:
    return data[number * BLOCK : (number + 1) * BLOCK]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


async def submit(store: SqliteStore, count: int) -> set[str]:
    """Those that were accepted."""
    accepted = set()
    for number in range(count):
        runs = [a_run() for _ in range(1 + number % 2)]
        with suppress(StoreUnavailable):
            await store.submit(runs)
            accepted |= {run.id for run in runs}
    return accepted


async def open_again(path: str) -> SqliteStore:
    """When the process that failed has let go of the file."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(StoreUnavailable):
            return SqliteStore(path, CLOCK)
        await asyncio.sleep(0.02)
    pytest.fail("the file was never let go")


@pytest.mark.parametrize("listens", [False, True], ids=["alone", "beside a worker"])
async def test_what_was_accepted_after_a_failed_sync_survives_a_power_cut(disk: Disk, listens: bool) -> None:
    store = SqliteStore(disk.path, CLOCK)
    if listens:
        store.on_change(lambda: None)
    accepted = await submit(store, 3)
    disk.failures = 1
    with pytest.raises(StoreFailed, match=r"live\.db could not be synced .*Check the disk, then restart"):
        await store.submit([a_run()])
    accepted |= await submit(store, 5)
    assert accepted <= await disk.after_a_power_cut()
    await store.close()
    accepted |= await submit(await open_again(disk.path), 5)
    assert accepted <= await disk.after_a_power_cut()
    assert len(accepted) >= 10


async def test_everything_else_is_refused_too(disk: Disk) -> None:
    store = SqliteStore(disk.path, CLOCK)
    await submit(store, 1)
    disk.failures = 1
    with pytest.raises(StoreFailed):
        await store.submit([a_run()])
    with pytest.raises(StoreFailed):
        await store.list_runs(RunFilter())
    with pytest.raises(StoreFailed):
        await store.acquire("x", "me", 1)
    await store.close()


async def test_another_process_that_has_the_file_open_stops_as_well(disk: Disk) -> None:
    ours, theirs = SqliteStore(disk.path, CLOCK), SqliteStore(disk.path, CLOCK)
    await submit(ours, 1)
    await submit(theirs, 1)
    disk.failures = 1
    with pytest.raises(StoreFailed):
        await ours.submit([a_run()])
    with pytest.raises(StoreFailed, match="by another process"):
        await theirs.submit([a_run()])
    store = await open_again(disk.path)  # Both have let go, though neither was closed.
    assert await submit(store, 2) <= await disk.after_a_power_cut()
    for each in (ours, theirs, store):
        await each.close()


def test_a_process_lets_go_of_the_file_though_another_writes_at_that_moment(disk: Disk) -> None:
    asyncio.run(SqliteStore(disk.path, CLOCK).close())
    writer, reader = connect(disk.path), connect(disk.path)
    writer.execute("PRAGMA busy_timeout = 0")  # As every writer has it.
    with closing(sqlite3.connect(disk.path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.2, other.execute, ["ROLLBACK"]).start()
        assert let_go(writer, reader, disk.path)


async def test_a_disk_that_still_fails_is_not_used(disk: Disk) -> None:
    store = SqliteStore(disk.path, CLOCK)
    accepted = await submit(store, 3)
    disk.failures = 100
    with pytest.raises(StoreFailed):
        await store.submit([a_run()])
    await store.close()
    shutil.copyfile(disk.path, disk.path + ".copy")
    shutil.copyfile(disk.path + "-wal", disk.path + ".copy-wal")
    mark(disk.path + ".copy")
    with pytest.raises(StoreFailed, match="Input/output error"):
        SqliteStore(disk.path + ".copy", CLOCK)
    assert accepted <= await disk.after_a_power_cut()


def test_it_is_not_opened_while_another_process_uses_it(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.stores.sqlite.file.unsynced.BUSY_TIMEOUT_S", 0.1)
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM jobs').fetchall(); "
        "print('open', flush=True); sys.stdin.read()"
    )
    asyncio.run(SqliteStore(disk.path, CLOCK).close())
    command = [sys.executable, "-c", program, disk.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        Path(disk.path + "-unsynced").touch()
        with pytest.raises(StoreUnavailable, match="other processes still have it open"):
            SqliteStore(disk.path, CLOCK)
        other.communicate()
    asyncio.run(SqliteStore(disk.path, CLOCK).close())
    assert not Path(disk.path + "-unsynced").exists()


APP = """
import os
from mainspring import Mainspring
app = Mainspring()
sync = os.fdatasync

def failing(file):
    if os.path.exists("break"):
        raise OSError(5, "Input/output error")
    sync(file)

os.fdatasync = failing

@app.task()
def quick() -> None: ...
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(APP)
    return tmp_path


def test_a_process_that_runs_loops_ends_with_an_error(folder: Path) -> None:
    main = [sys.executable, "-m", "mainspring"]
    environment = {**os.environ, "MAINSPRING_STORE": "sqlite:///x.db"}
    up = subprocess.Popen(
        [*main, "up", "work.py", "--quiet", "--no-api"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        submit = [*main, "run", "submit", "quick", "--json"]
        run = json.loads(subprocess.check_output(submit, cwd=folder, env=environment, timeout=60))
        subprocess.run([*main, "run", "wait", run["run_id"]], cwd=folder, env=environment, timeout=60, check=True)
        (folder / "break").touch()
        subprocess.run(submit, cwd=folder, env=environment, timeout=60, check=False)
        _, errors = up.communicate(timeout=60)
    finally:
        if up.poll() is None:
            up.send_signal(signal.SIGKILL)
            up.communicate()
    assert up.returncode == 1
    assert "x.db could not be synced" in errors
    assert "Traceback" not in errors
    (folder / "break").unlink()
    assert subprocess.run([*main, "run", "list"], cwd=folder, env=environment, timeout=60, check=False).returncode == 0
