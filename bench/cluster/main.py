"""Mainspring on PostgreSQL beside the peers: starts the servers, measures, prints the table, keeps the figures."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.cluster.arena import OURS, Arena
from bench.cluster.contestants import EVERY_PEER, Contestant, environment
from bench.cluster.fleet import measure_fleet, measure_idle_fleet, measure_whole
from bench.cluster.flow import measure_billion
from bench.cluster.idling import measure_idle
from bench.cluster.latency import measure_latency
from bench.cluster.lateness import measure_lateness
from bench.cluster.pressure import measure_crowd, measure_held
from bench.cluster.servers import serving
from bench.cluster.throughput import measure_bulk, measure_drain, measure_submit
from bench.cluster.watchers import measure_watchers
from bench.harness.figures import Row
from bench.harness.machine import facts
from bench.harness.running import Failed, keep_results
from bench.harness.table import print_side_by_side
from bench.peers.installing import REQUIREMENTS, install

Measure = Callable[[Arena], list[Row]]
PEERS = {peer.name: peer for peer in EVERY_PEER}
PLUGGED = {
    "failover": "bench.electors.__main__",
    "executors": "bench.executors.__main__",
    "redis": "bench.brokers.redis",
    "api": "bench.api.__main__",
}
"""Measures in rooms of their own: name to module, each with a function `measure(arena) -> list[Row]`."""


def _plugged(module: str) -> Measure:
    def measure(arena: Arena) -> list[Row]:
        rows: list[Row] = importlib.import_module(module).measure(arena)
        return rows

    return measure


MEASURES: Mapping[str, Measure] = {
    "submit": measure_submit,
    "bulk": measure_bulk,
    "drain": measure_drain,
    "latency": measure_latency,
    "lateness": measure_lateness,
    "idle": measure_idle,
    "fleet": measure_fleet,
    "idle_fleet": measure_idle_fleet,
    "whole": measure_whole,
    "watchers": measure_watchers,
    "crowd": measure_crowd,
    "held": measure_held,
    "billion": measure_billion,
} | {name: _plugged(module) for name, module in PLUGGED.items()}


def install_peers(wanted: Sequence[str]) -> tuple[list[Contestant], dict[str, str]]:
    """The peers that could be installed, and why others could not."""
    there, missing = [], {}
    for name in wanted:
        try:
            install(environment(name), REQUIREMENTS / f"{name}.txt")
            there.append(PEERS[name])
        except Failed as failure:
            missing[PEERS[name].label] = str(failure)
    return there, missing


def version_of(peer: Contestant) -> str:
    """Its name, and the version that is installed."""
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    asked = [str(peer.python), "-c", code, peer.package]
    found = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False).stdout.strip()
    return f"{peer.label} {found}"


def _measure(name: str, arena: Arena) -> list[Row]:
    """A measure that fails as a whole is a line of the table, and does not take the others with it."""
    began = time.perf_counter()
    print(f"{name} ...", file=sys.stderr)
    try:
        rows = MEASURES[name](arena)
    except Failed as failure:
        rows = [Row(name, {OURS: f"void: {failure}"})]
    for row in rows:  # What is known is shown at once: not every reader waits for the table.
        print(f"  {row.measure}: {row.cells} {row.ratio}", file=sys.stderr)
    print(f"{name} took {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return rows


def measure(only: Sequence[str] | None, folder: Path, quick: bool, peers: Sequence[str] | None) -> int:
    """Everything that was asked for; 1 if one of our own figures is void, since then nothing is known."""
    there, missing = install_peers(list(PEERS) if peers is None else peers)
    folder.mkdir(parents=True, exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="services-", dir=folder))
    data.chmod(0o755)
    with serving(data) as servers:
        known = facts(folder) | servers.facts() | {"peers": ", ".join(version_of(peer) for peer in there) or "none"}
        if missing:
            known["left out"] = "; ".join(f"{label}: {reason}" for label, reason in missing.items())
        arena = Arena(servers, folder, there, quick)
        rows = [row for name in only or MEASURES for row in _measure(name, arena)]
    print_side_by_side(rows, known, [each.label for each in arena.everybody])
    keep_results("postgres", {"facts": known, "quick": quick, "rows": [asdict(row) for row in rows]})
    return int(any("void" in row.cells.get(OURS, "") for row in rows))
