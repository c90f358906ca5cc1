"""Servers in processes of their own, and the stores behind them."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

HOST = "127.0.0.1"
START_S = 30.0


def free_port() -> int:
    """One on which no process listens."""
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
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield f"{base}/{name}"
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
