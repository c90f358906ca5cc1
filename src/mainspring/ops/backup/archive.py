"""Compressed files with digests, written and read in chunks: a backup needs no memory of its size."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Self, TypeAlias

from mainspring.errors import InvalidInput

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a label, how much is done and how much there is to do."""

CHUNK_BYTES = 1 << 20
LEVEL = 3
"""Rows of JSON and ids shrink to a fifth; higher levels take several times as long for a tenth less."""


class Writer:
    """Writes one compressed file, durably. The context manager closes the file where `close` is not reached."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = path.open("xb")
        self._gzip = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, compresslevel=LEVEL, mtime=0)
        self.digest = sha256()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in (self._gzip, self._raw):
            with suppress(OSError):  # The error that ended the body counts.
                file.close()

    def write(self, data: bytes) -> None:
        """Append data."""
        self.digest.update(data)
        self._gzip.write(data)

    def close(self) -> tuple[int, str]:
        """The size and the digest of the compressed file, once it is on the disk."""
        self._gzip.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
        return self.path.stat().st_size, digest_of(self.path)


def chunks(file: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """What is left of a file."""
    while data := file.read(CHUNK_BYTES):
        yield data


def digest_of(path: Path) -> str:
    """The digest of a file as it is."""
    digest = sha256()
    with path.open("rb") as file:
        for data in chunks(file):
            digest.update(data)
    return digest.hexdigest()


def check_file(path: Path, size: int, expected: str) -> None:
    """InvalidInput if a file of a backup is missing, cut short or changed."""
    remedy, name = "choose another backup", f"{path.parent.name}/{path.name}"
    if not path.exists():
        raise InvalidInput("backup", name, "is missing", remedy)
    found = path.stat().st_size
    if found != size:
        raise InvalidInput("backup", name, f"has {found} bytes, not {size}", remedy)
    if digest_of(path) != expected:
        raise InvalidInput("backup", name, "was changed since the backup", remedy)


def unpacked(path: Path) -> Iterator[bytes]:
    """The content of a compressed file."""
    with gzip.open(path, "rb") as file:
        yield from chunks(file)


@contextmanager
def place_named(place: Path) -> Iterator[None]:
    """Name the place in errors of files that name none, such as a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(place)
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def no_progress(*_: Any) -> None:
    """For callers that show none."""
