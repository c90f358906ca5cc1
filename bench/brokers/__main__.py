"""`python -m bench.brokers [rabbitmq kafka sqs] [--short | --quick] [--only MEASURE ...] [--folder PATH]`: Mainspring
with a broker beside its peers on the same broker, and beside the client library alone.

It starts a PostgreSQL and each broker by `scripts/services` in a folder of its own, one broker after the other, and
prints one table. The peers' settings are at the top of `bench/peers/with_NAME.py`. `--markdown` measures nothing, and
prints the kept results as a table for the documentation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.brokers.carrying import carry_by_adapter, carry_by_client, latencies_of_client
from bench.brokers.contestants import ON, keeps_results
from bench.brokers.servers import LABELS, BrokerServer, serving_broker
from bench.brokers.sink import deliver
from bench.brokers.whole import fall_back, start_at_a_pace, submit, work_off
from bench.cluster.arena import OURS, Arena, take_turns
from bench.cluster.contestants import MAINSPRING, Contestant
from bench.cluster.main import install_peers, version_of
from bench.cluster.rows import judge, percentile_row, rate_row
from bench.cluster.servers import serving
from bench.harness.awake import awake
from bench.harness.figures import Row, Series, at, percentile, rate, share_of, show
from bench.harness.intake import CALLERS
from bench.harness.machine import facts
from bench.harness.running import RESULTS, Failed, keep_results
from bench.harness.table import print_table

BARE = "bare client"
LATENCY_MS = {"rabbitmq": 5.0, "kafka": 10.0, "sqs": 100.0}
"""What a start may take in the middle: for SQS the sources' own figure."""
SINK_TARGET = 20_000
ROUNDS = 3
SLOWER_SQS = 10
"""A server of SQS carries about this share of what the others do."""


def measure_carrying(server: BrokerServer, arena: Arena) -> list[Row]:
    """What the adapter carries without a store, and the client library alone."""
    count = arena.size(50_000, 5_000) // (SLOWER_SQS if server.name == "sqs" else 1)
    seconds = arena.size(10, 3)
    ours = asyncio.run(carry_by_adapter(server, count, seconds))
    bare = asyncio.run(carry_by_client(server, count, seconds))
    names = {
        "messages published and confirmed": (ours.published, bare.published),
        "messages received and acknowledged": (ours.received, bare.received),
    }
    rows = [Row(name, {OURS: show(own, "/s"), BARE: show(other, "/s")}) for name, (own, other) in names.items()]
    series = {label: Series([{"samples_ms": each.samples_ms}]) for label, each in ((OURS, ours), (BARE, bare))}
    row = percentile_row("message latency at 100/s, p50 / p99", series, {})
    own, other = (percentile(each.samples_ms, 0.5) for each in (ours, bare))
    row.ratio, row.target, row.met = f"{own / other:.2f} × {BARE}", f"≤ 2 × {BARE}", own <= 2 * other
    return [*rows, row]


def measure_submissions(server: BrokerServer, arena: Arena) -> list[Row]:
    """Submissions a second. Ours are in PostgreSQL before they are published."""
    series = _in_turns("submissions", server, arena, submit, results=False)
    return [rate_row(f"submissions, {CALLERS} callers", series)]


def measure_drain(server: BrokerServer, arena: Arena) -> list[Row]:
    """Runs a second of a backlog, by two processes. Ours keeps results in PostgreSQL, so it is judged by the peers that
    do; the best of those that keep none stands beside it."""
    series = _in_turns("drain", server, arena, work_off)
    row = rate_row("drain of no-op runs, two processes", series)
    figures = {label: own.figure(rate) or 0.0 for label, own in series.items() if label != OURS}
    kept = {each.label for each in ON[server.name] if keeps_results(each)}
    best = max(figures.keys() & kept, key=lambda label: figures[label], default="")
    if not figures.get(best):
        return [row]
    judge(row, series[OURS].figure(rate), figures[best], 2, best)
    other = max(figures.keys() - kept, key=lambda label: figures[label], default="")
    row.ratio += f"; {share_of(series[OURS].figure(rate), figures.get(other), f'{other}, which keeps none')}"
    return [row]


def measure_latency(server: BrokerServer, arena: Arena) -> list[Row]:
    """From submit to the first line of the function, beside a message of the client library in the same minutes. Ours
    twice: as users get it, where the store hands a run to an idle worker; and with every run by the broker."""
    series = _in_turns("latency", server, arena, start_at_a_pace, results=False)
    delivered = take_turns(
        [MAINSPRING],
        _rounds(arena),
        f"{server.label}, latency by the broker",
        lambda each: start_at_a_pace(each, server, arena, delivered=True),
    )
    bare = Series([{"samples_ms": asyncio.run(latencies_of_client(server, arena.size(10, 3)))}])
    rows = [
        percentile_row("start latency at 100/s, p50 / p99", series | {BARE: bare}, {}),
        percentile_row("the same, every run by the broker", delivered | {BARE: bare}, {}),
    ]
    limit = LATENCY_MS[server.name]
    for row, own in zip(rows, (series[OURS].figure(at(0.5)), delivered[OURS].figure(at(0.5))), strict=True):
        row.ratio = share_of(own, bare.figure(at(0.5)), BARE)
        row.target, row.met = f"p50 < {limit:g} ms", own is not None and own < limit
    return rows


def measure_fallback(server: BrokerServer, arena: Arena) -> list[Row]:
    """The broker dies."""
    found = [fall_back(server, arena) for _ in range(_rounds(arena))]
    first, longest = (max(each[number] for each in found) for number in (0, 1))
    row = Row(
        "killed: first start after it / longest wait",
        {OURS: f"{show(first)} / {show(longest, 's')}"},
        target="first < 1 s",
        met=first < 1.0,
        rounds={"first": [each[0] for each in found], "longest": [each[1] for each in found]},
    )
    return [row]


def measure_sink(server: BrokerServer, arena: Arena) -> list[Row]:
    """Events that the sink delivers to Kafka, in order."""
    if server.name != "kafka":
        return []
    found = [asyncio.run(deliver(server, arena.size(200_000, 20_000))) for _ in range(_rounds(arena))]
    middle = sorted(found)[len(found) // 2]
    row = Row(
        "events delivered by the sink, order checked",
        {OURS: show(middle.rate, "/s")},
        ratio=f"{show(middle.by_cpu)} in 1 s of CPU",
        target=f"≥ {SINK_TARGET:,}/s",
        met=middle.rate >= SINK_TARGET,
        rounds={OURS: [each.rate for each in found]},
    )
    return [row]


MEASURES: dict[str, Callable[[BrokerServer, Arena], list[Row]]] = {
    "carrying": measure_carrying,
    "submissions": measure_submissions,
    "drain": measure_drain,
    "latency": measure_latency,
    "sink": measure_sink,
    "fallback": measure_fallback,
}


@dataclass(frozen=True)
class ShortArena(Arena):
    """Sizes as usual, and one round of each measure."""


def _rounds(arena: Arena) -> int:
    return 1 if arena.quick or isinstance(arena, ShortArena) else ROUNDS


def _in_turns(
    what: str,
    server: BrokerServer,
    arena: Arena,
    measure: Callable[[Contestant, BrokerServer, Arena], dict[str, object]],
    *,
    results: bool = True,
) -> dict[str, Series]:
    """Whether results are kept matters to a drain alone: elsewhere peers take part without."""
    there = {peer.name for peer in arena.everybody}
    everybody = [
        each
        for each in ON[server.name]
        if each.name in there and (results or not each.module or not keeps_results(each))
    ]
    return take_turns(everybody, _rounds(arena), f"{server.label}, {what}", lambda each: measure(each, server, arena))


def _measure(name: str, server: BrokerServer, arena: Arena) -> list[Row]:
    """A measure that fails is a line of the table, and does not take the others with it."""
    print(f"{server.label}, {name} ... (load {_load()})", file=sys.stderr)
    try:
        rows = MEASURES[name](server, arena)
    except Exception as failure:  # Whatever a client library raises.
        traceback.print_exc()
        rows = [Row(name, {OURS: f"void: {failure or type(failure).__name__}"})]
    for row in rows:
        row.measure = f"{server.label}: {row.measure}"
        print(f"  {row.measure}: {row.cells} {row.ratio}", file=sys.stderr)
    return rows


def measure_all(brokers: Sequence[str], only: Sequence[str], folder: Path, *, quick: bool, short: bool) -> int:
    """Everything that was asked for; 1 if one of our own figures is void."""
    wanted = {each.name for broker in brokers for each in ON[broker] if each.module}
    peers, missing = install_peers(sorted(wanted))
    folder.mkdir(parents=True, exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="services-", dir=folder))
    data.chmod(0o755)
    rows: list[Row] = []
    with serving(data) as servers:
        known = facts(folder) | servers.facts() | {"peers": ", ".join(version_of(peer) for peer in peers) or "none"}
        if missing:
            known["left out"] = "; ".join(f"{label}: {reason}" for label, reason in missing.items())
        arena = (ShortArena if short else Arena)(servers, folder, peers, quick)
        known["load"] = _load()
        for broker in brokers:
            with serving_broker(broker, data / f"with-{broker}") as server:
                rows += [row for name in only for row in _measure(name, server, arena)]
            known["load"] += f", after {server.label} {_load()}"
            _keep(known, rows, quick=quick)  # A run that is cut off keeps what it has measured.
    labels = list(dict.fromkeys(label for row in rows for label in row.cells))
    print_table(rows, known, labels)
    return int(any("void" in row.cells.get(OURS, "") for row in rows))


def _keep(known: Mapping[str, str], rows: Sequence[Row], *, quick: bool) -> None:
    keep_results("brokers", {"facts": known, "quick": quick, "rows": [asdict(row) for row in rows]})


def _load() -> str:
    """The load of the machine over the last minute: figures of a busy machine say little."""
    return f"{os.getloadavg()[0]:.1f}"


def markdown() -> str:
    """The kept results of the last run, as a table."""
    file = RESULTS / "brokers.json"
    if not file.exists():
        raise Failed(f"there are no results in {file}: run the bench first")
    kept = json.loads(file.read_text())
    rows = [Row(**row) for row in kept["rows"]]
    labels = list(dict.fromkeys(label for row in rows for label in row.cells))
    lines = [["measure", *labels, "ratio", "target"], ["---"] * (len(labels) + 3)]
    for row in rows:
        missed = " (missed)" if row.met is False else ""
        lines.append([row.measure, *(row.cells.get(label, "–") for label in labels), row.ratio, row.target + missed])
    facts = "; ".join(f"{name}: {value}" for name, value in kept["facts"].items())
    return "\n".join(["| " + " | ".join(line) + " |" for line in lines]) + f"\n\n{facts}"


def main() -> int:
    """The exit code: 1 if one of our own figures is void."""
    parser = argparse.ArgumentParser(prog="python -m bench.brokers", description="Brokers, beside peers and clients.")
    parser.add_argument("brokers", nargs="*", metavar="BROKER", help=f"of {', '.join(LABELS)}; all without a name")
    parser.add_argument("--only", nargs="+", choices=MEASURES, metavar="MEASURE",
                        help=f"of {', '.join(MEASURES)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a quick look; too small to quote")
    parser.add_argument("--short", action="store_true", help="one round of each measure but submissions, in full size")
    parser.add_argument(
        "--markdown", action="store_true", help="print the kept results as a table, and measure nothing"
    )
    parser.add_argument("--awake", action="store_true", help="keep the processors from sleeping: for latency, as root")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where to write data: on the disk that counts")
    given = parser.parse_args()
    if unknown := set(given.brokers) - set(LABELS):
        parser.error(f"there is no broker {', '.join(sorted(unknown))}")
    only = given.only or [name for name in MEASURES if not (given.short and name == "submissions")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # Ended from outside, it still cleans up after itself.
    try:
        if given.markdown:
            print(markdown())
            return 0
        with awake() if given.awake else nullcontext():
            brokers = given.brokers or list(LABELS)
            return measure_all(brokers, only, given.folder, quick=given.quick, short=given.short)
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
