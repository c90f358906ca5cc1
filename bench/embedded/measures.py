"""The measures that all contestants take part in: in rounds, taking turns, so that a slow minute hits all of them."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench.harness.figures import Row, Series, at, rate, share_of, show
from bench.harness.running import APS_MEMORY, APS_SQLITE, HUEY, MAINSPRING, RIVALS, Contestant, Failed, run_afresh
from bench.harness.script import Answer, Params

JOBS = 1_000
PER_SECOND = 100
OURS = MAINSPRING.label
MEMORY = APS_MEMORY.label
SHARES = (0.5, 0.99)


@dataclass(frozen=True)
class Size:
    """How much of everything; enough for figures that mean something, or only for a quick look."""

    rounds: int = 3
    submit_rounds: int = 5
    submit_s: float = 1.0
    batches: int = 10
    count: int = 20_000
    slow_count: int = 2_000
    """For those that take a commit per run: their rate does not depend on how many there are."""
    latency_s: float = 5.0
    period_s: int = 5
    boundaries: int = 4
    idle_jobs: int = 1_000_000
    idle_s: float = 60.0
    starts: int = 7
    ups: int = 3


QUICK = Size(
    rounds=1, submit_rounds=1, submit_s=1.0, batches=3, count=10_000, slow_count=500, latency_s=2.0, period_s=2,
    boundaries=1, idle_jobs=50_000, idle_s=8.0, starts=3, ups=1,
)  # fmt: skip


class Entry(NamedTuple):
    """One program in a measure, under the key by which its answers are found."""

    key: str
    contestant: Contestant
    measure: str
    params: Params


def _take_turns(parent: Path, rounds: int, entries: Sequence[Entry], limit_s: int = 120) -> dict[str, Series]:
    series = {entry.key: Series() for entry in entries}
    for number in range(rounds):
        for entry in entries:
            own = series[entry.key]
            if own.trouble:
                continue
            print(f"  {entry.measure} {number + 1}/{rounds}: {entry.key}", file=sys.stderr)
            try:
                answer = run_afresh(entry.contestant, entry.measure, parent, limit_s, entry.params)
                if answer.get("samples_ms") == []:
                    raise Failed("nothing ran in time")
                own.answers.append(answer)
            except Failed as failure:
                own.trouble = str(failure)
    return series


def _all_contestants(measure: str, params: Params, slow: Params | None = None) -> list[Entry]:
    """Mainspring and its rivals; those that commit each run by itself may be given less to do."""
    return [
        Entry(each.label, each, measure, slow if slow and each in (HUEY, APS_SQLITE) else params)
        for each in (MAINSPRING, *RIVALS)
    ]


def _cells(series: dict[str, Series], value: Callable[[Answer], float], unit: str) -> dict[str, str]:
    return {key: own.void or show(own.figure(value), unit) for key, own in series.items()}


def _rounds(series: dict[str, Series], value: Callable[[Answer], float]) -> dict[str, list[float]]:
    return {key: own.rounds(value) for key, own in series.items()}


def _rate_row(name: str, series: dict[str, Series]) -> Row:
    return Row(name, _cells(series, rate, "/s"), rounds=_rounds(series, rate))


def _judge(row: Row, value: float | None, target: str, least: float | None) -> Row:
    """Whether a figure has reached what it was to reach."""
    row.target = target
    row.met = value is not None and least is not None and value >= least
    return row


def _of_bare(answer: Answer) -> float:
    """Ours as a share of the bare insert, slice by slice."""
    shares = [own / bare for own, bare in zip(answer["rates"], answer["bare"], strict=True)]
    return float(statistics.median(shares))


def measure_submit(parent: Path, size: Size) -> list[Row]:
    """Submissions a second: one after another, a hundred callers at a time, without a sync."""
    params: Params = {"seconds": size.submit_s}
    relaxed = Entry("relaxed", MAINSPRING, "submit", params | {"durable": False})
    together = Entry("together", MAINSPRING, "submit_together", params)
    series = _take_turns(parent, size.submit_rounds, [*_all_contestants("submit", params), relaxed, together])
    extra = {key: series.pop(key) for key in ("relaxed", "together")}
    own = series[OURS]
    bare = Series([{"rates": answer["bare"]} for answer in own.answers], own.trouble)
    single = _rate_row("submissions, one after another", series)
    share = own.figure(_of_bare)
    single.ratio = "" if share is None else f"{share:.2f} × bare SQLite"
    single.rounds["share of bare SQLite"] = own.rounds(_of_bare)
    return [
        _rate_row("bare SQLite: insert and commit, synced", {OURS: bare}),
        _judge(single, share, "≥ 0.70 × bare SQLite", 0.7),
        _rate_row("submissions, 100 callers at a time", {OURS: extra["together"]}),
        _rate_row("submissions, one after another, durable=false", {OURS: extra["relaxed"]}),
    ]


def measure_bulk(parent: Path, size: Size) -> list[Row]:
    """Submissions a second in bulk; the peers have no bulk."""
    series = _take_turns(parent, size.rounds, [Entry(OURS, MAINSPRING, "bulk", {"batches": size.batches})])
    row = _rate_row("submissions, in bulk of 10,000", series)
    return [_judge(row, series[OURS].figure(rate), "≥ 100,000/s", 100_000)]


def measure_drain(parent: Path, size: Size) -> list[Row]:
    """How fast a backlog of no-op tasks is worked off."""
    params: Params = {"count": size.count, "style": "async"}
    variants = [
        Entry("sync", MAINSPRING, "drain", params | {"style": "sync"}),
        Entry("relaxed", MAINSPRING, "drain", params | {"durable": False}),
    ]
    contestants = _all_contestants("drain", params, {"count": size.slow_count})
    series = _take_turns(parent, size.rounds, [*contestants, *variants])
    extra = {key: series.pop(key) for key in ("sync", "relaxed")}
    own = series[OURS].figure(rate)
    backlog = _rate_row("drain of a backlog, async no-op", series)
    backlog.ratio = share_of(own, series[MEMORY].figure(rate), MEMORY)
    return [
        _judge(backlog, own, "≥ 15,000/s", 15_000),
        _rate_row("drain of a backlog, sync no-op (threads)", {OURS: extra["sync"]}),
        _rate_row("drain of a backlog, async no-op, durable=false", {OURS: extra["relaxed"]}),
    ]


def measure_flow(parent: Path, size: Size) -> list[Row]:
    """How fast no-op tasks go through a worker that runs all along, from the first submission to the last end."""
    params: Params = {"count": size.count}
    threads = [
        Entry("ours in threads", MAINSPRING, "flow", params | {"style": "sync"}),
        Entry("theirs in threads", APS_MEMORY, "flow_in_threads", params),
    ]
    series = _take_turns(parent, size.rounds, [*_all_contestants("flow", params, {"count": size.slow_count}), *threads])
    in_threads = {OURS: series.pop("ours in threads"), MEMORY: series.pop("theirs in threads")}
    return [
        _flow_row("submitted to a running worker, until the last end", series),
        _flow_row("the same, sync no-op (threads; APScheduler as it comes)", in_threads),
    ]


def _flow_row(name: str, series: dict[str, Series]) -> Row:
    own, other = series[OURS].figure(rate), series[MEMORY].figure(rate)
    row = _rate_row(name, series)
    row.ratio = share_of(own, other, MEMORY)
    return _judge(row, own, f"≥ 1.5 × {MEMORY}", None if other is None else 1.5 * other)


def _percentiles(series: dict[str, Series]) -> dict[str, str]:
    """The median and the 99th percentile; and how many ran, where not all did."""
    cells = {}
    for key, own in series.items():
        if own.void:
            cells[key] = own.void
            continue
        ran = sum(len(answer["samples_ms"]) for answer in own.answers)
        expected = sum(answer["expected"] for answer in own.answers)
        lost = "" if ran == expected else f" ({ran:,} of {expected:,})"
        cells[key] = f"{show(own.figure(at(0.5)))} / {show(own.figure(at(0.99)), 'ms')}{lost}"
    return cells


def _timing_row(name: str, series: dict[str, Series], limits_ms: dict[float, float]) -> Row:
    """Percentiles of all, and whether ours stay under their limits."""
    rounds = {f"{key} p{share * 100:.0f}": own.rounds(at(share)) for key, own in series.items() for share in SHARES}
    row = Row(name, _percentiles(series), rounds=rounds)
    if limits_ms:
        reached = {share: series[OURS].figure(at(share)) for share in limits_ms}
        row.target = ", ".join(f"p{share * 100:.0f} < {limit:g} ms" for share, limit in limits_ms.items())
        row.met = all(value is not None and value < limits_ms[share] for share, value in reached.items())
    return row


def measure_latency(parent: Path, size: Size) -> list[Row]:
    """From the call to the first line of the function, at a hundred submissions a second."""
    params: Params = {"seconds": size.latency_s, "per_second": PER_SECOND}
    across = Entry("across", MAINSPRING, "latency_across", params)
    floor = Entry("floor", MAINSPRING, "latency_floor", params)
    series = _take_turns(parent, size.rounds, [floor, *_all_contestants("latency", params), across])
    other, bare = series.pop("across"), series.pop("floor")
    return [
        _timing_row("bare SQLite: a synced commit at 100/s, p50 / p99", {OURS: bare}, {}),
        _timing_row("latency at 100/s, p50 / p99", series, {0.5: 1.0, 0.99: 3.0}),
        _timing_row("latency, submitted by another process", {OURS: other}, {}),
    ]


def measure_lateness(parent: Path, size: Size) -> list[Row]:
    """From the fire instant to the first line of the function, with a thousand jobs due at once."""
    params: Params = {"jobs": JOBS, "period_s": size.period_s, "boundaries": size.boundaries}
    series = _take_turns(parent, 1, _all_contestants("lateness", params))
    return [_timing_row("lateness, 1,000 jobs due on one second, p50 / p99", series, {0.99: 100.0})]
