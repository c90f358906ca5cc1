"""Backups of a SQLite file: a copy of one snapshot by SQLite's online backup, while other processes write."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.core.runs.outcome import Next
from mainspring.core.states import CANCELLED
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.ops.backup.archive import Progress, Writer, check_file, chunks, sync_folder, unpacked
from mainspring.ops.backup.manifest import Manifest, Part, Snapshot
from mainspring.ops.backup.settling import EPOCH_STEP, Settled, after_jobs_in, settle
from mainspring.store import Store
from mainspring.stores.sqlite.ends.endings import end_unstarted
from mainspring.stores.sqlite.file.connection import BUSY_TIMEOUT_S, check_ours, explain, mapped_errors
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.store import SqliteStore

FILE = "mainspring.db.gz"
PAGES = 2_000
"""Pages that are copied between two reports of progress."""
_BESIDE = ("", "-wal", "-shm", "-journal", "-unsynced")
"""The endings of the files of a database."""


def dump(path: Path, folder: Path, clock: Clock, progress: Progress) -> Snapshot:
    """Copy a database into the folder of a backup."""
    plain, taken_at = folder / "copy.db", clock.now()
    copy(path, plain, progress)
    with closing(sqlite3.connect(plain)) as connection:
        rows = count_rows(connection)
        migrations = tuple(row[0] for row in connection.execute("SELECT version FROM migrations ORDER BY version"))
    done, size = 0, plain.stat().st_size
    with plain.open("rb") as file, Writer(folder / FILE) as writer:
        for data in chunks(file):
            writer.write(data)
            done += len(data)
            progress("Compressing", done, size)
        packed, digest = writer.close()
    plain.unlink()
    part = Part(FILE, packed, digest, writer.digest.hexdigest())
    return Snapshot(taken_at=taken_at, migrations=migrations, rows=rows, parts=(part,))


def check_exists(path: Path) -> None:
    """NotFound if there is no database."""
    if not path.exists():
        raise NotFound(f"there is no database {path}: name it with --store URL or MAINSPRING_STORE")


def copy(path: Path, target: Path, progress: Progress) -> None:
    """Copy one snapshot of a database to a new file. The open read transaction pins the snapshot: without it SQLite
    would begin anew at every commit of another process, and never end on a busy file."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with mapped_errors(str(path)):
        uri = f"file:{quote(str(path))}?mode=ro"
        with (
            closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as source,
            closing(sqlite3.connect(target, isolation_level=None)) as copied,
        ):
            check_ours(source, str(path))
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM migrations").fetchone()
            _copy_pages(source, copied, target, progress)
            source.execute("ROLLBACK")
            copied.execute("PRAGMA journal_mode = DELETE")


def _copy_pages(source: sqlite3.Connection, copied: sqlite3.Connection, target: Path, progress: Progress) -> None:
    try:
        source.backup(copied, pages=PAGES, progress=lambda _, left, total: progress("Copying", total - left, total))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:  # The source is only read: the copy finds no room.
            raise explain(error, str(target)) from error
        raise


def count_rows(connection: sqlite3.Connection) -> dict[str, int]:
    """The number of rows by table."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    names = sorted(name for (name,) in tables)
    return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}


def unpack(folder: Path, manifest: Manifest, target: Path, progress: Progress) -> None:
    """Write the database of a backup to a new file, and prove that it is the one that was backed up: its digests, its
    structure, its rows. InvalidInput otherwise."""
    (part,) = manifest.parts
    check_file(folder / part.file, part.bytes, part.sha256)
    digest, done = sha256(), 0
    with open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        for data in unpacked(folder / part.file):
            digest.update(data)
            file.write(data)
            done += len(data)
            progress("Unpacking", done, 0)
        file.flush()
        os.fsync(file.fileno())
    if digest.hexdigest() != part.content:
        raise InvalidInput("backup", str(folder), "does not unpack to what was backed up", "choose another backup")
    with closing(sqlite3.connect(target)) as connection:
        (sound,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        rows = count_rows(connection)
    if sound != "ok" or rows != manifest.rows:
        problem = f"holds a damaged database ({sound})" if sound != "ok" else "has other numbers of rows"
        raise InvalidInput("backup", str(folder), problem, "choose another backup")


def verify(folder: Path, manifest: Manifest, progress: Progress) -> None:
    """Prove a backup without a restore. InvalidInput if it is damaged."""
    scratch = folder / "verify.db"
    remove(scratch)
    try:
        unpack(folder, manifest, scratch, progress)
    finally:
        remove(scratch)


async def restore(
    folder: Path, manifest: Manifest, target: Path, clock: Clock, progress: Progress, *, moved: bool
) -> Settled:
    """Restore to a file that does not exist. It gets its name when it is complete: a restore that is cut off leaves
    nothing that a scheduler could start on."""
    check_empty(target)
    unfinished = target.with_name(target.name + ".restoring")
    remove(unfinished)
    try:
        unpack(folder, manifest, unfinished, progress)
        store = SqliteStore(str(unfinished), clock)
        try:
            settled = await settle(_File(store), manifest, progress, moved=moved)
        finally:
            await store.close()
        _name(unfinished, target)
    finally:
        remove(unfinished)
    return settled


def check_empty(target: Path) -> None:
    """Conflict if there is anything where a database is to be restored."""
    for ending in _BESIDE:
        found = Path(f"{target}{ending}")
        if found.exists():
            raise Conflict(f"{found} exists: a restore needs an empty place. Move it away, or name another --store")


def _name(unfinished: Path, target: Path) -> None:
    with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(unfinished, target)  # Unlike a rename it never takes the place of another file.
    except FileExistsError as error:
        raise Conflict(f"{target} was created during the restore: stop all processes, and restore again") from error
    sync_folder(target.parent)


def remove(database: Path) -> None:
    """Remove a database that no process uses, if it exists."""
    for ending in _BESIDE:
        with suppress(FileNotFoundError):
            os.unlink(f"{database}{ending}")
    shutil.rmtree(f"{database}.wake", ignore_errors=True)


class _File:
    """See `settling.Ground`."""

    def __init__(self, store: SqliteStore) -> None:
        self.store: Store = store
        self._db = store._db

    async def fence(self, fact: str) -> None:
        await self._db.write(lambda tx: _fence(tx, fact))

    async def due_runs(self, until: Instant) -> list[str]:
        query = "SELECT id FROM runs WHERE state <> 'running' AND due_at <= ? ORDER BY seq DESC"
        return await self._db.read(lambda tx: [row[0] for row in tx.execute(query, (until,))])

    async def cancel(self, run_ids: Sequence[str], reason: str) -> None:
        verdict = Next(CANCELLED, reason)
        await self._db.write(lambda tx: end_unstarted(tx, [(run_id, verdict) for run_id in run_ids]))

    async def abandon_claims(self, reason: str) -> int:
        query = "UPDATE runs SET claimed_until = 0, cancel_requested_at = ?, cancel_reason = ? WHERE state = 'running'"
        return await self._db.write(lambda tx: tx.execute(query, (tx.now, reason)).rowcount)

    async def skip_after_jobs(self, reason: str) -> int:
        return await self._db.write(lambda tx: _skip_after_jobs(tx, reason))


def _fence(tx: Transaction, fact: str) -> None:
    step = (EPOCH_STEP,)
    for table, column in (("terms", "number"), ("leases", "token"), ("runs", "token")):
        tx.execute(f"UPDATE {table} SET {column} = {column} + ?", step)
    tx.execute("UPDATE leases SET expires_at = 0")
    tx.execute("UPDATE workers SET state = 'dead' WHERE state IN ('active', 'draining')")
    # New events follow the newest row, so it moves with the counter, and with those that are not public yet.
    tx.execute(
        "UPDATE outbox SET position = position + ? WHERE position >= min((SELECT max(position) FROM outbox), "
        "(SELECT value + 1 FROM counters WHERE name = 'event_position'))",
        step,
    )
    tx.execute("UPDATE counters SET value = value + ? WHERE name = 'event_position'", step)
    tx.execute("INSERT OR REPLACE INTO facts VALUES ('restored', ?)", (fact,))


def _skip_after_jobs(tx: Transaction, reason: str) -> int:
    rows = tx.execute('SELECT id, "trigger", policy, next_fire_at FROM jobs WHERE next_fire_at IS NOT NULL').fetchall()
    due = after_jobs_in(rows)
    tx.executemany(
        "INSERT OR IGNORE INTO firings (job_id, fire_at, region, kind, outcome, reason, created_at, finished_at) "
        "VALUES (?, ?, ?, 'after', 'skipped', ?, ?, ?)",
        [(*each, reason, tx.now, tx.now) for each in due],
    )
    tx.executemany("UPDATE jobs SET next_fire_at = NULL WHERE id = ?", [(each[0],) for each in due])
    tx.execute("UPDATE upstreams SET consumed_at = max(consumed_at, latest_at)")
    return len(due)
