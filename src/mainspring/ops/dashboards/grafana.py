"""Grafana's JSON of a board. `python -m mainspring.ops.dashboards.grafana FOLDER` writes all of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mainspring.ops.dashboards.description import BOARDS, Dashboard, Panel

COLUMNS, HEIGHT, STAT_HEIGHT, HEADING_HEIGHT = 24, 8, 4, 1
"""Grafana's grid, and how much of it a panel takes."""
_SOURCE = {"type": "prometheus", "uid": "${source}"}


def grafana(board: Dashboard) -> dict[str, Any]:
    """The dashboard that Grafana imports; its data source is a variable."""
    panels: list[dict[str, Any]] = []
    top = 0
    for heading, row in board.rows:
        panels.append(_heading(heading, len(panels) + 1, top))
        top = _place(row, panels, top + HEADING_HEIGHT)
    source = {"name": "source", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"mainspring-{board.name}",
        "title": board.title,
        "tags": ["mainspring"],
        "timezone": "utc",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def as_text(board: Dashboard) -> str:
    """The file of a board."""
    return json.dumps(grafana(board), indent=2) + "\n"


def _place(row: Sequence[Panel], panels: list[dict[str, Any]], top: int) -> int:
    """Put panels beside each other until a line is full; returns where the next row begins."""
    left, tallest = 0, 0
    for panel in row:
        width, height = (4, STAT_HEIGHT) if panel.kind == "stat" else (8, HEIGHT)
        if left + width > COLUMNS:
            top, left, tallest = top + tallest, 0, 0
        place = {"x": left, "y": top, "w": width, "h": height}
        panels.append(_panel(panel, len(panels) + 1, place))
        left, tallest = left + width, max(tallest, height)
    return top + tallest


def _heading(title: str, number: int, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": COLUMNS, "h": HEADING_HEIGHT}
    return {"id": number, "type": "row", "title": title, "gridPos": place, "collapsed": False, "panels": []}


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    # The lowest step has no value: it reaches down without end.
    steps = [{"value": from_ if index else None, "color": color} for index, (from_, color) in enumerate(panel.limits)]
    defaults: dict[str, Any] = {"unit": panel.unit}
    if steps:
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query.expr, "legendFormat": query.legend}
            for index, query in enumerate(panel.queries)
        ],
    }


if __name__ == "__main__":
    for each in BOARDS:
        (Path(sys.argv[1]) / f"{each.name}.json").write_text(as_text(each))
