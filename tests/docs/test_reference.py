"""The reference pages are what the code says now, and leave nothing out."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest
from pages import DOCS, ROOT

import mainspring
from mainspring.api.application import ENDPOINTS

FOLDER = DOCS / "reference"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    """What `make reference` runs."""
    return runpy.run_path(str(ROOT / "scripts" / "docs" / "reference.py"))


def test_the_reference_is_as_new_as_the_code(script: dict[str, Any]) -> None:
    made = script["make_pages"]()
    assert {page.name for page in FOLDER.glob("*.md")} == set(made)
    stale = [name for name, text in made.items() if (FOLDER / name).read_text() != text]
    assert stale == [], "`make reference` makes these pages from the code: run it, and commit them"


def test_the_reference_has_every_operation_and_every_public_name() -> None:
    operations = (FOLDER / "operations.md").read_text()
    assert [each for each in ENDPOINTS if f"### {each.method} {each.path}\n" not in operations] == []
    names = (FOLDER / "names.md").read_text()
    assert [name for name in mainspring.__all__ if name != "__version__" and f"### {name}\n" not in names] == []


def test_every_kind_of_event_has_a_meaning(script: dict[str, Any]) -> None:
    written = set()
    for path in (ROOT / "src" / "mainspring").rglob("*.py"):
        if "simulation" not in path.parts and "conformance" not in path.parts:
            written |= set(re.findall(r"\bEvent\(\s*\"([a-z]+\.[a-z_]+)\"", path.read_text()))
    assert len(written) > 10
    assert written <= set(script["EVENTS"])
