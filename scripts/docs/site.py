"""A hook of MkDocs: pages outside of docs/ join the site, and links between files become links between pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent.parent


def _example_page(path: Path) -> str:
    """The page of a file of examples/: its folders are part of the name, since each example has an app.py."""
    return f"project/examples/{'-'.join(path.relative_to(ROOT / 'examples').with_suffix('').parts)}.md"


OUTSIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "bench/README.md": "project/benchmarks.md",
    **{
        path.relative_to(ROOT).as_posix(): _example_page(path)
        for pattern in ("*.py", "README.md")
        for path in sorted((ROOT / "examples").rglob(pattern))
    },
}
"""Files of the repository that are pages of the site, and where."""
LINK = re.compile(r"(?P<before>\]\(|(?:src|srcset|href)=\")(?!https?:|#|mailto:)(?P<target>[^)\"#]+)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in docs/. A program of examples/ becomes a page that shows it."""
    for source, page in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".py"):
            text = f"# `{source}`\n\n```python\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point each relative link at the page that shows its file."""
    here = page.file.src_uri
    source = next((path for path, target in OUTSIDE.items() if target == here), f"docs/{here}")

    def point(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match["target"]))
        target = OUTSIDE.get(path, path.removeprefix("docs/"))
        return match["before"] + posixpath.relpath(target, posixpath.dirname(here) or ".")

    return LINK.sub(point, markdown)
