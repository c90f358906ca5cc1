"""Processor time, from /proc: unlike a rate, it hardly depends on other load."""

from __future__ import annotations

import os
from pathlib import Path

from bench.cluster.stage import Stage

TICKS = os.sysconf("SC_CLK_TCK")
_ALL = "SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity"


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _taken_s(pids: list[int]) -> float:
    stats = [_fields(pid) for pid in pids]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats if stat) / TICKS


def workers_s(stage: Stage) -> float:
    """What the worker processes and all that they started have taken so far."""
    groups = {str(worker.pid) for worker in stage.workers}
    processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return _taken_s([pid for pid in processes if (stat := _fields(pid)) and stat[2] in groups])


def server_s(stage: Stage) -> float:
    """What the processes of the server that live now have taken so far."""
    if stage.contestant.on_postgres:
        return _taken_s(list(stage.servers.fetch(_ALL)))
    info = stage.servers.redis_says("INFO", "server")
    return _taken_s([int(line.split(":")[1]) for line in info.splitlines() if line.startswith("process_id")])
