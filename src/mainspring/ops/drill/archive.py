"""The reports of drills in a folder, and when the last was and the next is due."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mainspring.core.instants import Instant, format_instant
from mainspring.errors import InvalidInput
from mainspring.ops.drill.checklist import Report


def keep(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write a report as Markdown and JSON; the two files."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = format_instant(report.began_at).replace(":", "").replace("-", "").partition(".")[0].rstrip("Z") + "Z"
    markdown, encoded = folder / f"{stem}.md", folder / f"{stem}.json"
    markdown.write_text(report.as_markdown(), "utf-8")
    encoded.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    return markdown, encoded


def kept(folder: Path) -> list[Report]:
    """All reports of a folder, newest first."""
    return sorted((_read(path) for path in folder.glob("*.json")), key=lambda report: -report.began_at)


def _read(path: Path) -> Report:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Report)
    except msgspec.MsgspecError as error:
        raise InvalidInput("folder", str(path), f"is no report of a drill: {error}", "remove the file") from None


def due(reports: list[Report]) -> Instant | None:
    """When the next drill is due: a quarter after the last that passed; None if none has."""
    return next((report.next_at for report in reports if report.passed), None)
