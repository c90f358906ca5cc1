"""What idle jobs cost, read from /proc: processor time does not depend on other load, so all are watched at
once."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.harness.figures import Row, show
from bench.harness.running import (
    APS_MEMORY,
    APS_SQLITE,
    HUEY,
    MAINSPRING,
    Contestant,
    Failed,
    end,
    run,
    scratch_folder,
    start,
)

TICKS = os.sysconf("SC_CLK_TCK")
CALM_S = 2.0
CALM_SHARE = 0.2
READY_LIMIT_S = 180
CPU_LIMIT_S = 1.0
MEMORY_LIMIT_MB = 150.0
FEW, MANY = 10_000, 1_000_000


class Cost(NamedTuple):
    """What a process took."""

    start_cpu_s: float
    cpu_s_per_minute: float
    steady_mb: float
    most_mb: float


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _memory_mb(pid: int, what: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    raise Failed(f"/proc has no {what}")


@contextmanager
def _staying(contestant: Contestant, folder: Path, jobs: int, limit_s: int) -> Iterator[int]:
    """A fresh process that has nothing to do, once it is ready: its id."""
    command = contestant.command("idle", {"folder": str(folder), "jobs": jobs, "limit_s": limit_s})
    process = start(command, stdin=subprocess.PIPE)
    try:
        assert process.stdout is not None, "start() asks for a pipe"
        if "ready" not in process.stdout.readline():
            raise Failed("did not get ready")
        yield process.pid
    finally:
        end(process)


def _await_calm(pids: list[int]) -> None:
    """Starting is a cost of its own: wait until all have settled, but not forever."""
    for _ in range(15):
        before = [_cpu_s(pid) for pid in pids]
        time.sleep(CALM_S)
        if all(_cpu_s(pid) - cpu < CALM_S * CALM_SHARE for pid, cpu in zip(pids, before, strict=True)):
            return


def _watch(pids: list[int], seconds: float) -> list[Cost]:
    _await_calm(pids)
    before = [_cpu_s(pid) for pid in pids]
    began = time.perf_counter()
    time.sleep(seconds)
    share = 60 / (time.perf_counter() - began)
    return [
        Cost(cpu, (_cpu_s(pid) - cpu) * share, _memory_mb(pid, "VmRSS"), _memory_mb(pid, "VmHWM"))
        for pid, cpu in zip(pids, before, strict=True)
    ]


def measure_idle(parent: Path, many: int, seconds: float) -> list[Row]:
    """Processor time and memory of fresh processes over stored jobs of which none is due."""
    limit_s = int(seconds) + READY_LIMIT_S
    with ExitStack() as stack:
        folders = [stack.enter_context(scratch_folder(parent)) for _ in range(5)]
        run(MAINSPRING, "store_idle", folders[0], READY_LIMIT_S, {"jobs": FEW})
        run(MAINSPRING, "store_idle", folders[1], READY_LIMIT_S, {"jobs": many})
        watched = (MAINSPRING, FEW), (MAINSPRING, many), (HUEY, FEW), (APS_SQLITE, FEW), (APS_MEMORY, FEW)
        pids = [
            stack.enter_context(_staying(contestant, folder, jobs, limit_s))
            for (contestant, jobs), folder in zip(watched, folders, strict=True)
        ]
        few, lots, *rivals = _watch(pids, seconds)
    peers = dict(zip((HUEY.label, APS_SQLITE.label, APS_MEMORY.label), rivals, strict=True))
    return [*_rows_of_few(few, peers), *_rows_of_many(lots, many)]


def _rows_of_few(few: Cost, peers: dict[str, Cost]) -> list[Row]:
    contestants = {MAINSPRING.label: few, **peers}
    cpu = {label: show(cost.cpu_s_per_minute, "s") for label, cost in contestants.items()}
    memory = {label: f"{show(cost.steady_mb)} / {show(cost.most_mb, 'MB')}" for label, cost in contestants.items()}
    return [
        Row(f"CPU per minute, {FEW:,} idle jobs", cpu, rounds={"cpu_s": [few.cpu_s_per_minute]}),
        Row(f"memory, {FEW:,} idle jobs, steady / most", memory, rounds={"most_mb": [few.most_mb]}),
    ]


def _rows_of_many(lots: Cost, many: int) -> list[Row]:
    label = MAINSPRING.label
    cpu = Row(f"CPU per minute, {many:,} idle jobs", {label: show(lots.cpu_s_per_minute, "s")})
    first = Row(f"CPU to start, {many:,} idle jobs", {label: show(lots.start_cpu_s, "s")})
    memory = Row(
        f"memory, {many:,} idle jobs, steady / most", {label: f"{show(lots.steady_mb)} / {show(lots.most_mb, 'MB')}"}
    )
    cpu.rounds = {"cpu_s": [lots.cpu_s_per_minute]}
    first.rounds = {"start_cpu_s": [lots.start_cpu_s]}
    memory.rounds = {"steady_mb": [lots.steady_mb], "most_mb": [lots.most_mb]}
    if many >= MANY:  # A quick look at fewer jobs shows nothing about what was promised for a million.
        cpu.target, cpu.met = f"< {CPU_LIMIT_S:g} s", lots.cpu_s_per_minute < CPU_LIMIT_S
        memory.target, memory.met = f"most < {MEMORY_LIMIT_MB:g} MB", lots.most_mb < MEMORY_LIMIT_MB
    return [cpu, first, memory]
