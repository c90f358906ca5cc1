"""The files of the web UI as they are served: read once, named by one digest, compressed, found by exact name."""

from __future__ import annotations

import gzip
import posixpath
import re
from functools import cached_property
from hashlib import blake2b
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from mainspring.version import VERSION

FOLDER: Final = Path(__file__).resolve().parent.parent / "ui"
TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The only kinds of files that are served."""
SHELL: Final = "index.html"
MAIN: Final = "main.js"
OVERVIEW: Final = "pages/overview.js"
_IMPORT: Final = re.compile(rb'^import [^"]*"([^"]+)";', re.MULTILINE)
MISSING: Final = "The web UI is not installed: run `scripts/ui-libraries`, then start the server again.\n"


class Asset(NamedTuple):
    """One file."""

    content: bytes
    compressed: bytes
    media_type: str
    etag: str


class Assets:
    """All files of the UI. A request names a key of a dictionary and never a path on the disk."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    @cached_property
    def files(self) -> dict[str, Asset]:
        """The files by their path relative to the folder."""
        paths = sorted(path for path in self._folder.rglob("*") if path.suffix in TYPES and path.is_file())
        return {
            path.relative_to(self._folder).as_posix(): packed(path.read_bytes(), TYPES[path.suffix]) for path in paths
        }

    @cached_property
    def digest(self) -> str:
        """Changes with any file, so that all of them can be cached for good under it."""
        hashed = blake2b(digest_size=10)
        for name, asset in self.files.items():
            hashed.update(f"{name}\0{asset.etag}\0".encode())
        return hashed.hexdigest()

    @cached_property
    def is_complete(self) -> bool:
        """Whether the libraries have been fetched."""
        return any(name.startswith("libraries/") for name in self.files) and (self._folder / SHELL).is_file()

    def imported(self, *names: str) -> list[str]:
        """These modules and those that they import, in the order in which they are found."""
        found = dict.fromkeys(names)
        waiting = list(names)
        while waiting:
            name = waiting.pop(0)
            content = self.files[name].content if name in self.files else b""
            for other in _IMPORT.findall(content):
                path = posixpath.normpath(posixpath.join(posixpath.dirname(name), other.decode()))
                if path not in found:
                    found[path] = None
                    waiting.append(path)
        return list(found)

    def shell(self, base_path: str = "", page: str | None = None) -> bytes:
        """The page that loads all others. It names every module that `main.js`, and the page that comes first, import:
        the browser would find them one import after another."""
        text = (self._folder / SHELL).read_text(encoding="utf-8")
        values = {"base": base_path, "version": VERSION, "assets": f"{base_path}/ui/assets/{self.digest}"}
        modules = [name for name in self.imported(MAIN, *filter(None, [page])) if name != MAIN]
        links = [f'<link rel="modulepreload" href="{{{{assets}}}}/{name}" />' for name in modules]
        text = text.replace("{{preloads}}", "\n    ".join(links))
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", escape(value, quote=True))
        return text.encode()


def packed(content: bytes, media_type: str) -> Asset:
    """Content with its compressed form, so that no request compresses it."""
    etag = f'"{blake2b(content, digest_size=10).hexdigest()}"'
    return Asset(content, gzip.compress(content, mtime=0), media_type, etag)
