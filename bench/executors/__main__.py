"""`python -m bench.executors [--quick] [--only NAME ...]`: what executing costs, by kind and isolation, beside bare
processes, Celery's prefork pool and RQ, in the same minutes.

Redis is that of `scripts/services start`. Each program runs alone, in a fresh process; the figure is the median of the
rounds, which take turns.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from rich.console import Console
from rich.table import Table

from bench.harness.figures import Row, Series, at, rate, show
from bench.harness.machine import facts
from bench.harness.running import RESULTS, ROOT, Contestant, Failed, keep_results, run_afresh
from bench.harness.script import Params
from bench.peers.installing import REQUIREMENTS, install

if TYPE_CHECKING:
    from bench.cluster.arena import Arena

DATABASE = "bench_executors"
CORES = os.cpu_count() or 1
OURS = Contestant("Mainspring", Path(sys.executable), "bench.executors.ours", {})
BASELINES = Contestant("bare", Path(sys.executable), "bench.executors.baselines", {})
TASKS = {"on the loop": "noop_async", "in a thread": "noop_thread", "in a process": "noop_process"}
FRESH = {"in a fresh process, limits": "noop_limits", "in a fresh process, sandbox": "noop_sandbox"}
LEVELS = {"none": "none", "limits": "limits", "limits, groups": "limits,memory=1GB,processes=50", "sandbox": "sandbox"}


FULL = {"SQLite": 30_000, "PostgreSQL": 10_000}
"""After how many runs the caches of a worker have reached their bounds. On SQLite the largest is that for pages of the
file, of 16 MB: by then this much has been written."""
TENTH = 10
"""Of the hundred times at which it is looked what is held. A leak shows in the middle of ten of them as well as in the
highest; what is held for a moment does not."""


class Size(NamedTuple):
    """How much of everything."""

    rounds: int = 3
    functions: int = 20_000
    programs: int = 200
    celery: int = 3_000
    rq: int = 300
    deaths: int = 10
    runs: int = 100_000


QUICK = Size(1, 4_000, 30, 500, 50, 3, 10_000)


Entry = tuple[Contestant, str, Params]
"""The contestant, what is measured of it, and how."""


def _in_turns(rounds: int, entries: Mapping[str, Entry], limit_s: int = 120) -> dict[str, Series]:
    """All of them in each round: the machine's speed drifts, and what is compared must have met the same."""
    series = {name: Series() for name in entries}
    for _ in range(rounds):
        for name, (contestant, measure, params) in entries.items():
            if not series[name].trouble:
                try:
                    series[name].answers.append(run_afresh(contestant, measure, RESULTS, limit_s, params))
                except Failed as failure:
                    series[name].trouble = str(failure)
    return series


def _rounds(contestant: Contestant, measure: str, size: Size, params: Params, limit_s: int = 120) -> Series:
    return _in_turns(size.rounds, {"": (contestant, measure, params)}, limit_s)[""]


def _row(name: str, series: Series, *, unit: str = "ms") -> Row:
    cells = {"p50": series.void, "per second": ""}
    if not series.trouble:
        samples = "samples_ms" in series.answers[0]
        cells["p50"] = show(series.figure(at(0.5)), unit) if samples else ""
        cells["per second"] = show(series.figure(rate)) if "rates" in series.answers[0] else ""
    return Row(name, cells, rounds={name: series.rounds(rate)} if cells["per second"] else {})


def _judged(row: Row, value: float | None, against: float | None, target: str, good: Callable[[float], bool]) -> Row:
    """The row with its verdict; `value` beside `against` where there is one."""
    row.target = target
    if value is not None and against != 0:
        ratio = value if against is None else value / against
        row.met = good(ratio)
        row.ratio = row.ratio if against is None else f"{ratio:.2f} ×"
    return row


def measure_functions(size: Size) -> list[Row]:
    """Executors alone, beside what the standard library does."""
    bare = {"count": size.functions, "processes": CORES, "concurrency": 100}
    entries: dict[str, Entry] = {
        "run_in_executor, threads": (BASELINES, "threads", bare),
        "run_in_executor, processes": (BASELINES, "processes", {**bare, "concurrency": 2 * CORES}),
    }
    for label, task in TASKS.items():
        entries[f"function {label}"] = (OURS, "alone", {"task": task, "count": size.functions, "concurrency": 100})
    for label, task in FRESH.items():
        params = {"task": task, "count": max(size.programs // 5, 5), "concurrency": CORES}
        entries[f"function {label}"] = (OURS, "alone", params)
    series = _in_turns(size.rounds, entries)
    rows = {name: _row(name, each) for name, each in series.items()}
    thread = "function in a thread"
    _judged(rows[thread], series[thread].figure(rate), None, "10,000 a second", lambda value: value >= 10_000)
    return list(rows.values())


def measure_commands(size: Size) -> list[Row]:
    """A program that does nothing, at every level, beside `subprocess.run` of the same."""
    params: Params = {"count": size.programs, "processes": CORES}
    entries: dict[str, Entry] = {
        "subprocess.run": (BASELINES, "subprocess", params),
        "subprocess.run of bwrap": (BASELINES, "bubblewrap", params),
    }
    for label, isolation in LEVELS.items():
        wanted = {"isolation": isolation, "count": size.programs, "concurrency": CORES}
        entries[f"command, {label}"] = (OURS, "alone", wanted)
    series = _in_turns(2 * size.rounds - 1, entries)
    bare = series["subprocess.run"].rounds(at(0.5))
    rows = []
    for name, each in series.items():
        row, took = _row(name, each), each.rounds(at(0.5))
        if bare and took and name.startswith("command"):
            over = median(mine - theirs for mine, theirs in zip(took, bare, strict=True))
            row.ratio = f"{over:+.1f} ms"
            if name == "command, sandbox":
                _judged(row, over, None, "< 10 ms over subprocess.run", lambda value: value < 10)
        rows.append(row)
    return rows


def measure_drain(size: Size) -> list[Row]:
    """The whole path: taken from a store or a broker, executed, recorded."""
    os.environ["BENCH_REDIS"] = (_service("MAINSPRING_TEST_REDIS") or "redis://127.0.0.1:6379") + "/5"
    celery = _peer("celery", "Celery prefork, Redis", size, size.celery)
    rows = [_row(celery[0], celery[1]), _row(*_peer("rq", "RQ, Redis", size, size.rq))]
    for label, task in TASKS.items():
        count = size.functions if task != "noop_process" else max(size.functions // 2, 1)
        series = _rounds(OURS, "drain", size, {"task": task, "count": count, "concurrency": 100})
        row = _row(f"Mainspring {label}, SQLite", series)
        if task == "noop_process":
            against = celery[1].figure(rate)
            _judged(row, series.figure(rate), against or 0, "4 × Celery", lambda value: value >= 4)
        rows.append(row)
    return rows


def _peer(name: str, label: str, size: Size, count: int) -> tuple[str, Series]:
    environment = ROOT / "bench" / f".venv-{name}"
    contestant = Contestant(label, environment / "bin" / "python", f"bench.executors.with_{name}", {})
    try:
        install(environment, REQUIREMENTS / f"{name}.txt")
    except Failed as failure:
        return label, Series(trouble=str(failure))
    return label, _rounds(contestant, "drain", size, {"count": count, "processes": CORES})


def _service(name: str) -> str:
    """Where `scripts/services` wrote that a server is; nothing if it runs none."""
    urls = Path(os.environ.get("MAINSPRING_SERVICES", ROOT / ".services")) / "urls"
    for line in urls.read_text().splitlines() if urls.exists() else ():
        if line.startswith(f"{name}="):
            return line.partition("=")[2].strip("'\"")
    return ""


def measure_deaths(size: Size) -> list[Row]:
    """From a deadline to a dead tree, of which that is known."""
    rows = []
    for polite in (True, False):
        for level in ("none", "limits", "sandbox"):
            count = size.deaths if polite else max(size.deaths // 3, 1)
            params = {"polite": polite, "isolation": level, "count": count}
            kind = "that listens" if polite else "that is deaf, less its grace"
            rows.append(_row(f"deadline to dead tree {kind}, {level}", _rounds(OURS, "deadline", size, params)))
    return rows


def measure_memory(size: Size) -> list[Row]:
    """A worker over this many runs of all kinds: the most that it held, and whether it grew any more when its caches,
    which have bounds, were full."""
    rows = [_memory_row("SQLite", None, size)]
    if server := _service("MAINSPRING_TEST_POSTGRES"):
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            connection.execute(f"CREATE DATABASE {DATABASE}")
            rows.append(_memory_row("PostgreSQL", f"{server}/{DATABASE}", size))
            connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")
    return rows


def _memory_row(where: str, store: str | None, size: Size) -> Row:
    name = f"peak memory of a worker over {size.runs:,} runs, {where}"
    once = size._replace(rounds=1)
    series = _rounds(OURS, "memory", once, {"count": size.runs, "concurrency": 100, "store": store}, limit_s=280)
    if series.trouble:
        return Row(name, {"p50": series.void})
    held = series.answers[0]["held_mb"]
    row = Row(name, {"p50": f"{max(held):.0f} MB"}, rounds={"held_mb": held}, target="no growth with full caches")
    full = FULL[where]
    since = len(held) * full // size.runs
    if since + 2 * TENTH > len(held):
        row.ratio = f"caches are full after {full:,} runs: too few to tell"
        return row
    early, late = median(held[since : since + TENTH]), median(held[-TENTH:])
    row.ratio = f"{late - early:+.1f} MB since its caches were full, at {full:,} runs"
    row.met = late < 1.05 * early
    return row


MEASURES: Mapping[str, Callable[[Size], list[Row]]] = {
    "functions": measure_functions,
    "commands": measure_commands,
    "drain": measure_drain,
    "deaths": measure_deaths,
    "memory": measure_memory,
}


def measure(arena: Arena) -> list[Row]:
    """All of it, as part of the whole, whose columns are contestants: here the rows name the contestant."""
    size = QUICK if arena.quick else Size()
    rows = [row for part in MEASURES.values() for row in part(size)]
    for row in rows:
        took, rate_of_it = row.cells.get("p50", ""), row.cells.get("per second", "")
        row.cells = {OURS.label: " · ".join(filter(None, (took, rate_of_it and f"{rate_of_it}/s")))}
    return rows


def _print(rows: Sequence[Row], known: Mapping[str, str]) -> None:
    console = Console(width=max(Console().width, 150))
    for name, fact in known.items():
        console.print(f"[dim]{name}:[/] {fact}", highlight=False)
    table = Table(header_style="bold")
    for name in ("measure", "p50", "per second", "beside", "target", ""):
        table.add_column(name, justify="right" if name in ("p50", "per second") else "left")
    verdicts = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}
    for row in rows:
        cells = (row.cells.get("p50", ""), row.cells.get("per second", ""))
        table.add_row(row.measure, *cells, row.ratio, row.target, verdicts[row.met])
    console.print(table, highlight=False)


def main() -> int:
    """What was asked for; 1 if a figure of ours is void."""
    parser = argparse.ArgumentParser(prog="python -m bench.executors", description="What it costs to execute.")
    parser.add_argument("--quick", action="store_true", help="a look, too small to quote")
    parser.add_argument("--only", nargs="+", choices=MEASURES, metavar="NAME", help=f"of {', '.join(MEASURES)}")
    arguments = parser.parse_args()
    # Ended from outside, it still cleans up after itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    size = QUICK if arguments.quick else Size()
    known = facts(RESULTS)
    rows: list[Row] = []
    for name in arguments.only or MEASURES:
        print(f"{name} ...", file=sys.stderr)
        rows += MEASURES[name](size)
    _print(rows, known)
    keep_results("executors", {"facts": known, "size": size._asdict(), "rows": [asdict(row) for row in rows]})
    return int(any("void" in row.cells.get("p50", "") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
