"""Whether another process has written is looked for: often while there is one, seldom while there is none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mainspring.stores.sqlite.file.watch import COMPANY_S, LONE_WATCH_S, WATCH_S, Watch


@pytest.fixture
def own(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shared.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE notes (text)")
        yield connection


def write(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO notes VALUES ('')")


def test_the_commits_of_others_are_seen_once_and_its_own_are_not(own: sqlite3.Connection, tmp_path: Path) -> None:
    eye = Watch(own)
    write(own)
    assert not eye.look()
    with closing(sqlite3.connect(tmp_path / "shared.db", isolation_level=None)) as other:
        write(other)
    assert [eye.look(), eye.look()] == [True, False]


def test_it_looks_more_often_for_a_while_after_another_has_written(
    own: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr("mainspring.stores.sqlite.file.watch.time.monotonic", lambda: now)
    eye = Watch(own)
    assert eye.pause_s == LONE_WATCH_S
    with closing(sqlite3.connect(tmp_path / "shared.db", isolation_level=None)) as other:
        write(other)
    eye.look()
    assert eye.pause_s == WATCH_S
    now += COMPANY_S
    eye.look()
    assert eye.pause_s == LONE_WATCH_S


def test_a_busy_process_looks_less_often(own: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("mainspring.stores.sqlite.file.watch.time.monotonic", lambda: now)
    eye = Watch(own)
    now += 1.5 * LONE_WATCH_S
    assert (eye.is_due(busy=False), eye.is_due(busy=True)) == (True, False)
    now += 1
    assert eye.is_due(busy=True)
