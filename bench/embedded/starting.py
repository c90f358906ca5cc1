"""How long it takes to import, to print help, and to be up: fresh processes, seen from outside."""

from __future__ import annotations

import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from bench.harness.figures import Row, show
from bench.harness.running import HUEY, MAINSPRING, ROOT, Failed, end, scratch_folder, start

Commands = Mapping[str, list[str]]

LIMIT_S = 20.0
LOOK_S = 0.002
IMPORT_LIMIT_MS = 150.0
_APSCHEDULER = (
    "from apscheduler.schedulers.asyncio import AsyncIOScheduler; "
    "from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore"
)


def _commands() -> Commands:
    own, peer = sys.executable, str(HUEY.python)
    return {
        "bare": [own, "-c", "pass"],
        "bare peer": [peer, "-c", "pass"],
        "import": [own, "-c", "import mainspring"],
        "app": [own, "-c", "from mainspring import Mainspring; Mainspring()"],
        "help": [own, "-m", "mainspring", "--help"],
        "huey": [peer, "-c", "from huey import SqliteHuey"],
        "apscheduler": [peer, "-c", _APSCHEDULER],
    }


def _time_ms(command: list[str]) -> float:
    began = time.perf_counter()
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=False)
    took = (time.perf_counter() - began) * 1000
    if ended.returncode:
        raise Failed((ended.stderr.decode().strip().splitlines() or ["failed"])[-1])
    return took


def _median_ms(commands: Commands, rounds: int) -> dict[str, float]:
    """Of this many fresh interpreters each, taking turns; the first of each, which fills caches, does not count."""
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            taken[name].append(_time_ms(command))
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def measure_imports(rounds: int) -> list[Row]:
    """Import time and `--help`, whole and less what the bare interpreter takes."""
    took = _median_ms(_commands(), rounds)

    def cell(name: str, bare: str) -> str:
        return f"{show(took[name], 'ms')} (+{show(max(took[name] - took[bare], 0))})"

    peers = {"Huey SQLite": cell("huey", "bare peer"), "APScheduler SQLite": cell("apscheduler", "bare peer")}
    rows = [
        Row("import mainspring (more than bare Python)", {MAINSPRING.label: cell("import", "bare")}),
        Row("mainspring --help", {MAINSPRING.label: cell("help", "bare")}),
        Row("import and make an app (peers: import)", {MAINSPRING.label: cell("app", "bare")} | peers),
    ]
    for row, name in zip(rows, ("import", "help", "app"), strict=True):
        row.rounds = {"whole_ms": [took[name]], "bare_ms": [took["bare"]]}
        if name != "app":
            row.target, row.met = f"< {IMPORT_LIMIT_MS:.0f} ms", took[name] < IMPORT_LIMIT_MS
    return rows


def _is_up(database: Path) -> bool:
    """Whether a node leads and a worker works: from then on, what is due fires and what is submitted runs."""
    if not database.exists():
        return False
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=0)
        try:
            (workers,) = connection.execute("SELECT count(*) FROM workers WHERE state = 'active'").fetchone()
            (terms,) = connection.execute("SELECT count(*) FROM terms").fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return False  # it is just being made
    return bool(workers and terms)


def _time_up_ms(parent: Path) -> float:
    with scratch_folder(parent) as folder:
        database = folder / "up.db"
        app = str(ROOT / "examples" / "quickstart.py")
        command = [sys.executable, "-m", "mainspring", "up", app, "--store", f"sqlite:///{database}"]
        began = time.perf_counter()
        process = start([*command, "--for", f"{LIMIT_S:g}s"])
        try:
            while not _is_up(database):
                if process.poll() is not None or time.perf_counter() - began > LIMIT_S:
                    raise Failed("`mainspring up` did not come up")
                time.sleep(LOOK_S)
            return (time.perf_counter() - began) * 1000
        finally:
            end(process)


def measure_up(rounds: int, parent: Path) -> list[Row]:
    """From the command line to a process that leads and works, on a new database."""
    try:
        took = statistics.median(_time_up_ms(parent) for _ in range(rounds))
    except Failed as failure:
        return [Row("mainspring up, until it leads and works", {MAINSPRING.label: f"void: {failure}"})]
    return [Row("mainspring up, until it leads and works", {MAINSPRING.label: show(took, "ms")}, rounds={"ms": [took]})]
