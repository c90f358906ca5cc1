"""The site has every page once. Links are checked by test_docs; `make docs` builds the site, strictly."""

from __future__ import annotations

import re
import runpy
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

import pytest
import yaml
from pages import DOCS, PAGES, ROOT, name_of


def nav_pages(entries: list[object]) -> Iterator[str]:
    """The pages of a part of the navigation, in order."""
    for entry in entries:
        assert isinstance(entry, dict)
        for value in entry.values():
            yield from nav_pages(value) if isinstance(value, list) else [value]


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The files outside of docs/ that the site shows, and where. What builds the site is not installed here."""
    files = ModuleType("mkdocs.structure.files")
    vars(files)["File"] = object  # A stand-in for the module's only name in use.
    monkeypatch.setitem(sys.modules, "mkdocs.structure.files", files)
    found = runpy.run_path(str(ROOT / "scripts" / "docs" / "site.py"))["OUTSIDE"]
    assert isinstance(found, dict)
    return found


def test_every_page_is_in_the_navigation_once(outside: dict[str, str]) -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    listed = Counter(nav_pages(site["nav"]))
    unlisted = re.compile(r"decisions/0.*|project/examples/.*")
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | set(outside.values())
    assert set(listed) == {page for page in pages if not unlisted.fullmatch(page)}, "mkdocs.yml has the navigation"
    assert max(listed.values()) == 1


def test_links_to_files_outside_of_docs_lead_to_pages_of_the_site(outside: dict[str, str]) -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((\.\./[^)#\s]+)", page.read_text()):
            path = (page.parent / target).resolve()
            inside = path.is_relative_to(DOCS) or path.relative_to(ROOT).as_posix() in outside
            assert inside, f"{name_of(page)}: {target} is no page of the site"
