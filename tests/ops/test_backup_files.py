"""Backups as files: damage is found, nothing half-made is taken for whole, retention keeps what it says."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.core.instants import DAY, HOUR, to_datetime
from mainspring.errors import InvalidInput, MainspringError, NotFound, StoreFull, StoreMismatch
from mainspring.ops.backup import backups, sqlite
from mainspring.ops.backup.archive import no_progress
from mainspring.ops.backup.manifest import FILE, backup_name, read_manifest, surplus
from mainspring.settings import Settings


def fill(url: str, count: int = 20) -> None:
    """Make a store with runs that wait."""

    async def do() -> None:
        app = Mainspring(url, name="client")

        @app.task(name="work")
        def work(number: int) -> int:
            return number

        for number in range(count):
            await app.submit("work", {"number": number})
        await app.close()

    asyncio.run(do())


def make(url: str, folder: Path) -> Path:
    """A backup of a store; its folder."""
    return folder / backups.create(Settings(store=url), folder, SystemClock()).name


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink])
def test_every_damaged_file_is_found_and_not_restored(
    new_store: Callable[[], str], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    old, new = new_store(), new_store()
    fill(old)
    backup = make(old, tmp_path / "backups")
    backups.verify(backup)
    for part in read_manifest(backup).parts[-2:]:
        intact = (backup / part.file).read_bytes()
        damage(backup / part.file)
        with pytest.raises(InvalidInput, match=part.file):
            backups.verify(backup)
        with pytest.raises(InvalidInput, match=part.file):
            backups.restore(backup, Settings(store=new), SystemClock())
        (backup / part.file).write_bytes(intact)
    damage(backup / FILE)
    with pytest.raises(MainspringError, match=r"manifest|holds no backup"):
        backups.verify(backup)


def test_a_changed_manifest_is_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    fill(url)
    backup = make(url, tmp_path / "backups")
    text = (backup / FILE).read_text()
    changed = text.replace('"facts": ', '"facts": 1')
    assert changed != text
    (backup / FILE).write_text(changed)
    with pytest.raises(InvalidInput, match="was changed"):
        backups.verify(backup)


def test_a_restore_that_is_cut_off_leaves_nothing_to_start_on(
    new_store: Callable[[], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mainspring.ops.backup import postgres

    async def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    old, new = new_store(), new_store()
    fill(old)
    backup = make(old, tmp_path / "backups")
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "settle", die)
        patch.setattr(postgres, "settle", die)
        with pytest.raises(KeyboardInterrupt):
            backups.restore(backup, Settings(store=new), SystemClock())
    if new.startswith("sqlite"):
        assert list(tmp_path.glob(f"{Path(new.removeprefix('sqlite:///')).name}*")) == []
        backups.restore(backup, Settings(store=new), SystemClock())
    else:
        with pytest.raises(StoreMismatch, match="a restore was cut off"):
            fill(new)


def test_the_copy_is_one_snapshot_however_busy_the_file_is(tmp_path: Path) -> None:
    file, stop = tmp_path / "a.db", threading.Event()
    fill(f"sqlite:///{file}")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("INSERT INTO facts VALUES ('padding', ?)", ("x" * 30_000_000,))
        connection.execute("INSERT INTO facts VALUES ('one', '0'), ('other', '0')")

    def write() -> None:
        with closing(sqlite3.connect(file, timeout=10)) as connection:
            number = 0
            while not stop.is_set():
                number += 1
                with connection:
                    connection.execute("UPDATE facts SET value = ? WHERE name = 'one'", (number,))
                    connection.execute("UPDATE facts SET value = ? WHERE name = 'other'", (number,))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reports: list[int] = []
        sqlite.copy(file, tmp_path / "copy.db", lambda _, done, __: reports.append(done))
    finally:
        stop.set()
        writer.join()
    with closing(sqlite3.connect(tmp_path / "copy.db")) as connection:
        values = dict(connection.execute("SELECT name, value FROM facts WHERE name IN ('one', 'other')").fetchall())
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert values["one"] == values["other"]
    assert len(reports) > 3, "in several steps"
    assert reports == sorted(reports), "it never begins anew"


def test_an_unfinished_folder_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "20260101T000000.000000Z.partial").mkdir()
    (tmp_path / "notes").mkdir()
    found, broken = backups.list_backups(tmp_path)
    assert found == []
    assert [each.name for each in broken] == ["notes", "20260101T000000.000000Z.partial"]
    with pytest.raises(NotFound):
        backups.find(tmp_path, None)
    with pytest.raises(NotFound):
        backups.create(Settings(store=f"sqlite:///{tmp_path / 'none.db'}"), tmp_path / "b", SystemClock())
    assert not (tmp_path / "b").exists()


def test_a_copy_that_finds_no_room_names_its_own_disk(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "copies"
    fill(url)
    folder.mkdir()
    with closing(sqlite3.connect(tmp_path / "a.db")) as source, closing(sqlite3.connect(folder / "copy.db")) as copied:
        copied.execute("PRAGMA max_page_count = 3")
        with pytest.raises(StoreFull, match=r"copies/copy\.db"):
            sqlite._copy_pages(source, copied, folder / "copy.db", no_progress)


def test_verify_leaves_nothing_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    fill(url)
    backup = make(url, tmp_path / "backups")
    before = sorted(each.name for each in backup.iterdir())
    sqlite.verify(backup, read_manifest(backup), no_progress)
    assert sorted(each.name for each in backup.iterdir()) == before


@given(st.lists(st.integers(0, 20 * DAY), unique=True, max_size=60), st.integers(0, 30), st.integers(0, 9))
def test_retention_keeps_the_newest_of_each_hour_and_day(taken_at: list[int], hourly: int, daily: int) -> None:
    removed = set(surplus(taken_at, hourly, daily))
    kept = set(taken_at) - removed
    assert removed <= set(taken_at)
    if taken_at:
        assert max(taken_at) in kept
    days = sorted({to_datetime(each).date() for each in taken_at}, reverse=True)[:daily]
    assert set(days) <= {to_datetime(each).date() for each in kept}
    hours = sorted({each // HOUR for each in taken_at}, reverse=True)[:hourly]
    assert set(hours) <= {each // HOUR for each in kept}
    assert len(kept) <= max(hourly + daily, 1)


def test_prune_removes_what_retention_does_not_keep(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    fill(url, 1)
    fill(other_url := f"sqlite:///{tmp_path / 'other.db'}", 1)
    kept = make(other_url, tmp_path / "backups").name  # The older backups of one store are not those of another.
    names = [make(url, tmp_path / "backups").name for _ in range(3)]
    folder, now = tmp_path / "backups", SystemClock().now()
    for other in ("20200101T000000.000000Z.partial", f"{backup_name(now)}.partial", "2019.partial", "notes"):
        (folder / other).mkdir()  # Only the first was interrupted long ago; two are no backups.
    removed = [*names[1::-1], "20200101T000000.000000Z.partial"]
    assert backups.prune(folder, 0, 0, now, dry_run=True) == removed
    assert backups.prune(folder, 0, 0, now) == removed
    found, broken = backups.list_backups(folder)
    assert [each.name for each in found] == [names[2], kept]
    assert {each.name for each in broken} == {f"{backup_name(now)}.partial", "2019.partial", "notes"}
    assert [each.name for each in backups.newer_broken(folder / names[2])] == [f"{backup_name(now)}.partial"]


def test_backups_and_what_is_restored_from_them_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        fill(f"sqlite:///{tmp_path}/old.db", 1)
        backup = make(f"sqlite:///{tmp_path}/old.db", tmp_path / "backups")
        backups.restore(backup, Settings(store=f"sqlite:///{tmp_path}/new.db"), SystemClock())
    finally:
        os.umask(before)
    sqlite.copy(tmp_path / "old.db", tmp_path / "copy.db", no_progress)
    for path in (backup, tmp_path / "new.db", tmp_path / "copy.db"):
        assert path.stat().st_mode & 0o077 == 0, path.name
