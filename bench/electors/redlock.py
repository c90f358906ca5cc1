"""Redlock over three Redis servers: Mainspring's lease beside pottery's lock, by one and by several clients."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cluster.arena import OURS
from bench.cluster.contestants import environment
from bench.cluster.rows import judge
from bench.harness.figures import Row, show
from bench.harness.running import Failed, answer_of, end, scratch_folder
from bench.harness.script import Answer, wait
from bench.peers.installing import REQUIREMENTS, install
from mainspring.adapter import AdapterContext
from mainspring.core.instants import SECOND
from mainspring.leases.redlock import RedlockLease

if TYPE_CHECKING:
    from bench.cluster.arena import Arena

SERVERS = 3
LIMIT_S = 60
START_S = 10.0
PAUSE_S = 0.01


def measure_redlock(arena: Arena, holders: int) -> list[Row]:
    """Acquired and released a second, of both on the same servers."""
    seconds = arena.size(3, 1)
    with scratch_folder(arena.folder) as folder, _servers(folder) as ports:
        ours = asyncio.run(_ours(ports, seconds, holders))
        try:
            theirs = _theirs(ports, seconds, holders)
        except Failed as failure:
            print(f"  pottery: {failure}", file=sys.stderr)
            theirs = {}
    rows = []
    for name, what in (("alone", "acquired and released"), ("together", f"wanted by {holders} at once")):
        text = show(ours[name], "/s")
        row = Row(f"Redlock on {SERVERS} servers, {what}: lease {text}, pottery {show(theirs.get(name), '/s')}", {})
        row.cells[OURS] = text
        rows.append(judge(row, ours[name], theirs.get(name), 1, "pottery's Redlock"))
    return rows


@contextmanager
def _servers(folder: Path) -> Iterator[list[int]]:
    """Servers that know nothing of each other, each with a log that it syncs every second."""
    with ExitStack() as stack:
        ports = []
        for number in range(SERVERS):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = int(free.getsockname()[1])
            own = folder / f"redis-{number}"
            own.mkdir()
            settings = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(own), "--save", ""]
            command = ["redis-server", *settings, "--appendonly", "yes", "--appendfsync", "everysec"]
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(
                command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, text=True
            )
            stack.callback(end, process)
            ports.append(port)
        if not wait(lambda: all(map(_answers, ports)), START_S):
            raise Failed("Redis servers for Redlock do not answer")
        yield ports


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


async def _ours(ports: list[int], seconds: float, holders: int) -> Answer:
    lease = RedlockLease("redlock://" + ",".join(f"127.0.0.1:{port}" for port in ports), AdapterContext())
    await _count(lease, "warm", 0.3)
    alone = await _count(lease, "alone", seconds)
    together = sum(await asyncio.gather(*(_count(lease, "wanted", seconds) for _ in range(holders))))
    await lease.close()
    return {"alone": alone, "together": together}


async def _count(lease: RedlockLease, name: str, seconds: float) -> float:
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        hold = await lease.acquire(name, "bench", 30 * SECOND)
        if hold is None:
            await asyncio.sleep(PAUSE_S)
            continue
        done += 1
        await lease.release(hold)
    return done / (time.perf_counter() - began)


def _theirs(ports: list[int], seconds: float, holders: int) -> Answer:
    python = environment("pottery") / "bin" / "python"
    install(environment("pottery"), REQUIREMENTS / "pottery.txt")
    servers = ", ".join(f'"redis://127.0.0.1:{port}"' for port in ports)
    params = f'{{"servers": [{servers}], "seconds": {seconds}, "holders": {holders}, "limit_s": {LIMIT_S}}}'
    return answer_of([str(python), "-m", "bench.peers", "with_pottery", "locks", params], LIMIT_S)
