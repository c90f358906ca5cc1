"""The verbs on backups: create, list, verify, restore, prune. A backup is a folder with a manifest in a folder of
backups; it gets its name when it is complete and on the disk, so that a tool that copies the folder sees whole ones."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec

from mainspring.clock import Clock
from mainspring.core.instants import DAY, Duration, Instant
from mainspring.errors import InvalidInput, MainspringError, NotFound
from mainspring.ops.backup import sqlite
from mainspring.ops.backup.archive import Progress, no_progress, place_named, sync_folder
from mainspring.ops.backup.manifest import (
    UNFINISHED,
    Manifest,
    backup_name,
    began_at,
    read_manifest,
    surplus,
    write_manifest,
)
from mainspring.ops.backup.settling import Settled
from mainspring.process.urls import show_url
from mainspring.settings import Settings
from mainspring.version import VERSION
from mainspring.wiring import sqlite_file

ABANDONED: Duration = DAY
"""A backup that has been written for longer than this was interrupted."""


class Broken(msgspec.Struct, frozen=True):
    """A folder among the backups that is not a backup: damaged, cut off, or something else."""

    name: str
    problem: str


def create(settings: Settings, folder: Path, clock: Clock, progress: Progress = no_progress) -> Manifest:
    """Back the store up, while it is used."""
    file, name = sqlite_file(settings), backup_name(clock.now())
    if file is not None:
        sqlite.check_exists(file)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = folder / f"{name}{UNFINISHED}"
    partial.mkdir(mode=0o700)
    try:
        with place_named(folder):
            if file is not None:
                snapshot = sqlite.dump(file, partial, clock, progress)
            else:
                from mainspring.ops.backup import postgres

                snapshot = asyncio.run(postgres.dump(settings.store, partial, progress))
            manifest = Manifest(
                name=name,
                dialect="postgres" if file is None else "sqlite",
                store=show_url(settings.store),
                program=VERSION,
                **msgspec.structs.asdict(snapshot),
            )
            manifest = write_manifest(partial, manifest)
            sync_folder(partial)
            partial.rename(folder / name)
            sync_folder(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return manifest


def list_backups(folder: Path) -> tuple[list[Manifest], list[Broken]]:
    """The backups of a folder, newest first, and what is broken among them."""
    if not folder.is_dir():
        raise NotFound(f"there is no folder {folder}: name the one with the backups with --folder")
    found, broken = [], []
    for each in sorted(folder.iterdir(), reverse=True):
        if not each.is_dir():
            continue
        if each.name.endswith(UNFINISHED):
            broken.append(Broken(each.name, "is being written, or was cut off"))
            continue
        try:
            found.append(read_manifest(each))
        except MainspringError as error:
            broken.append(Broken(each.name, str(error)))
    return found, broken


def find(folder: Path, name: str | None) -> Path:
    """The folder of a backup: by its name or the beginning of it, or the newest."""
    names = [each.name for each in list_backups(folder)[0]]
    matching = names[:1] if name is None else [each for each in names if each.startswith(name)]
    if name is not None and (folder / name).is_dir():
        matching = [name]
    if not matching and not names:
        raise NotFound(
            f"there is no backup in {folder}: name the folder with --folder, or run `mainspring backup create`"
        )
    if not matching:
        raise NotFound(f"there is no backup {name} in {folder}: `mainspring backup list` shows those that exist")
    if len(matching) > 1:
        raise InvalidInput("backup", name, f"may be {matching[0]} or {matching[1]}", "write more of its name")
    return folder / matching[0]


def newer_broken(backup: Path) -> list[Broken]:
    """What was to become a newer backup than this one, and is damaged or was cut off."""
    broken = list_backups(backup.parent)[1]
    return [each for each in broken if (began_at(each.name) or "") > backup.name]


def verify(backup: Path, progress: Progress = no_progress) -> Manifest:
    """Prove that a backup can be restored: digests, structure, numbers of rows. InvalidInput if it is damaged."""
    manifest = read_manifest(backup)
    if manifest.dialect == "sqlite":
        with place_named(backup):
            sqlite.verify(backup, manifest, progress)
    else:
        from mainspring.ops.backup import postgres

        postgres.verify(backup, manifest, progress)
    return manifest


def restore(
    backup: Path, settings: Settings, clock: Clock, progress: Progress = no_progress, *, moved: bool = False
) -> tuple[Manifest, Settled]:
    """Restore a backup to the store of the settings, which must be empty, and make that safe to start."""
    manifest = read_manifest(backup)
    file = sqlite_file(settings)
    if (file is None) != (manifest.dialect == "postgres"):
        remedy = "name a file: sqlite:///…" if manifest.dialect == "sqlite" else "name a server: postgresql://…"
        raise InvalidInput("store", show_url(settings.store), f"cannot hold a backup of {manifest.dialect}", remedy)
    if file is not None:
        with place_named(file):
            return manifest, asyncio.run(sqlite.restore(backup, manifest, file, clock, progress, moved=moved))
    from mainspring.ops.backup import postgres

    return manifest, asyncio.run(postgres.restore(backup, manifest, settings.store, clock, progress, moved=moved))


def prune(folder: Path, hourly: int, daily: int, now: Instant, *, dry_run: bool = False) -> list[str]:
    """Remove the backups that the retention does not keep, of each store by itself, and what interrupted ones left a
    day ago; their names. Damaged ones and others' folders stay."""
    found, broken = list_backups(folder)
    removed = list[str]()
    for store in dict.fromkeys(each.store for each in found):
        backups = {each.taken_at: each.name for each in found if each.store == store}
        removed += [backups[each] for each in surplus(list(backups), hourly, daily)]
    long_ago = backup_name(now - ABANDONED)
    left = [each.name for each in broken if each.name.endswith(UNFINISHED) and (began_at(each.name) or "~") < long_ago]
    for each in removed if not dry_run else ():
        # Renamed first: what a cut-off removal leaves is no backup.
        shutil.rmtree((folder / each).rename(folder / f"{each}{UNFINISHED}"))
    for each in left if not dry_run else ():
        shutil.rmtree(folder / each)
    return [*removed, *left]
