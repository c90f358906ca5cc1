"""The types of the web UI are those of the API: `make lint` finds a page that uses a field which was renamed. Its
libraries are those of the lock file."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UI = ROOT / "src" / "mainspring" / "ui"
PACKAGES = ROOT / ".venv" / "ui-tools" / "node_modules"
COMPILER = PACKAGES / "typescript" / "bin" / "tsc"


def test_the_types_are_what_the_api_says() -> None:
    made = runpy.run_path(str(ROOT / "scripts" / "ui-types"))["make"]()
    assert (UI / "records.d.ts").read_text(encoding="utf-8") == made, "run scripts/ui-types"


def test_the_types_are_checked_by_make_lint() -> None:
    lint = subprocess.run(["make", "-n", "lint"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert f"{COMPILER.relative_to(ROOT)} -p {UI.relative_to(ROOT)}/jsconfig.json" in lint.stdout


@pytest.mark.browser
def test_a_renamed_field_fails_the_check(tmp_path: Path) -> None:
    assert COMPILER.exists(), "run `make setup`: it fetches TypeScript with npm"
    shutil.copytree(UI, tmp_path / "ui")
    records = tmp_path / "ui" / "records.d.ts"
    command = ["node", str(COMPILER), "-p", str(tmp_path / "ui" / "jsconfig.json")]
    assert subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0
    text = records.read_text(encoding="utf-8")
    assert "  oldest_due: string | null;" in text
    records.write_text(text.replace("  oldest_due: string", "  eldest_due: string"), encoding="utf-8")
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode != 0
    assert "oldest_due" in found.stdout


def packages_of(lock: Path) -> dict[str, str]:
    """The hash of each package of a lock file."""
    packages = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    return {name: each["integrity"] for name, each in packages.items() if name}


@pytest.mark.browser
def test_the_served_libraries_are_made_of_the_packages_whose_hashes_are_locked() -> None:
    locked = packages_of(UI / "package-lock.json")
    assert all(each.startswith("sha512-") for each in locked.values())
    fetched = packages_of(PACKAGES / ".package-lock.json")  # npm has checked these.
    assert fetched.items() <= locked.items()
    join = runpy.run_path(str(ROOT / "scripts" / "ui-libraries"))["join"]
    assert (UI / "libraries" / "view.js").read_text(encoding="utf-8") == join(PACKAGES), "run scripts/ui-libraries"
