"""The API beside an empty ASGI handler and Prefect's API, in one run: `python -m bench.api [--store URL]`.

The store should be a PostgreSQL server that syncs its commits; a database of its own is made in it and dropped. Without
one, a SQLite file.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.api.client import Outcome, connect, post, storm, stream
from bench.api.ours import app_on
from bench.api.serving import HOST, a_store, free_port, served
from bench.api.with_prefect import NAME as PREFECT
from bench.api.with_prefect import serving as serving_prefect
from bench.cluster.arena import OURS, Arena
from bench.harness.figures import Row, percentile
from bench.harness.running import Failed
from mainspring.api.auth.tokens import issue, load_keys
from mainspring.core.instants import HOUR
from mainspring.process.eventloop import new_loop

EMPTY = "an empty ASGI handler"
CLIENTS = 32
BATCH = 1_000


def new_token() -> str:
    """A token of a caller that submits."""
    app = app_on("sqlite:///unused.db", 0)
    keys = load_keys(app.settings)
    assert keys is not None
    roles = {"default": ["submitter"]}
    return issue(keys, app.settings, subject="bench", roles=roles, lifetime=HOUR, now=app.clock.now())[0]


def requests_of(path: str, body: object, token: str | None) -> Callable[[], bytes]:
    """The same request again and again."""
    request = post(HOST, path, json.dumps(body).encode(), token)
    return lambda: request


def single(token: str | None) -> Callable[[], bytes]:
    """One run."""
    return requests_of("/v1/runs", {"task": "nothing", "args": {"number": 1}}, token)


def many(token: str) -> Callable[[], bytes]:
    """A thousand runs."""
    runs = [{"task": "nothing", "args": {"number": number}} for number in range(BATCH)]
    return requests_of("/v1/runs:batch", {"runs": runs}, token)


def line(what: str, outcome: Outcome, per_answer: int = 1) -> str:
    """One measure."""
    bad = {status: count for status, count in outcome.statuses.items() if status != 201}
    wrong = f"  NOT 201: {bad}" if bad else ""
    return f"{what:34} {outcome.rate * per_answer:9,.0f}/s  {both(outcome.latencies_ms)}{wrong}"


async def journey(port: int, token: str, count: int) -> list[float]:
    """From sending a submission until its run is known to have succeeded, one after another: milliseconds each."""
    connection = await connect(HOST, port)
    submit, times = single(token)(), []
    for _ in range(count):
        began = time.perf_counter()
        _, body = await connection.ask(submit)
        run_id = json.loads(body)["run_id"]
        _, body = await connection.ask(post(HOST, f"/v1/runs/{run_id}/wait?timeout=5s", b"", token, "GET"))
        assert json.loads(body)["state"] == "succeeded", body
        times.append((time.perf_counter() - began) * 1000)
    connection.transport.close()
    return times


@dataclass
class Taken:
    """What was measured."""

    empty: list[Outcome] = field(default_factory=list)
    single: list[Outcome] = field(default_factory=list)
    batches: list[Outcome] = field(default_factory=list)
    steady: list[Outcome] = field(default_factory=list)
    journeys_ms: list[float] = field(default_factory=list)
    prefect: Outcome | None = None
    left_out: str = ""
    """Why Prefect was not measured."""

    @property
    def share(self) -> float:
        """Of the empty handler's rate: the median of the rounds."""
        return statistics.median(ours.rate / none.rate for ours, none in zip(self.single, self.empty, strict=True))


async def take(url: str | None, seconds: float, rounds: int, say: Callable[[str], None]) -> Taken:
    """All of it. The empty handler and ours take turns, so that a slow minute hits both."""
    token, taken = new_token(), Taken()
    with a_store(url) as store, served("bench.api.empty") as empty, served("bench.api.ours", store) as ours:
        for port, request in ((empty, single(None)), (ours, single(token))):
            await storm(HOST, port, request, clients=CLIENTS, seconds=1)
        for _ in range(rounds):
            none = await storm(HOST, empty, single(None), clients=CLIENTS, seconds=seconds)
            one = await storm(HOST, ours, single(token), clients=CLIENTS, seconds=seconds)
            taken.empty.append(none)
            taken.single.append(one)
            say(line("empty ASGI handler", none))
            say(f"{line('submissions, one by one', one)}  {one.rate / none.rate:.1%}")
        for _ in range(rounds):
            taken.batches.append(await storm(HOST, ours, many(token), clients=2, seconds=seconds))
            say(line(f"in batches of {BATCH}, 2 clients", taken.batches[-1], BATCH))
        taken.steady.append(await stream(HOST, ours, single(token), per_second=500, seconds=2 * seconds))
        say(line("500 a second", taken.steady[-1]))
    with a_store(url) as store, served("bench.api.ours", store, "whole") as whole:
        await journey(whole, token, 50)
        taken.journeys_ms = await journey(whole, token, 500)
    try:
        taken.prefect = await take_prefect(url, seconds)
        say(line(f"{PREFECT}, one by one", taken.prefect))
    except Failed as failure:
        taken.left_out = str(failure)
        say(f"{PREFECT}: left out: {failure}")
    return taken


async def take_prefect(url: str | None, seconds: float) -> Outcome:
    """The same submissions to Prefect's API, on the same server."""
    port = free_port()
    with a_store(url) as store, serving_prefect(HOST, port, store) as request:
        await storm(HOST, port, request, clients=CLIENTS, seconds=1)
        return await storm(HOST, port, request, clients=CLIENTS, seconds=seconds)


def measure(arena: Arena) -> list[Row]:
    """For the table of `python -m bench --store postgres`."""
    seconds, rounds = (2.0, 2) if arena.quick else (5.0, 3)
    say = functools.partial(print, file=sys.stderr)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        taken = runner.run(take(arena.servers.postgres, seconds, rounds, say))
    rates = {OURS: [each.rate for each in taken.single], EMPTY: [each.rate for each in taken.empty]}
    if taken.prefect is not None:
        rates[PREFECT] = [taken.prefect.rate]
    batches = [each.rate * BATCH for each in taken.batches]
    steady, journeys = taken.steady[0].latencies_ms, taken.journeys_ms
    return [
        Row("API: submissions, 32 clients", {name: shown(each, "/s") for name, each in rates.items()},
            beside(taken), "≥ 40 %", taken.share >= 0.4, rates),
        Row(f"API: in batches of {BATCH}", {OURS: shown(batches, "/s")}, "", "≥ 40,000/s",
            statistics.median(batches) >= 40_000, {OURS: batches}),
        Row("API: at 500 a second, p50 / p99", {OURS: both(steady)}, "", "p99 < 50 ms", percentile(steady, 0.99) < 50),
        Row("API: submit, persist, take, complete, p50 / p99", {OURS: both(journeys)}, "", "p99 < 95 ms",
            percentile(journeys, 0.99) < 95),
    ]  # fmt: skip


def beside(taken: Taken) -> str:
    """What single submissions are beside the others."""
    ceiling = f"{taken.share:.0%} of {EMPTY}"
    if taken.prefect is None:
        return f"{ceiling}; {PREFECT} left out: {taken.left_out}"
    return f"{ceiling}, {statistics.median(each.rate for each in taken.single) / taken.prefect.rate:.0f} × {PREFECT}"


def shown(rates: Sequence[float], unit: str) -> str:
    """The median."""
    return f"{statistics.median(rates):,.0f}{unit}"


def both(times_ms: Sequence[float]) -> str:
    """Median and 99th percentile."""
    return f"{statistics.median(times_ms):.1f} / {percentile(times_ms, 0.99):.1f} ms"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", help="a PostgreSQL server: postgresql://user@host:port")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measure")
    parser.add_argument("--rounds", type=int, default=3)
    words = parser.parse_args()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        taken = runner.run(take(words.store, words.seconds, words.rounds, functools.partial(print, flush=True)))
    print(f"{'of the empty handler, median':34} {taken.share:9.1%}    (to reach: 40 %)")
    print(f"{'submit, persist, take, complete':34} {'':11}  {both(taken.journeys_ms)}  (to reach: p99 under 95 ms)")


if __name__ == "__main__":
    main()
