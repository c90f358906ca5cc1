"""The manifest: what a backup holds, where it came from, and the digests that prove it. And which backups to keep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec

from mainspring.core.instants import Instant, to_datetime
from mainspring.errors import InvalidInput, NotFound

FORMAT = 1
FILE = "manifest.json"
UNFINISHED = ".partial"
"""The ending of a folder that a backup is still being written to, or that was cut off."""


class Part(msgspec.Struct, frozen=True):
    """One compressed file of a backup."""

    file: str
    bytes: int
    """The size of the compressed file."""
    sha256: str
    """The digest of the compressed file."""
    content: str
    """The digest of what it holds: of the database file, or of the rows of the table in any order."""
    table: str = ""
    columns: tuple[str, ...] = ()


class Partition(msgspec.Struct, frozen=True):
    """A partition of a table on PostgreSQL."""

    name: str
    table: str
    bounds: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a store wrote into the folder of a backup."""

    taken_at: Instant
    """The store's time just before its snapshot: what happened later is not in the backup."""
    migrations: tuple[int, ...]
    """The migrations that the schema had."""
    rows: dict[str, int]
    """The number of rows by table."""
    parts: tuple[Part, ...]
    sequences: dict[str, int] = {}
    partitions: tuple[Partition, ...] = ()


class Manifest(Snapshot, frozen=True, kw_only=True):
    """What a backup is."""

    name: str
    format: int = FORMAT
    dialect: Literal["sqlite", "postgres"]
    store: str
    """The URL of the store, without its password."""
    program: str
    digest: str = ""
    """The digest of the manifest itself, with this field empty."""

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(part.bytes for part in self.parts)


def backup_name(taken_at: Instant) -> str:
    """The name of a backup: names sort by time."""
    return f"{to_datetime(taken_at):%Y%m%dT%H%M%S.%fZ}"


def began_at(folder: str) -> str | None:
    """The name of the backup that a folder is, or was to become; None if the folder is another's."""
    name = folder.removesuffix(UNFINISHED)
    return name if re.fullmatch(r"\d{8}T\d{6}\.\d{6}Z", name) else None


def write_manifest(folder: Path, manifest: Manifest) -> Manifest:
    """Write the manifest, with its digest, into the folder of the backup."""
    signed = msgspec.structs.replace(manifest, digest=_digest(manifest))
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(signed), indent=2))
    return signed


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a backup. NotFound without one, InvalidInput if it was changed or is of a newer format."""
    try:
        data = (folder / FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(
            f"{folder} holds no backup: `mainspring backup list --folder` shows those of a folder"
        ) from error
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise InvalidInput("backup", str(folder), f"has a damaged manifest ({error})", "take another backup") from error
    if manifest.format > FORMAT:
        raise InvalidInput("backup", str(folder), f"has format {manifest.format}", "install a newer mainspring")
    if _digest(manifest) != manifest.digest:
        raise InvalidInput("backup", str(folder), "has a manifest that was changed", "take another backup")
    return manifest


def _digest(manifest: Manifest) -> str:
    return sha256(msgspec.json.encode(msgspec.structs.replace(manifest, digest=""), order="sorted")).hexdigest()


def surplus(taken_at: Sequence[Instant], hourly: int, daily: int) -> list[Instant]:
    """Which backups to remove: all but the newest one of each of the latest `hourly` hours and `daily` days that have
    any. Hours and days without a backup do not count, so that a stopped schedule removes nothing. The newest backup of
    all always stays."""
    newest_first = sorted(taken_at, reverse=True)
    kept = set(newest_first[:1])
    for pattern, count in (("%Y%m%d%H", hourly), ("%Y%m%d", daily)):
        newest_of: dict[str, Instant] = {}
        for each in newest_first:
            newest_of.setdefault(f"{to_datetime(each):{pattern}}", each)
        kept.update(list(newest_of.values())[:count])
    return [each for each in newest_first if each not in kept]
