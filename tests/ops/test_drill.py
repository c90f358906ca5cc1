"""The disaster drill: played for real on this machine, and judged line by line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from mainspring.core.instants import DAY
from mainspring.ops.drill.archive import due, keep, kept
from mainspring.ops.drill.checklist import BETWEEN, Checklist, Line, LineFailed, Report
from mainspring.ops.drill.site import join_hosts
from mainspring.ops.drill.traffic import compare
from store_places import places

PARTS = (
    *("Before the drill", "Baseline", "Failure of the primary", "Fail-over"),
    *("Validation", "Data integrity", "Fail-back"),
)


def drill(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainspring", "drill", *words, "--folder", str(folder / "drills"), "--json"]
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


def test_a_site_on_this_machine_survives_the_loss_of_its_primary(tmp_path: Path) -> None:
    done = drill(tmp_path, "run", "--local", "--quiet", "2s", "--on-call", "a test")
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode(done.stdout, type=Report)
    assert tuple(dict.fromkeys(line.part for line in report.lines)) == PARTS
    assert [line.name for line in report.lines if line.state == "skipped"] == ["alerts are configured"]
    assert report.lost == 0  # The standby follows synchronously.
    assert report.recovery_s is not None
    assert 0 < report.recovery_s < 15 * 60
    (markdown,) = (tmp_path / "drills").glob("*.md")
    assert "PASS" in markdown.read_text().splitlines()[0]
    print(markdown.read_text())
    dates = msgspec.json.decode(drill(tmp_path, "list").stdout)
    assert [each["passed"] for each in dates["drills"]] == [True]
    assert dates["next"] is not None


def test_a_primary_is_not_failed_if_the_standby_does_not_follow(tmp_path: Path) -> None:
    with places("postgres", tmp_path) as make:
        url, done_to = make(), tmp_path / "failed"
        migrate = [sys.executable, "-m", "mainspring", "db", "migrate", "--store", url]
        subprocess.run(migrate, check=True, capture_output=True, timeout=60)
        done = drill(tmp_path, "run", "--primary", url, "--standby", url, "--fail-with", f"touch {done_to}")
    report = msgspec.json.decode(done.stdout, type=Report)
    assert done.returncode == 1
    assert next(line.detail for line in report.lines if line.state == "fail").startswith("it is not in recovery")
    assert not done_to.exists()
    assert {line.part for line in report.lines} == {"Before the drill"}
    assert drill(tmp_path, "list").returncode == 1  # None has passed: one is due.


def test_both_databases_have_to_be_named(tmp_path: Path) -> None:
    done = drill(tmp_path, "run", "--primary", "postgresql://me@one/db")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "--local" in done.stdout + done.stderr


def test_clients_find_the_primary_among_both() -> None:
    joined = join_hosts("postgresql://me@one:5432/db?sslmode=require", "postgresql://me@two:5433/db")
    assert joined == "postgresql://me@one:5432,two:5433/db?sslmode=require&target_session_attrs=primary"


def test_a_line_that_fails_does_not_end_the_drill() -> None:
    seen: list[Line] = []
    checklist = Checklist(seen.append)
    with checklist.line("part", "first"):
        raise LineFailed("not so")
    with checklist.line("part", "second") as line:
        line.detail = "so"
    assert [(each.state, each.detail) for each in seen] == [("fail", "not so"), ("pass", "so")]
    assert not report_of(seen).passed


def test_a_missing_run_and_one_that_changed_after_its_end_are_found() -> None:
    before = {"a": "succeeded", "b": "failed", "c": "pending", "d": "running"}
    assert compare(before, {"a": "succeeded", "b": "succeeded", "c": "running"}) == (1, 1)


def test_the_next_drill_is_due_a_quarter_after_the_last_that_passed(tmp_path: Path) -> None:
    keep(report_of([Line(part="p", name="n", state="pass", at_s=0.0)], began_at=10 * DAY), tmp_path)
    keep(report_of([Line(part="p", name="n", state="fail", at_s=0.0)], began_at=20 * DAY), tmp_path)
    assert due(kept(tmp_path)) == 10 * DAY + BETWEEN
    assert due([]) is None


def report_of(lines: list[Line], began_at: int = 0) -> Report:
    return Report(began_at=began_at, primary="p", standby="s", lines=lines)
