"""What is left after a failed sync, and how a program opens such a file again.

The kernel reports a failed sync once, and then takes the pages it could not write for clean: reads show them, later
syncs succeed, and a power cut loses them with everything written after them. So the process that sees the failure stops
using the file and leaves a mark beside it. The next process that opens the file writes the log anew before it promises
anything.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sqlite3
from contextlib import suppress

from mainspring.errors import StoreFailed, StoreUnavailable
from mainspring.stores.sqlite.file.connection import begin

log = logging.getLogger("mainspring")

CHUNK = 1 << 20
BUSY_TIMEOUT_S = 5.0


def mark_of(path: str) -> str:
    """The file that says so. It need not survive a power cut: the pages that it warns of do not either."""
    return f"{path}-unsynced"


def is_marked(path: str) -> bool:
    """Whether a sync of this database failed, here or in another process, and no process has mended it yet."""
    return os.path.exists(mark_of(path))


def mark(path: str) -> None:
    """Warn every process that has the file open, or will open it. If even that fails, this process stops all the
    same; the kernel reports it once to each of the others."""
    with suppress(OSError):
        os.close(os.open(mark_of(path), os.O_CREAT | os.O_WRONLY, 0o600))


def failure_of(path: str, why: str) -> StoreFailed:
    """What the process that stops using the file says."""
    return StoreFailed(
        f"{path} could not be synced ({why}): what was written since may be lost, so this process does not use the "
        "file any more. Check the disk, then restart; the file is mended when it is opened"
    )


def mend(path: str) -> None:
    """Bring a marked database back to where a sync means what it says: everything that is readable is written anew
    and synced. StoreUnavailable while other processes have the file open; StoreFailed if the disk still fails."""
    if not is_marked(path):
        return
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        _mend_alone(connection, path)
    except sqlite3.Error as error:
        connection.close()
        if "locked" not in str(error):
            raise
        raise StoreUnavailable(
            f"{path} could not be synced, and other processes still have it open: it can be mended when they have ended"
        ) from error
    except OSError as error:
        abandon(connection)
        raise failure_of(path, str(error)) from error
    connection.close()
    with suppress(FileNotFoundError):
        os.unlink(mark_of(path))
    log.warning("%s was written anew after a failed sync: it can be used again", path)


def _mend_alone(connection: sqlite3.Connection, path: str) -> None:
    # In this mode SQLite shares no index of the log: it reads the log anew, and takes what the checksums prove whole.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    rewrite_log(path)
    connection.execute("ROLLBACK")
    # Only now: a power cut during a checkpoint is mended from the log, so that must be on the disk before.
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise sqlite3.OperationalError("database is locked")


def rewrite_log(path: str) -> None:
    """Write the log over itself, so that the kernel has all of it to write again, and sync it. The caller keeps others
    from writing. OSError if the disk still fails."""
    try:
        file = os.open(f"{path}-wal", os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        position = 0
        while chunk := os.pread(file, CHUNK, position):
            os.pwrite(file, chunk, position)
            position += len(chunk)
        os.fdatasync(file)
    finally:
        os.close(file)


def let_go(writer: sqlite3.Connection, reader: sqlite3.Connection, path: str) -> bool:
    """Close the connections of a process that has failed, so that the next one may mend the file. The last to close
    makes a checkpoint: only where the log could be written anew, for the same reason as above. Whether it could:
    otherwise any other connection has to be abandoned, too."""
    try:
        if not writer.in_transaction:
            begin(writer)  # Another process that stops using the file may write the log at this moment.
        rewrite_log(path)
        writer.execute("ROLLBACK")
    except (OSError, sqlite3.Error):
        abandon(reader)
        abandon(writer)
        return False
    reader.close()
    writer.close()
    return True


def abandon(connection: sqlite3.Connection) -> None:
    """Leave a connection to the end of the process, where the kernel closes it and nothing is written."""
    # Python 3.12 or newer has both.
    setconfig = getattr(connection, "setconfig", None)
    no_checkpoint = getattr(sqlite3, "SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE", None)
    if setconfig is not None:
        with suppress(sqlite3.Error):
            setconfig(no_checkpoint, True)
            connection.close()
            return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))  # Never collected, so never closed by Python.
