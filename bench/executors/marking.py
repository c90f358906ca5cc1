"""How a task says that it ran, from whichever process, for next to nothing. Needs only the standard library: the peers
use it too."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

_INSTANT = struct.Struct("=d")


def mark(file: str | None) -> None:
    """Add the time to a file. Eight bytes arrive whole."""
    if file is not None:
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, _INSTANT.pack(time.monotonic()))
        os.close(handle)


def count_marks(file: Path) -> int:
    """How many there are."""
    return file.stat().st_size // _INSTANT.size if file.exists() else 0


def rate_of_marks(file: Path) -> float:
    """How many a second there were between the first and the last, which need not be in order."""
    instants = [instant for (instant,) in _INSTANT.iter_unpack(file.read_bytes())]
    return (len(instants) - 1) / (max(instants) - min(instants))
