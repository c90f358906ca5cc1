"""Disaster drills on this machine, one after another: `python -m bench.operations.drills [--rounds 10]`

Each round is `mainspring drill run --local`: it builds two PostgreSQL servers with replication, kills the primary with
-9 under traffic, fails over and back, and takes less than half a minute. Prints recovery time and recovery point.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile

import msgspec

from mainspring.ops.drill.checklist import Report

LIMIT_S = 900.0
FIGURES = ("detection_s", "promotion_s", "recovery_s", "fail_back_s")


def one_drill(runs: int) -> Report:
    """The report of one drill; a line that fails does not end it."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["drill", "run", "--local", "--quiet", "2s", "--on-call", "bench", "--runs", str(runs), "--json"]
        command = [sys.executable, "-m", "mainspring", *words, "--folder", folder]
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    return msgspec.json.decode(done.stdout, type=Report)


def main() -> None:
    """Print each round, and the median and the worst of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1_000, help="runs that validate the standby (default: %(default)s)")
    asked = parser.parse_args()
    print("| round | lines that failed | lost | recovery point | detected | promoted | recovered | failed back |")
    print("|---|---|---|---|---|---|---|---|")
    found: dict[str, list[float]] = {name: [] for name in FIGURES}
    for number in range(1, asked.rounds + 1):
        report = one_drill(asked.runs)
        for name in FIGURES:
            found[name].append(report.figures.get(name, float("nan")))
        failed = sum(line.state == "fail" for line in report.lines)
        point = "not known" if report.lost_s is None else f"{report.lost_s:.1f} s"
        times = " | ".join(f"{found[name][-1]:.1f} s" for name in FIGURES)
        print(f"| {number} | {failed} of {len(report.lines)} | {report.lost} | {point} | {times} |", flush=True)
    for name, choose in (("median", statistics.median), ("worst", max)):
        print(f"| {name} | | | | {' | '.join(f'{choose(found[each]):.1f} s' for each in FIGURES)} |")


if __name__ == "__main__":
    main()
