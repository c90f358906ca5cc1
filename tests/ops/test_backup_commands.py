"""`mainspring backup` as typed, as a job of Mainspring itself, and what its doctor says."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.cli.main import run
from mainspring.core.instants import DAY, HOUR, MINUTE
from mainspring.ops.backup.archive import Writer
from mainspring.ops.backup.manifest import Manifest, surplus
from mainspring.ops.backup.recovery import judge_archiving, judge_schedule
from store_places import in_database

GOOD = {
    "where": "postgresql://host/db",
    "wal_level": "replica",
    "archive_mode": "on",
    "archive_command": "copy %p",
    "archive_library": "",
    "timeout_s": 60,
    "failing": False,
    "failed_segment": "",
}


def ask(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["backup", *args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_commands_from_create_to_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, folder = f"sqlite:///{tmp_path / 'a.db'}", str(tmp_path / "backups")
    assert run(["db", "migrate", "--store", store]) == 0
    assert run(["job", "add", "tick", "--cron", "* * * * *", "--command", "true", "--store", store]) == 0
    made = ask(capsys, "create", "--store", store, "--folder", folder)
    assert made["rows"]["jobs"] == 1
    assert [each["name"] for each in ask(capsys, "list", "--folder", folder)] == [made["name"]]
    assert ask(capsys, "verify", "--folder", folder) == [{"name": made["name"], "good": True, "problem": ""}]
    assert ask(capsys, "prune", "--folder", folder) == []
    target = f"sqlite:///{tmp_path / 'b.db'}"
    assert ask(capsys, "restore", "--store", target, "--folder", folder)["name"] == made["name"]
    assert run(["backup", "restore", "--store", target, "--folder", folder]) == 1
    assert "needs an empty place" in capsys.readouterr().err
    assert run(["job", "show", "tick", "--store", target]) == 0
    (damaged,) = (tmp_path / "backups" / made["name"]).glob("*.gz")
    damaged.write_bytes(b"")
    (found,) = ask(capsys, "verify", "--folder", folder, code=1)
    assert "0 bytes" in found["problem"]


@pytest.mark.parametrize(
    ("number", "code", "words"), [(errno.ENOSPC, 1, "No space left"), (errno.EACCES, 4, "Permission denied")]
)
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    number: int, code: int, words: str,
) -> None:  # fmt: skip
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    store, folder = f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "backups"
    assert run(["db", "migrate", "--store", store]) == 0
    monkeypatch.setattr(Writer, "write", refuse)
    assert run(["backup", "create", "--store", store, "--folder", str(folder)]) == code
    said = capsys.readouterr().err
    assert f"Error: {folder}: {words}" in said
    assert "name another place" in said
    assert list(folder.iterdir()) == []


def test_an_empty_folder_and_a_damaged_newest_backup_are_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "backups"
    assert run(["db", "migrate", "--store", store]) == 0
    folder.mkdir()
    assert run(["backup", "list", "--folder", str(folder)]) == 0
    assert "There is no backup" in capsys.readouterr().err
    older, newer = (ask(capsys, "create", "--store", store, "--folder", str(folder))["name"] for _ in range(2))
    (folder / newer / "manifest.json").write_text("{}")
    assert run(["backup", "restore", "--store", f"sqlite:///{tmp_path / 'b.db'}", "--folder", str(folder)]) == 0
    said = capsys.readouterr()
    assert f"Restored {older}" in said.out
    assert f"{newer} is newer, and cannot be restored" in said.err


def test_mainspring_backs_itself_up_as_a_job(tmp_path: Path) -> None:
    store, folder = f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "backups"
    command = f"{sys.executable} -m mainspring backup create --store {store} --folder {folder} --prune --hourly 1"
    assert run(["db", "migrate", "--store", store]) == 0
    assert run(["job", "add", "backup", "--every", "1s", "--command", command, "--store", store]) == 0
    with (tmp_path / "log").open("wb") as log:
        up = subprocess.Popen(
            [sys.executable, "-m", "mainspring", "up", "--store", store, "--port", "0"], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 60
        while not list(folder.glob("*Z/manifest.json")):
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            assert up.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.05)
    finally:
        up.terminate()
        up.wait(60)
    assert run(["backup", "verify", "--folder", str(folder)]) == 0


def test_the_doctor_of_a_file_asks_for_frequent_backups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, folder = f"sqlite:///{tmp_path / 'a.db'}", str(tmp_path / "backups")
    assert run(["db", "migrate", "--store", store]) == 0
    found, _ = ask(capsys, "doctor", "--store", store, "--folder", folder, code=1)
    assert "there is none" in found["detail"]
    ask(capsys, "create", "--store", store, "--folder", folder)
    found, schedule = ask(capsys, "doctor", "--store", store, "--folder", folder)
    assert found["state"] == "good"
    assert schedule["detail"] == "backups of 1 of the last 24 hours and of 1 of the last 7 days"


@given(st.integers(10 * DAY, 20 * DAY), st.integers(0, 90 * MINUTE))
def test_hourly_backups_under_the_usual_retention_are_a_good_schedule(now: int, missed: int) -> None:
    taken = list(range(0, now - missed, HOUR))
    kept = sorted(set(taken) - set(surplus(taken, 24, 7)))
    found = [
        Manifest(name="", dialect="sqlite", store="", program="", taken_at=each, migrations=(1,), rows={}, parts=())
        for each in kept
    ]
    state = judge_schedule(found, now).state
    assert state == "good" if now // HOUR - kept[-1] // HOUR <= 1 else state == "warning"


def test_the_doctor_of_a_server_reads_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ask(capsys, "doctor", "--store", in_database("postgres"), "--folder", str(tmp_path), code=1)
    assert found[0]["part"] == "archiving"
    assert found[0]["state"] == "failed"
    assert "archive_mode off" in found[0]["detail"]


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, "good"),
        ({"wal_level": "minimal"}, "failed"),
        ({"archive_command": ""}, "failed"),
        ({"archive_command": "", "archive_library": "basic_archive"}, "good"),
        ({"failing": True}, "failed"),
        ({"timeout_s": 0}, "failed"),
        ({"timeout_s": 301}, "failed"),
        ({"timeout_s": 300}, "good"),
    ],
)
def test_what_point_in_time_recovery_needs(change: dict[str, object], state: str) -> None:
    assert judge_archiving(GOOD | change)[-1].state == state
