"""Opening a database file: is it ours, may we write it, is its schema one that we know."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from mainspring.errors import StoreError, StoreFull, StoreMismatch, StoreReadOnly, StoreRefused, StoreUnavailable
from mainspring.stores.sql import SchemaStatus, load_migrations

APPLICATION_ID = 0x4D535052  # "MSPR": `file mainspring.db` and other programs can recognise it
BUSY_TIMEOUT_S = 5.0
OLDEST_SQLITE = (3, 35, 0)  # RETURNING
PRODUCT = f"SQLite {sqlite3.sqlite_version}"
SMALLEST_ROOM = 64 * 1024
"""With fewer bytes on the disk not even the index of the log, which grows by 32 KiB, has room."""


def connect(path: str) -> sqlite3.Connection:
    """A connection with our settings; the caller begins and ends transactions."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreMismatch(f"{PRODUCT} is too old: Mainspring needs 3.35 or newer")
    _create_private(path)
    with mapped_errors(path):
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        with closed_on_error(connection):
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA cache_size = -16000")
            # Fewer, larger checkpoints: each costs two syncs of the main file.
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
            connection.execute("PRAGMA journal_size_limit = 67108864")
        return connection


@contextmanager
def closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """A failure to open a database leaves no connection behind."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _create_private(path: str) -> None:
    """A new file is its owner's alone: arguments and results are in it. SQLite gives its log and index the same mode.
    To share it, change the mode, which is kept."""
    if path != ":memory:":
        with suppress(OSError):  # It is there already, or cannot be made: SQLite says so.
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def prepare(connection: sqlite3.Connection, path: str, *, synced: bool, now: int) -> None:
    """Make sure that the database is ours and current; create or migrate it under the write lock."""
    with mapped_errors(path):
        check_ours(connection, path)
        set_wal(connection)
        connection.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
        status = schema_status(connection)
        if status.refusal:
            raise StoreMismatch(f"{path} {status.refusal}")
        if status.version < status.latest:
            migrate(connection, now)
        connection.execute("PRAGMA busy_timeout = 0")


def look_at(path: str) -> SchemaStatus:
    """The schema of a database that exists, without changing anything."""
    with mapped_errors(path):
        connection = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
        try:
            check_ours(connection, path)
            return schema_status(connection)
        finally:
            connection.close()


def check_ours(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database of another program, before anything is written to it."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application_id != APPLICATION_ID and (tables or application_id):
        raise StoreMismatch(f"{path} is a SQLite database, but not one of Mainspring's: name another file")


def set_wal(connection: sqlite3.Connection) -> None:
    """Write-ahead logging; the switch needs the file for itself for a moment, so several starting processes take
    turns."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def schema_status(connection: sqlite3.Connection) -> SchemaStatus:
    """Which schema the database has."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    oldest = 0
    if version:
        (oldest,) = connection.execute("SELECT max(oldest) FROM migrations").fetchone()
    known = load_migrations("sqlite")
    return SchemaStatus(version, known[0].version, known[-1].version, oldest)


def migrate(connection: sqlite3.Connection, now: int) -> None:
    """Apply what is missing, in one transaction under the write lock: several processes may start at once."""
    begin(connection)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(
            "CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, "
            "oldest INTEGER NOT NULL, applied_at INTEGER NOT NULL)"
        )
        for migration in load_migrations("sqlite"):
            if migration.version <= version:
                continue
            for statement in split_statements(migration.script):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO migrations VALUES (?, ?, ?, ?)", (migration.version, migration.name, migration.oldest, now)
            )
            connection.execute(f"PRAGMA user_version = {migration.version}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def split_statements(script: str) -> Iterator[str]:
    """`executescript` would commit first, and the whole migration must be one transaction."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def begin(connection: sqlite3.Connection) -> None:
    """Take the write lock. SQLite's own busy handler sleeps up to 100 ms at a time; short sleeps keep latency low, so
    a prepared connection leaves the waiting to this."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    pause = 0.0002
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(pause)
            pause = min(pause * 1.5, 0.005)


def begin_at_once(connection: sqlite3.Connection) -> bool:
    """Take the write lock if it is free; whether it was."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            return False
        raise
    return True


@contextmanager
def mapped_errors(path: str) -> Iterator[None]:
    """Driver exceptions become ours at this edge."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error


def explain(error: sqlite3.Error, path: str) -> StoreError:
    """The error to raise for an error of the driver."""
    text = str(error)
    if "not a database" in text or "malformed" in text:
        return StoreMismatch(
            f"{path} is not a database, or is damaged ({text}): name another file, or restore a backup"
        )
    if "full" in text or ("disk I/O" in text and _disk_is_full(path)):
        return StoreFull(f"the disk that holds {path} is full: nothing was written. Free some space and try again")
    if "readonly" in text or "read-only" in text:
        return StoreReadOnly(f"{path} cannot be written: check the permissions of the file and of its folder")
    if "unable to open" in text or os.path.isdir(path):
        return StoreRefused(f"{path} cannot be opened: {_remedy(Path(path))}")
    if "locked" in text or "busy" in text:
        text = f"locked by another program for {BUSY_TIMEOUT_S:g} s"
    elif text == "interrupted":
        text = "a look at history took too long, and was given up; ask for less of it"
    return StoreUnavailable(f"{path}: {text}")


def _disk_is_full(path: str) -> bool:
    """SQLite says so only where a write to the file itself finds no room; of its index of the log it says an I/O
    error."""
    try:
        room = os.statvfs(Path(path).resolve().parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < SMALLEST_ROOM


def _remedy(path: Path) -> str:
    folder = path.resolve().parent
    if os.path.isdir(path):
        return "it is a folder; name a file in it"
    if not os.path.isdir(folder):
        return f"the folder {folder} does not exist; create it first"
    if not os.access(folder, os.W_OK):
        return (
            f"its log is kept beside it, but the folder {folder} cannot be written; change that, or copy it elsewhere"
        )
    return "check its permissions"
