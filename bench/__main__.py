"""`python -m bench [--quick] [--only NAME ...] [--folder PATH]`: measure, print the table, keep the figures."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from bench.figures import Row
from bench.idling import measure_idle
from bench.machine import facts
from bench.measures import (
    QUICK,
    Size,
    measure_bulk,
    measure_drain,
    measure_flow,
    measure_latency,
    measure_lateness,
    measure_submit,
)
from bench.peers.installing import install
from bench.running import MAINSPRING, RESULTS, Failed
from bench.starting import measure_imports, measure_up
from bench.table import print_table

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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast Mainspring is, beside its peers.")
    parser.add_argument("--quick", action="store_true", help="a quick look, in a minute and a half; too small to quote")
    parser.add_argument("--only", nargs="+", choices=MEASURES, metavar="NAME", help=f"of {', '.join(MEASURES)}")
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="where to write databases: on the disk that counts"
    )
    return parser.parse_args()


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


def main() -> int:
    """Everything that was asked for; 1 if one of our own figures is void, since then nothing is known."""
    arguments = _arguments()
    # Ended from outside, it still cleans up after itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    size = QUICK if arguments.quick else Size()
    install()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    known = facts(arguments.folder)
    rows = [row for name in arguments.only or MEASURES for row in _measure(name, arguments.folder, size)]
    print_table(rows, known)
    RESULTS.mkdir(parents=True, exist_ok=True)
    kept = {"facts": known, "size": asdict(size), "rows": [asdict(row) for row in rows]}
    (RESULTS / "latest.json").write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    return int(any("void" in row.cells.get(MAINSPRING.label, "") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
