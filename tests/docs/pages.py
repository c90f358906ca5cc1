"""The pages of the documentation, and what tests read from them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
EXAMPLE_PAGES = sorted((ROOT / "examples").rglob("README.md"))
PROJECT_PAGES = [ROOT / name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]


def name_of(page: Path) -> str:
    """The page as tests name it: its path in the repository."""
    return page.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    """The prose of a page: headings and links, without blocks and spans of code."""
    return re.sub(r"`[^`\n]*`", "`code`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def sentences(page: Path) -> list[str]:
    """The sentences of a page: of its paragraphs, lists and cells of tables."""
    text = re.sub(r"<!--.*?-->|^(?:```.*?^```|#.*?$| {4}.*?$)", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "Code", text))
    parts = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) |\n\s*```|\n\||\|", text)
    return [sentence for part in parts for sentence in re.split(r"(?<=[.!?])[)*\"]*\s+(?=[A-Z(*\"])", part)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MkDocs and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set(re.findall(r'<a id="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\s-]", "", bare).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", slug))
    return found


def links(page: Path) -> list[tuple[str, str]]:
    """The links of a page to files of the repository: (path, anchor), each perhaps empty."""
    return re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)#?([^)\s]*)\)", without_code(page.read_text()))
