"""Every Python block of the documentation runs, in order, page by page."""

import asyncio
import inspect
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pages import EXAMPLE_PAGES, PAGES, PROJECT_PAGES, ROOT, anchors, links, name_of, sentences

from mainspring.cli.lazy import LazyGroup
from mainspring.cli.main import cli
from mainspring.core.instants import parse_duration
from mainspring.settings import Settings, describe_settings
from mainspring.version import VERSION

MOST_WORDS = 25
PROMISE = "*exactly one record per due instant; at-least-once execution; at most one accepted result.*"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": f"docs_{page.stem}"}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, page.name, "exec"), names)
    for name, test in names.items():
        if name.startswith("test_") and inspect.iscoroutinefunction(test):
            asyncio.run(test())


@pytest.mark.parametrize("page", [*PAGES, *PROJECT_PAGES, *EXAMPLE_PAGES], ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


PROSE = [*PAGES, *PROJECT_PAGES, ROOT / "bench" / "README.md", *sorted((ROOT / "examples").rglob("README.md"))]


@pytest.mark.parametrize("page", [page for page in PROSE if page.parent.name != "reference"], ids=name_of)
def test_a_sentence_has_at_most_25_words(page: Path) -> None:
    long = [each for each in sentences(page) if len(re.findall(r"\S*\w\S*", each)) > MOST_WORDS]
    assert not long, f"{len(long)} longer ones, such as: {' '.join(long[0].split())}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "decisions"], ids=name_of)
def test_a_page_begins_with_what_its_reader_can_do_afterwards(page: Path) -> None:
    assert name_of(page) == "README.md" or page.read_text().split("\n\n")[1].startswith("After this page ")


def test_the_readme_makes_the_promise_in_its_exact_words() -> None:
    assert PROMISE in (ROOT / "README.md").read_text()


def test_the_page_of_settings_is_the_table_of_settings() -> None:
    rows = [f"| `{row.name}` | `{row.default}` | `{row.variable}` | {row.meaning} |" for row in describe_settings()]
    page = (ROOT / "docs" / "settings.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


def test_the_page_of_pools_has_the_defaults_of_the_settings() -> None:
    page, settings, found = (ROOT / "docs" / "pools.md").read_text(), Settings(), 0
    for name, text in re.findall(r"`((?:pool|schedule|heartbeat|breaker)_\w+)` ([\w,]+(?: (?:s|min)\b)?)", page):
        default = getattr(settings, name)
        if isinstance(default, tuple):
            shown: object = () if text == "none" else tuple(parse_duration(each) for each in text.split(","))
        elif " " in text:
            shown = parse_duration(text.replace(" min", "m").replace(" s", "s"))
        else:
            shown = int(text)
        assert shown == default, name
        found += 1
    assert found >= 13


def test_the_page_on_an_index_has_no_link_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ModuleType("interface")  # What builds the package is not installed here.
    vars(builder).update(MetadataHookInterface=object, BuildHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", builder)
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", builder)
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    text = (ROOT / "README.md").read_text()
    bare = hook["index_page"](text, None)
    assert not re.findall(r"\]\((?!https?:)", bare)
    assert PROMISE in bare
    linked = hook["index_page"](text, "https://example.org/source/")
    assert "](https://example.org/source/docs/api.md)" in linked
    assert not re.findall(r"\]\((?!https?:)", linked)


def test_changelog_chart_and_images_have_the_version_of_the_program() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == VERSION
    assert f"\nappVersion: {VERSION}\n" in (ROOT / "deploy/helm/mainspring/Chart.yaml").read_text()
    overlay = ROOT / "deploy/kubernetes/overlays/production/kustomization.yaml"
    assert f"newTag: {VERSION}\n" in overlay.read_text()


def test_every_command_is_on_the_page_of_commands() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()

    def names(group: LazyGroup, before: str = "") -> list[str]:
        return [
            name
            for each, entry in group.entries.items()
            for name in (names(entry, f"{each} ") if isinstance(entry, LazyGroup) else [before + each])
        ]

    missing = [name for name in names(cli) if not re.search(rf"`(?:mainspring )?{name}[ `]", page)]
    assert missing == []
