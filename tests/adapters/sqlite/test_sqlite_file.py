"""One file, many troubles: its owner, which users may write it, what happens when it cannot be written."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.core.model import NewRun
from mainspring.errors import Conflict, StoreFull, StoreMismatch, StoreReadOnly, StoreRefused, StoreUnavailable
from mainspring.process.ids import IdSource
from mainspring.store import RunFilter
from mainspring.stores.sql import load_migrations
from mainspring.stores.sqlite.file.connection import connect, look_at, migrate
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.store import SqliteStore

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
NOBODY = 65534


def new_run(**changes: Any) -> NewRun:
    facts: dict[str, Any] = {"id": IDS.new(), "task": "t", "due_at": 0, "created_at": CLOCK.now()}
    return NewRun(**facts | changes)


@contextmanager
def without_root() -> Iterator[None]:
    """Permissions mean nothing to root: act as another user meanwhile."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with room for little more than an empty database."""
    if os.geteuid():
        pytest.fail("only root can make a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "mainspring", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(file: Path) -> None:
    """Until there is no room."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"\0" * 4096)


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


class TestOpening:
    def test_a_text_file_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.db"
        path.write_text("these are my notes, not a database " * 40)
        with pytest.raises(StoreMismatch, match=r"notes\.db is not a database.*name another file"):
            SqliteStore(str(path), CLOCK)
        assert path.read_text().startswith("these are my notes")

    def test_somebody_elses_database_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "theirs.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
            theirs.execute("CREATE TABLE invoices (id INTEGER)")
        before = path.read_bytes()
        with pytest.raises(StoreMismatch, match="not one of Mainspring's"):
            SqliteStore(str(path), CLOCK)
        assert path.read_bytes() == before

    async def test_a_database_that_needs_a_newer_program_is_refused(self, tmp_path: Path) -> None:
        path = str(tmp_path / "new.db")
        await SqliteStore(path, CLOCK).close()
        latest = load_migrations("sqlite")[-1].version
        with closing(sqlite3.connect(path, isolation_level=None)) as newer:
            newer.execute("INSERT INTO migrations VALUES (?, 'later', ?, 0)", (latest + 1, latest + 1))
            newer.execute(f"PRAGMA user_version = {latest + 1}")
        with pytest.raises(StoreMismatch, match="Install a newer mainspring"):
            SqliteStore(path, CLOCK)

    async def test_a_schema_from_before_the_first_known_one_is_refused_and_kept(self, tmp_path: Path) -> None:
        path, first = str(tmp_path / "old.db"), load_migrations("sqlite")[0].version
        await SqliteStore(path, CLOCK).close()
        with closing(sqlite3.connect(path, isolation_level=None)) as older:
            older.execute("UPDATE migrations SET version = ?, oldest = 1", (first - 1,))
            older.execute(f"PRAGMA user_version = {first - 1}")
        remedy = (
            f"schema version {first - 1}, and this program upgrades from version {first} on. Upgrade it with an older"
        )
        with pytest.raises(StoreMismatch, match=remedy):
            SqliteStore(path, CLOCK)
        assert look_at(path).version == first - 1

    async def test_a_newer_schema_that_older_programs_may_use_is_used(self, tmp_path: Path) -> None:
        path = str(tmp_path / "new.db")
        await SqliteStore(path, CLOCK).close()
        latest = load_migrations("sqlite")[-1].version
        with closing(sqlite3.connect(path, isolation_level=None)) as newer:
            newer.execute("INSERT INTO migrations VALUES (?, 'later', ?, 0)", (latest + 1, latest))
            newer.execute(f"PRAGMA user_version = {latest + 1}")
        store = SqliteStore(path, CLOCK)
        await store.submit([new_run()])
        await store.close()

    def test_a_folder_that_does_not_exist_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(StoreUnavailable, match=r"nowhere does not exist; create it first"):
            SqliteStore(str(tmp_path / "nowhere" / "x.db"), CLOCK)

    def test_a_file_that_cannot_be_written_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "x.db"
        asyncio.run(SqliteStore(str(path), CLOCK).close())
        tmp_path.chmod(0o755)
        path.chmod(0o444)
        for folder in list(tmp_path.parents)[:-2]:
            folder.chmod(0o755)
        with without_root(), pytest.raises(StoreReadOnly, match="check the permissions"):
            SqliteStore(str(path), CLOCK)

    async def test_a_new_file_and_its_log_are_their_owners_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "x.db"
        before = os.umask(0o022)
        try:
            store = SqliteStore(str(path), CLOCK)
            await store.submit([new_run()])
        finally:
            os.umask(before)
        assert modes_in(tmp_path) == {"x.db": 0o600, "x.db-wal": 0o600, "x.db-shm": 0o600}
        await store.close()

    async def test_a_file_that_was_made_before_keeps_its_mode(self, tmp_path: Path) -> None:
        path = tmp_path / "x.db"
        os.close(os.open(path, os.O_CREAT, 0o640))
        await SqliteStore(str(path), CLOCK).close()
        assert modes_in(tmp_path) == {"x.db": 0o640}

    def test_a_folder_in_place_of_a_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StoreRefused, match="it is a folder; name a file in it"):
            SqliteStore(str(tmp_path), CLOCK)

    def test_a_disk_that_is_mounted_read_only_is_named(self, small_disk: Path) -> None:
        path = small_disk / "x.db"
        asyncio.run(SqliteStore(str(path), CLOCK).close())
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        with pytest.raises(StoreRefused, match=f"the folder {small_disk} cannot be written"):
            SqliteStore(str(path), CLOCK)

    def test_looking_at_a_database_changes_nothing(self, tmp_path: Path) -> None:
        path = str(tmp_path / "x.db")
        connection = connect(path)
        migrate(connection, 0)
        connection.close()
        before = sorted(file.name for file in tmp_path.iterdir())
        status = look_at(path)
        assert (status.version, status.refusal) == (status.latest, "")
        assert sorted(file.name for file in tmp_path.iterdir()) == before

    def test_several_processes_may_create_one_file_at_once(self, tmp_path: Path) -> None:
        program = (
            "import asyncio, sys; from mainspring.clock import SystemClock; "
            "from mainspring.stores.sqlite.store import SqliteStore; "
            "store = SqliteStore(sys.argv[1], SystemClock()); asyncio.run(store.close())"
        )
        command = [sys.executable, "-c", program, str(tmp_path / "x.db")]
        processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
        assert [(process.communicate()[1], process.returncode) for process in processes] == [(b"", 0)] * 4


class TestMigrations:
    def test_add_up_to_the_schema(self) -> None:
        """Applied one by one they give the tables of all at once; and every table is described."""
        connection = connect(":memory:")
        migrate(connection, 0)
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        connection.close()
        assert {"jobs", "firings", "runs", "history", "attempts", "submissions", "edges", "gates", "lines"} <= tables

    def test_a_migration_that_fails_leaves_nothing_behind(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = load_migrations("sqlite")[0]
        broken = first._replace(
            version=first.version + 1, script="-- oldest: 1\nCREATE TABLE half (x);\nCREATE TABLE half (x);\n"
        )
        monkeypatch.setattr("mainspring.stores.sqlite.file.connection.load_migrations", lambda _: (first, broken))
        connection = connect(":memory:")
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, 0)
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        connection.close()


class TestAFullDisk:
    async def test_is_named_when_a_file_on_it_is_opened_and_while_it_is_open(self, small_disk: Path) -> None:
        store = SqliteStore(str(small_disk / "x.db"), CLOCK)
        kept, big = new_run(), [new_run(args='"' + "x" * 100_000 + '"') for _ in range(5)]
        await store.submit([kept])
        ballast = small_disk / "ballast"
        fill(ballast)
        with pytest.raises(StoreFull, match=r"nothing was written\. Free some space"):
            await store.submit(big)
        ballast.unlink()
        await store.close()

        fill(ballast)
        with pytest.raises(StoreFull, match=r"nothing was written\. Free some space"):
            SqliteStore(str(small_disk / "x.db"), CLOCK)
        ballast.unlink()
        store = SqliteStore(str(small_disk / "x.db"), CLOCK)
        assert [run.id for run in await store.list_runs(RunFilter())] == [kept.id]
        await store.submit(big)
        await store.close()

    async def test_refuses_the_write_whole_and_goes_on_when_there_is_room_again(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "x.db"), CLOCK)
        kept = new_run()
        await store.submit([kept])

        (used,) = await store._db.read(lambda tx: tx.execute("PRAGMA page_count").fetchone())
        store._db._writer.execute(f"PRAGMA max_page_count = {used + 4}")
        big = [new_run(args='"' + "x" * 100_000 + '"') for _ in range(5)]
        with pytest.raises(StoreFull, match=r"nothing was written\. Free some space"):
            await store.submit(big)
        store._db._writer.execute("PRAGMA max_page_count = 1000000")
        assert [run.id for run in await store.list_runs(RunFilter())] == [kept.id]
        await store.submit(big)
        assert len(await store.list_runs(RunFilter())) == 6
        await store.close()


class TestSharedCommits:
    async def test_work_that_fails_is_undone_alone(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "x.db"), CLOCK)
        good, key = [new_run() for _ in range(20)], "same"
        clash = [new_run(idempotency_key=key, args=str(number)) for number in range(20)]
        calls = [store.submit([run]) for pair in zip(good, clash, strict=True) for run in pair]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(refused) == 19
        assert all(isinstance(error, Conflict) for error in refused)
        stored = {run.id for run in await store.list_runs(RunFilter(limit=100))}
        assert {run.id for run in good} <= stored
        assert len(stored) == 21
        await store.close()

    async def test_events_of_work_that_failed_are_not_reported(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "x.db"), CLOCK)
        key = "same"
        calls = [store.submit([new_run(idempotency_key=key, args=str(number))]) for number in range(5)]
        await asyncio.gather(*calls, return_exceptions=True)
        await store.number_events(100)
        reported = [event.kind for batch in await store.events_since(0, 100) for event in batch.events]
        assert reported == ["run.submitted"]
        await store.close()

    async def test_a_reader_never_sees_half_of_a_write(self, tmp_path: Path) -> None:
        database = Database(str(tmp_path / "x.db"), CLOCK)

        def half_then_fail(tx: Transaction) -> None:
            tx.execute("INSERT INTO counters VALUES ('half', 1)")
            raise RuntimeError("stop")

        with pytest.raises(RuntimeError):
            await database.write(half_then_fail)
        assert await database.read(lambda tx: tx.execute("SELECT * FROM counters WHERE name = 'half'").fetchall()) == []
        await database.close()

    async def test_after_closing_it_says_so(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "x.db"), CLOCK)
        await store.close()
        with pytest.raises(StoreUnavailable, match="has been closed"):
            await store.submit([new_run()])


class TestHints:
    async def test_a_commit_of_another_process_is_noticed(self, tmp_path: Path) -> None:
        path = str(tmp_path / "x.db")
        ours, theirs = SqliteStore(path, CLOCK), SqliteStore(path, CLOCK)
        noticed, loop = asyncio.Event(), asyncio.get_running_loop()

        def notice() -> None:
            loop.call_soon_threadsafe(noticed.set)

        ours.on_change(notice)
        await theirs.submit([new_run()])
        await asyncio.wait_for(noticed.wait(), 20)
        await ours.close()
        await theirs.close()

    async def test_a_listener_that_fails_does_not_end_the_writing(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "x.db"), CLOCK)

        def fail() -> None:
            raise RuntimeError("not today")

        store.on_change(fail)
        for _ in range(3):
            await asyncio.wait_for(store.submit([new_run(), new_run()]), 20)
        assert len(await store.list_runs(RunFilter())) == 6
        await store.close()


async def test_submissions_fail_in_time_while_another_process_has_the_file_locked(tmp_path: Path) -> None:
    """However many wait before them; and what had not begun by then is never done."""
    path = str(tmp_path / "locked.db")
    clock = SystemClock()
    store = SqliteStore(path, clock, schedule_s=0.5)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    now = clock.now()
    runs = [NewRun(f"run-{number}", "work", now, now) for number in range(600)]
    errors = await asyncio.gather(*(store.submit([run]) for run in runs), return_exceptions=True)
    took_s = time.monotonic() - began
    other.execute("ROLLBACK")
    other.close()
    assert {type(error) for error in errors} == {StoreUnavailable}
    assert "not done within 0.5 s" in str(errors[-1])
    assert took_s < 20.0, "one deadline for all of them, not one after another"
    last = NewRun("last", "work", clock.now(), clock.now())
    async with asyncio.timeout(20):
        while True:
            try:
                assert await store.submit([last]) == ["last"]
                break
            except StoreUnavailable:
                continue  # The thread is still trying for those that came first.
    kept = await store.list_runs(RunFilter(limit=1_000))
    assert len(kept) < 600, "those whose callers had left before their turn came are not there"
    await store.close()
