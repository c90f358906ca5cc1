"""The API beside an empty Litestar handler, in one run: `python -m bench.api [--store URL]`.

The store should be a PostgreSQL server that syncs its commits; a database of its own is made in it and dropped. Without
one, a SQLite file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from bench.figures import percentile
from bench.http.client import Outcome, connect, post, storm, stream
from bench.http.ours import app_on
from mainspring.api.tokens import issue, load_keys
from mainspring.core.instants import HOUR
from mainspring.runtime import new_loop

HOST = "127.0.0.1"
CLIENTS = 32
BATCH = 1_000
START_S = 30.0


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


@contextmanager
def served(module: str, *args: str) -> Iterator[int]:
    """A server in a process of its own; its port."""
    port = free_port()
    words = [args[0], str(port), *args[1:]] if args else [str(port)]
    process = subprocess.Popen([sys.executable, "-m", module, *words], stdin=subprocess.PIPE)
    try:
        _await_port(port, process)
        yield port
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(10 if args else 0.1)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")


@contextmanager
def a_store(url: str | None) -> Iterator[str]:
    """A database of our own on the server that a URL names, or a file."""
    if url is None:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            yield f"sqlite:///{folder}/api.db"
        return
    import psycopg

    name = f"bench_api_{uuid4().hex[:8]}"
    base = url.rstrip("/")
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
        try:
            yield f"{base}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


def new_token() -> str:
    """Of somebody who submits."""
    app = app_on("sqlite:///unused.db", 0)
    keys = load_keys(app.settings)
    assert keys is not None
    words = {"subject": "bench", "lifetime": HOUR, "now": app.clock.now()}
    return issue(keys, app.settings, roles={"default": ["submitter"]}, **words)[0]  # type: ignore[arg-type]


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


def show(what: str, outcome: Outcome, per_answer: int = 1, beside: float | None = None) -> float:
    """One line; the rate."""
    rate = outcome.rate * per_answer
    times = outcome.latencies_ms
    share = "" if beside is None else f"  {rate / beside:6.1%} of the empty handler"
    bad = {status: count for status, count in outcome.statuses.items() if status != 201}
    print(
        f"{what:34} {rate:9,.0f}/s  p50 {statistics.median(times):6.1f} ms  p99 {percentile(times, 0.99):6.1f} ms"
        f"{share}{f'  NOT 201: {bad}' if bad else ''}",
        flush=True,
    )
    return rate


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


async def measure(url: str | None, seconds: float, rounds: int) -> None:
    """All of it. The empty handler and ours take turns, so that a slow minute hits both."""
    token = new_token()
    ceilings, singles = [], []
    with a_store(url) as store, served("bench.http.empty") as empty, served("bench.http.ours", store) as ours:
        for port, request in ((empty, single(None)), (ours, single(token))):
            await storm(HOST, port, request, clients=CLIENTS, seconds=1)
        for _ in range(rounds):
            outcome = await storm(HOST, empty, single(None), clients=CLIENTS, seconds=seconds)
            ceilings.append(show("empty Litestar handler", outcome))
            outcome = await storm(HOST, ours, single(token), clients=CLIENTS, seconds=seconds)
            singles.append(show("submissions, one by one", outcome, beside=ceilings[-1]))
        ratio = statistics.median(one / other for one, other in zip(singles, ceilings, strict=True))
        print(f"{'':34} {ratio:.1%} of the empty handler (median of {rounds}; to reach: 40%)")
        for clients in (4, 2, 1):
            outcome = await storm(HOST, ours, many(token), clients=clients, seconds=seconds)
            show(f"in batches of {BATCH}, {clients} clients", outcome, BATCH)
        outcome = await stream(HOST, ours, single(token), per_second=500, seconds=2 * seconds)
        show("500 a second", outcome)
    with a_store(url) as store, served("bench.http.ours", store, "whole") as whole:
        await journey(whole, token, 50)
        times = await journey(whole, token, 500)
    print(f"{'submit, persist, take, complete':34} {'':11}  p50 {statistics.median(times):6.1f} ms  "
          f"p99 {percentile(times, 0.99):6.1f} ms  (to reach: 95 ms)")  # fmt: skip


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", help="a PostgreSQL server: postgresql://user@host:port")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measure")
    parser.add_argument("--rounds", type=int, default=3)
    words = parser.parse_args()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(measure(words.store, words.seconds, words.rounds))


if __name__ == "__main__":
    main()
