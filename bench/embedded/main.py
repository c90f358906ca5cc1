"""Mainspring on SQLite beside the embedded peers: measure, print the table, keep the figures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.embedded.idling import measure_idle
from bench.embedded.measures import (
    QUICK,
    Size,
    measure_bulk,
    measure_drain,
    measure_flow,
    measure_latency,
    measure_lateness,
    measure_submit,
)
from bench.embedded.starting import measure_imports, measure_up
from bench.harness.figures import Row
from bench.harness.machine import facts
from bench.harness.running import MAINSPRING, Failed, keep_results
from bench.harness.table import print_table
from bench.peers.installing import install

Measure = Callable[[Path, Size], list[Row]]

MEASURES: Mapping[str, Measure] = {
    "submit": measure_submit,
    "bulk": measure_bulk,
    "drain": measure_drain,
    "flow": measure_flow,
    "latency": measure_latency,
    "lateness": measure_lateness,
    "idle": lambda folder, size: measure_idle(folder, size.idle_jobs, size.idle_s),
    "import": lambda _, size: measure_imports(size.starts),
    "up": lambda folder, size: measure_up(size.ups, folder),
}


def _measure(name: str, folder: Path, size: Size) -> list[Row]:
    """A measure that fails as a whole is a line of the table, and does not take the others with it."""
    began = time.perf_counter()
    print(f"{name} ...", file=sys.stderr)
    try:
        rows = MEASURES[name](folder, size)
    except Failed as failure:
        rows = [Row(name, {MAINSPRING.label: f"void: {failure}"})]
    print(f"{name} took {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return rows


def measure(only: Sequence[str] | None, folder: Path, quick: bool) -> int:
    """Everything that was asked for; 1 if one of our own figures is void, since then nothing is known."""
    size = QUICK if quick else Size()
    install()
    folder.mkdir(parents=True, exist_ok=True)
    known = facts(folder)
    rows = [row for name in only or MEASURES for row in _measure(name, folder, size)]
    print_table(rows, known)
    keep_results("latest", {"facts": known, "size": asdict(size), "rows": [asdict(row) for row in rows]})
    return int(any("void" in row.cells.get(MAINSPRING.label, "") for row in rows))
