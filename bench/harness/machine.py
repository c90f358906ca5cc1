"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.harness.awake import is_awake
from bench.harness.running import PEERS


def facts(folder: Path) -> dict[str, str]:
    """The machine, its software, its load, and the disk that is written to."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {_memory_gb():.0f} GB, {platform.system()} "
        f"{platform.release()}",
        "processors": "kept awake" if is_awake() else "sleep when there is nothing to do",
        "disk": _file_system(folder),
        "python": f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}, uvloop {_version('uvloop')}",
        "load at start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "mainspring": _version("mainspring"),
        "peers": _peer_versions(),
    }


def _processor() -> str:
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def _file_system(folder: Path) -> str:
    """The mount that holds the folder: the longest of those that lead to it."""
    mounts = [line.split() for line in _lines("/proc/mounts")]
    leading = [mount for mount in mounts if folder.resolve().is_relative_to(mount[1])]
    return max(leading, key=lambda mount: len(mount[1]))[2] if leading else "unknown"


def _lines(path: str) -> list[str]:
    file = Path(path)
    return file.read_text().splitlines() if file.exists() else []


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _peer_versions() -> str:
    names = ("huey", "APScheduler", "SQLAlchemy")
    code = f"from importlib.metadata import version as v; print(*(n + ' ' + v(n) for n in {names}), sep=', ')"
    python = PEERS / "bin" / "python"
    if not python.exists():
        return "not installed"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=30, check=False).stdout.strip()
