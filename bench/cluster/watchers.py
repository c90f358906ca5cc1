"""Clients that wait at one server for something to happen: what each of them costs the database."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from contextlib import suppress

from bench.cluster.arena import OURS, Arena
from bench.cluster.contestants import MAINSPRING
from bench.cluster.fleet import SETTLE_S, START_LIMIT_S, statements
from bench.cluster.stage import DATABASE, Stage, set_stage
from bench.harness.figures import Row
from bench.harness.running import Failed

COUNTS = {"streams": 900, "waits": 900, "log followers": 200, "idle workers": 200}
GROWTH = 2.0
"""Statements a second that any number of them may add: each kind of watcher has one reader."""
MOST = 2_000


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Client:
    """Requests over connections of their own, of which the answer is waited for or not."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def send(self, method: str, path: str, body: object = None) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers.append(writer)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
        writer.write((head + "Content-Type: application/json\r\n\r\n").encode() + data)
        await writer.drain()
        return reader

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, str]:
        """The answer, as JSON."""
        reader = await self.send(method, path, body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        if b" 20" not in head.split(b"\r\n")[0]:
            raise Failed(f"{method} {path}: {head.split(bytes([13]))[0].decode()}")
        answer: dict[str, str] = json.loads(await reader.readexactly(length))
        return answer

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()


async def _watch(client: Client, kind: str, count: int) -> None:
    """Open this many watchers of a kind."""
    run_id = (await client.ask("POST", "/v1/runs", {"task": "nobody-knows-this"}))["run_id"]
    for number in range(count):
        if kind == "streams":
            await client.send("GET", "/v1/events")
        elif kind == "waits":
            await client.send("GET", f"/v1/runs/{run_id}/wait?timeout=120s")
        elif kind == "log followers":
            await client.send("GET", f"/v1/runs/{run_id}/logs?follow=true")
        else:
            name = {"name": f"w{number}", "tasks": ["other"]}
            worker = (await client.ask("POST", "/v1/workers", name))["worker_id"]
            await client.send("PUT", f"/v1/workers/{worker}/assign", {"wait": "60s"})


def _cost(arena: Arena, kind: str, count: int, seconds: int) -> float:
    """Statements a second while this many wait and nothing happens."""
    port = _free_port()
    with set_stage(MAINSPRING, arena.servers, arena.folder) as stage:
        stage.environment["MAINSPRING_WATCHERS"] = str(MOST)
        stage.servers.execute(f"ALTER DATABASE {DATABASE} SET pg_stat_statements.track = 'top'")
        with stage.started([stage.command("server", {"port": port})]) as stage.workers:
            stage.wait(lambda: _answers(port), START_LIMIT_S, "starting was")
            return asyncio.run(_measure(stage, port, kind, count, seconds))


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


async def _measure(stage: Stage, port: int, kind: str, count: int, seconds: int) -> float:
    client = Client(port)
    try:
        await _watch(client, kind, count)
        await asyncio.sleep(SETTLE_S)
        before, began = await asyncio.to_thread(statements, stage), time.monotonic()
        await asyncio.sleep(seconds)
        return (await asyncio.to_thread(statements, stage) - before) / (time.monotonic() - began)
    finally:
        await client.close()


def measure_watchers(arena: Arena) -> list[Row]:
    """Of each kind one, and many."""
    arena.servers.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    seconds, cells, rounds, met = arena.size(10, 5), [], {}, True
    for kind, many in COUNTS.items():
        print(f"  watchers: {kind}", file=sys.stderr)
        one, lots = (_cost(arena, kind, count, seconds) for count in (1, many))
        cells.append(f"{kind} 1 / {many}: {one:.1f} / {lots:.1f}")
        rounds[kind] = [one, lots]
        met = met and lots <= one + GROWTH
    row = Row("statements a second of a server with idle watchers", {OURS: "; ".join(cells)}, rounds=rounds)
    row.target, row.met = f"≤ {GROWTH:g} more for any number", met
    return [row]
